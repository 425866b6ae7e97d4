"""Checks tokens and whether their grants suffice for an operation."""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from servicebus_emulator.engine.model.access_policy import DEFAULT_KEY
from servicebus_emulator.engine.model.descriptions import AccessRight
from servicebus_emulator.engine.model.errors import InvalidArgument, Unauthorized
from servicebus_emulator.security.bearer import SERVICE_BUS, TokenIssuer
from servicebus_emulator.security.resource_paths import entity_of, is_within, resource_path
from servicebus_emulator.security.sas import SCHEME, SharedAccessSignature
from servicebus_emulator.security.token_errors import bad_signature, expired, malformed, wrong_audience

if TYPE_CHECKING:
    from servicebus_emulator.engine.model.access_policy import SharedAccessPolicy
    from servicebus_emulator.engine.model.clock import Clock
    from servicebus_emulator.engine.namespace.shared_access_policies import SharedAccessPolicies

NEVER: Final = 2**63
"""The expiry of a grant that lasts as long as its connection."""

SIGNATURE_KIND: Final = "servicebus.windows.net:sastoken"
"""The token type of a shared access signature at ``$cbs``."""

BEARER_KIND: Final = "jwt"
"""The token type of a JSON Web Token at ``$cbs``."""

_BEARER: Final = "bearer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """What a valid token permits.

    :ivar resource: the path of the resource it applies to, including everything below (see :func:`resource_path`).
    :ivar entity: the queue or topic whose policy signed the token, or None. The grant is confined to that entity:
        another queue's path may lie below its path.
    :ivar expires_at: milliseconds since 1970.
    :ivar holder: the policy or client, for error messages.
    """

    resource: str
    entity: str | None = None
    rights: frozenset[AccessRight]
    expires_at: int
    holder: str

    def covers(self, path: str) -> bool:
        """Return whether the grant applies to the resource at `path`."""
        return is_within(path, resource=self.resource) and self.entity in (None, entity_of(path))

    def permits(self, rights: frozenset[AccessRight], *, path: str, now: int) -> bool:
        """Return whether the grant applies to `path`, is valid now, and has at least one of the rights."""
        return now < self.expires_at and self.covers(path) and not self.rights.isdisjoint(rights)


class Authorizer:
    """Authorizes the clients of one namespace.

    :param namespace: its name, for error messages.
    :param policies: its shared access policies.
    :ivar issuer: validates bearer tokens.
    :ivar clock: the clock of token expiry, which is not shifted with the namespace's clock.
    :ivar open: whether all clients are allowed everything, without tokens.
    :ivar any_audience: whether ``$cbs`` accepts tokens for entities that do not exist.
    """

    def __init__(
        self,
        namespace: str,
        *,
        policies: SharedAccessPolicies,
        issuer: TokenIssuer,
        clock: Clock,
        is_open: bool,
        any_audience: bool = False,
    ) -> None:
        self.open: Final = is_open
        self.any_audience: Final = any_audience
        self.clock: Final = clock
        self.issuer: Final = issuer
        self._namespace: Final = namespace
        self._policies: Final = policies

    @property
    def well_known(self) -> bool:
        """Whether what a client proves itself with is known to everybody, so that it says nothing about the client."""
        return self.open or self.issuer.well_known or DEFAULT_KEY in self._policies.root.keys

    def grant(self, token: str, *, kind: str, audience: str) -> Grant:
        """Return the grant of a token that a client sends to ``$cbs``.

        :param kind: the token's type.
        :param audience: the URI of the resource that the client wants to use.
        :raises InvalidArgument: when the type is unknown.
        :raises Unauthorized: when the token is invalid. The message contains no secrets.
        """
        if kind not in (SIGNATURE_KIND, BEARER_KIND):
            raise InvalidArgument(f"type of the token is unknown; allowed: {SIGNATURE_KIND!r}, {BEARER_KIND!r}")
        path = resource_path(audience)
        # Decided by content, not by type: azure-servicebus 7.15 sends signatures with the type "jwt".
        if token.casefold().startswith(f"{SCHEME.casefold()} "):
            return self._signature_grant(token, path=path)
        if kind == SIGNATURE_KIND:
            raise malformed(f"is not a shared access signature, which begins with '{SCHEME} '")
        return self._bearer_grant(token, path=path)

    def policy_grants(self, name: str, *, key: str) -> list[Grant]:
        """Return what the policies of this name and key permit, for as long as the connection lasts (SASL PLAIN)."""
        given = key.encode()
        return [
            Grant(
                resource="" if path is None else path.casefold(),
                entity=None if path is None else path.casefold(),
                rights=policy.rights,
                expires_at=NEVER,
                holder=f"rule {policy.name!r} of {_owner(path)}",
            )
            for path, policy in self._policies.named(name)
            if sum(hmac.compare_digest(each.encode(), given) for each in policy.keys) > 0
        ]

    def authorize(self, header: str | None, *, path: str, rights: Iterable[AccessRight]) -> None:
        """Check the ``Authorization`` header of an HTTP request.

        :param header: None when the request has none.
        :param path: the path of the requested resource.
        :param rights: the client needs one of these.
        :raises Unauthorized: when the token is missing, invalid or insufficient.
        """
        if self.open:
            return
        if header is None or header.strip() == "":
            raise Unauthorized("MissingToken: The authorization header was not found; send a token in it")
        folded = path.strip("/").casefold()
        scheme, _, credentials = header.strip().partition(" ")
        if scheme.casefold() == _BEARER:
            grant = self._bearer_grant(credentials.strip(), path=folded)
        elif scheme.casefold() == SCHEME.casefold():
            grant = self._signature_grant(header, path=folded)
        else:
            raise Unauthorized(f"MalformedToken: The authorization header is unreadable; allowed: {SCHEME}, Bearer")
        self.require([grant], rights=frozenset(rights), path=folded)

    def require(self, grants: Iterable[Grant], *, rights: frozenset[AccessRight], path: str) -> None:
        """Check that one of the grants suffices.

        :param rights: the client needs one of these.
        :param path: the path of the resource, case-insensitive.
        :raises Unauthorized: naming the claim, the resource and the holders of the insufficient tokens.
        """
        now, folded = self.clock.now(), path.strip("/").casefold()
        covering = [grant for grant in grants if grant.covers(folded)]
        if self.open or any(grant.permits(rights, path=folded, now=now) for grant in covering):
            return
        claims = ", ".join(right.value for right in AccessRight if right in rights)
        tokens = " and ".join(_describe(grant, now=now) for grant in covering)
        raise Unauthorized(
            f"Unauthorized access. '{claims}' claim(s) are required to perform this operation."
            f" Resource: {self._address(path)}."
            f" {'No token was sent for it' if tokens == '' else tokens}."
        )

    def expiry_error(self, path: str) -> Unauthorized:
        """Return the error for a client whose token expired while it was using a resource."""
        return expired(f" and was not renewed. Resource: {self._address(path)}.")

    # Internals

    def _address(self, path: str) -> str:
        return repr(f"sb://{self._namespace}/{path.strip('/')}")

    def _signature_grant(self, token: str, *, path: str) -> Grant:
        signature = SharedAccessSignature.parse(token)
        resource = resource_path(signature.resource)
        policy, entity = self._policy_of(signature, resource=resource)
        if signature.expires * 1000 <= self.clock.now():
            expiry = datetime.fromtimestamp(signature.expires, tz=UTC)
            raise expired(f". Expiration time: '{expiry:%Y-%m-%d %H:%M:%SZ}'")
        grant = Grant(
            resource=path,
            entity=entity,
            rights=policy.rights,
            expires_at=signature.expires * 1000,
            holder=f"rule {policy.name!r} of {_owner(entity)}",
        )
        if not is_within(path, resource=resource) or not grant.covers(path):
            raise wrong_audience("It is for another resource")
        return grant

    def _policy_of(self, signature: SharedAccessSignature, *, resource: str) -> tuple[SharedAccessPolicy, str | None]:
        """Return the policy that signed a token, and the entity it belongs to (None = the namespace)."""
        entity, name = entity_of(resource), signature.policy.casefold()
        # An entity's policy takes precedence. A token for the namespace can only be signed by one of its policies.
        candidates: list[tuple[str | None, tuple[SharedAccessPolicy, ...]]] = [(None, self._policies.list())]
        if entity != "":
            candidates.insert(0, (entity, self._policies.find(entity)))
        named = [
            (policy, owner) for owner, policies in candidates for policy in policies if policy.name.casefold() == name
        ]
        if len(named) == 0:
            raise bad_signature("Its resource has no rule of that name")
        signers = [(policy, owner) for policy, owner in named if signature.is_signed_with(policy.keys)]
        if len(signers) == 0:
            policy, owner = named[0]
            raise bad_signature(f"No key of rule {policy.name!r} of {_owner(owner)} made it")
        return signers[0]

    def _bearer_grant(self, token: str, *, path: str) -> Grant:
        claims = self.issuer.check(token, audience=SERVICE_BUS)
        return Grant(
            resource=path,
            rights=claims.role.rights,
            expires_at=claims.expires * 1000,
            holder=f"client {claims.client!r}, role {claims.role}",
        )


def _owner(entity: str | None) -> str:
    return "the namespace" if entity is None else repr(entity)


def _describe(grant: Grant, *, now: int) -> str:
    rights = ", ".join(right.value for right in AccessRight if right in grant.rights)
    suffix = "" if now < grant.expires_at else ", but has expired"
    return f"The token of {grant.holder} has {rights}{suffix}"
