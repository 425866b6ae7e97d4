"""What a token grants in one namespace, and whether that is enough for an operation."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from servicebus_emulator.engine.descriptions import AccessRight
from servicebus_emulator.engine.errors import InvalidArgument, Unauthorized
from servicebus_emulator.security.bearer import SERVICE_BUS, TokenIssuer
from servicebus_emulator.security.refusals import bad_signature, expired, malformed, wrong_audience
from servicebus_emulator.security.resources import entity_of, is_within, resource_path
from servicebus_emulator.security.sas import SCHEME, SharedAccessSignature

if TYPE_CHECKING:
    from servicebus_emulator.engine.access import AccessRules
    from servicebus_emulator.engine.access_rules import AccessRule
    from servicebus_emulator.engine.clock import Clock

__all__ = ["BEARER_KIND", "SIGNATURE_KIND", "Grant", "Guard"]

SIGNATURE_KIND: Final = "servicebus.windows.net:sastoken"
"""The type under which clients bring a shared access signature to ``$cbs``."""

BEARER_KIND: Final = "jwt"
"""The type under which clients bring a JSON Web Token to ``$cbs``."""

_BEARER: Final = "bearer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """What a good token permits.

    :ivar resource: the path below which it permits something (see :func:`resource_path`).
    :ivar entity: the queue or topic that it is confined to, since the rule is its; None = it is not. Another queue may
        well lie below its path.
    :ivar expires_at: when that ends (milliseconds since 1970).
    :ivar holder: who it was granted to, for messages: a rule or a client.
    """

    resource: str
    entity: str | None = None
    rights: frozenset[AccessRight]
    expires_at: int
    holder: str

    def covers(self, path: str) -> bool:
        """Return whether what is at `path` is what it is about, or part of that."""
        return is_within(path, resource=self.resource) and self.entity in (None, entity_of(path))

    def permits(self, rights: frozenset[AccessRight], *, path: str, now: int) -> bool:
        """Return whether it permits, at `path` and now, what any of these rights permits."""
        return now < self.expires_at and self.covers(path) and not self.rights.isdisjoint(rights)


class Guard:
    """Checks tokens against the rules of one namespace.

    :param namespace: its name, for messages.
    :param rules: its shared access rules.
    :param issuer: knows the bearer tokens that are good.
    :ivar clock: what time it is where tokens are made: it is not put forward with the namespace's.
    :ivar open: whether everybody is let in, unchecked.
    """

    def __init__(self, namespace: str, *, rules: AccessRules, issuer: TokenIssuer, clock: Clock, is_open: bool) -> None:
        self.open: Final = is_open
        self.clock: Final = clock
        self.issuer: Final = issuer
        self._namespace: Final = namespace
        self._rules: Final = rules

    def grant(self, token: str, *, kind: str, audience: str) -> Grant:
        """Return what a token grants that a client brings to ``$cbs``.

        :param kind: its type.
        :param audience: the URI of the resource that the client wants to use.
        :raises InvalidArgument: when the type is unknown.
        :raises Unauthorized: saying why the token is not good; nothing secret is repeated.
        """
        if kind not in (SIGNATURE_KIND, BEARER_KIND):
            raise InvalidArgument(f"type of the token is unknown; allowed: {SIGNATURE_KIND!r}, {BEARER_KIND!r}")
        path = resource_path(audience)
        # By what it is, not by what it is called: azure-servicebus 7.15 brings signatures as "jwt".
        if token.casefold().startswith(f"{SCHEME.casefold()} "):
            return self._signature_grant(token, path=path)
        if kind == SIGNATURE_KIND:
            raise malformed(f"is no shared access signature; those begin with '{SCHEME} '")
        return self._bearer_grant(token, path=path)

    def authorize(self, header: str | None, *, path: str, rights: Iterable[AccessRight]) -> None:
        """Check the ``Authorization`` of an HTTP request.

        :param header: its value; None = there is none.
        :param path: the path of what the request is about.
        :param rights: of which one is needed.
        :raises Unauthorized: when the token is missing, not good, or not enough.
        """
        if self.open:
            return
        wanted = frozenset(rights)
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
        self.require([grant], rights=wanted, path=folded)

    def require(self, grants: Iterable[Grant], *, rights: frozenset[AccessRight], path: str) -> None:
        """Check that one of the grants permits something.

        :param rights: of which one is needed.
        :param path: the path of the resource, in any case.
        :raises Unauthorized: naming the claim, the resource, and whose token is not enough.
        """
        now, folded = self.clock.now(), path.strip("/").casefold()
        of_path = [grant for grant in grants if grant.covers(folded)]
        if self.open or any(grant.permits(rights, path=folded, now=now) for grant in of_path):
            return
        claims = ", ".join(right.value for right in AccessRight if right in rights)
        shown = " and ".join(_shown(grant, now=now) for grant in of_path)
        raise Unauthorized(
            f"Unauthorized access. '{claims}' claim(s) are required to perform this operation."
            f" Resource: {self._address(path)}."
            f" {'No token was brought for it' if shown == '' else shown}."
        )

    def expired(self, path: str) -> Unauthorized:
        """Return what a client is told whose token ran out while it was using a resource."""
        return expired(f" and was not renewed. Resource: {self._address(path)}.")

    # Steps

    def _address(self, path: str) -> str:
        return repr(f"sb://{self._namespace}/{path.strip('/')}")

    def _signature_grant(self, token: str, *, path: str) -> Grant:
        signature = SharedAccessSignature.parse(token)
        resource = resource_path(signature.resource)
        rule, entity = self._rule_of(signature, resource=resource)
        if signature.expires * 1000 <= self.clock.now():
            ended = datetime.fromtimestamp(signature.expires, tz=UTC)
            raise expired(f". Expiration time: '{ended:%Y-%m-%d %H:%M:%SZ}'")
        grant = Grant(
            resource=path,
            entity=entity,
            rights=rule.rights,
            expires_at=signature.expires * 1000,
            holder=f"rule {rule.name!r} of {_place(entity)}",
        )
        if not is_within(path, resource=resource) or not grant.covers(path):
            raise wrong_audience("It is for another resource")
        return grant

    def _rule_of(self, signature: SharedAccessSignature, *, resource: str) -> tuple[AccessRule, str | None]:
        """Return the rule with which a token was made, and the entity whose it is; None = the namespace's."""
        entity, wanted = entity_of(resource), signature.rule.casefold()
        # A token for the whole namespace is made with a rule of the namespace.
        places: list[tuple[str | None, tuple[AccessRule, ...]]] = [(None, self._rules.list())]
        if entity != "":
            places.insert(0, (entity, self._rules.find(entity)))
        named = [(rule, place) for place, rules in places for rule in rules if rule.name.casefold() == wanted]
        if len(named) == 0:
            raise bad_signature("Its resource has no rule of that name")
        good = [(rule, place) for rule, place in named if signature.is_signed_with(rule.keys)]
        if len(good) == 0:
            rule, place = named[0]
            of_rule = f"rule {rule.name!r} of {_place(place)}"
            raise bad_signature(f"No key of {of_rule} made it")
        return good[0]

    def _bearer_grant(self, token: str, *, path: str) -> Grant:
        claims = self.issuer.check(token, audience=SERVICE_BUS)
        return Grant(
            resource=path,
            rights=claims.role.rights,
            expires_at=claims.expires * 1000,
            holder=f"client {claims.client!r}, role {claims.role}",
        )


def _place(entity: str | None) -> str:
    return "the namespace" if entity is None else repr(entity)


def _shown(grant: Grant, *, now: int) -> str:
    held = ", ".join(right.value for right in AccessRight if right in grant.rights)
    ended = "" if now < grant.expires_at else ", and whose token is expired"
    return f"The token is of {grant.holder}, which has {held}{ended}"
