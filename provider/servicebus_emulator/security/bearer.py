"""Bearer tokens: JSON Web Tokens for clients that show their id and secret, and what such a token says.

The tokens look like those of Microsoft Entra ID for an application (OAuth 2.0 client credentials, RFC 6749 section
4.4). They are signed with a key that is derived from the clients' secrets: processes that know the same clients
accept each other's tokens, and their own after a restart.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from servicebus_emulator.engine.access_rules import ALL_RIGHTS
from servicebus_emulator.engine.descriptions import AccessRight
from servicebus_emulator.security.refusals import bad_signature, expired, wrong_audience

if TYPE_CHECKING:
    from servicebus_emulator.engine.clock import Clock
    from servicebus_emulator.security.signing import Signer

__all__ = [
    "DEVELOPMENT_CLIENT",
    "MANAGEMENT",
    "SERVICE_BUS",
    "BearerClaims",
    "Client",
    "ClientError",
    "IssuedToken",
    "Role",
    "TokenIssuer",
]

SERVICE_BUS: Final = "https://servicebus.azure.net"
"""The audience of tokens for messages and for the administration of entities."""

MANAGEMENT: Final = "https://management.azure.com"
"""The audience of tokens for the ARM interface."""

_AUDIENCES: Final = (SERVICE_BUS, MANAGEMENT)
_LIFETIME: Final = 3600
_LONGEST: Final = 8192


class Role(StrEnum):
    """What a client may do, by the name of Azure's role "Azure Service Bus Data ..."."""

    OWNER = "Owner"
    SENDER = "Sender"
    RECEIVER = "Receiver"

    @property
    def rights(self) -> frozenset[AccessRight]:
        """The rights that the role gives, on the whole namespace."""
        return _RIGHTS[self]


_RIGHTS: Final[Mapping[Role, frozenset[AccessRight]]] = {
    Role.OWNER: ALL_RIGHTS,
    Role.SENDER: frozenset({AccessRight.SEND}),
    Role.RECEIVER: frozenset({AccessRight.LISTEN}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """An application that may ask for tokens; its secret never appears in ``repr``."""

    id: str
    secret: str = field(repr=False)
    role: Role = Role.OWNER

    def __post_init__(self) -> None:
        for name, value in (("ClientId", self.id), ("ClientSecret", self.secret)):
            if value == "" or not value.isprintable():
                raise ValueError(f"{name} of a client is empty or unreadable; allowed: printable characters")


DEVELOPMENT_CLIENT: Final = Client(id="servicebus-emulator", secret="CLIENT_SECRET_VALUE")  # noqa: S106 - well known
"""The client that there is when none is named, on loopback addresses: well known, its secret is no secret."""


class ClientError(Exception):
    """A request for a token that is refused.

    :ivar code: the error code of OAuth 2.0.
    :ivar status: the HTTP status.
    """

    def __init__(self, code: str, message: str, *, status: int) -> None:
        super().__init__(message)
        self.code = code
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuedToken:
    """A token for a client.

    :ivar lifetime: for how many seconds it is good.
    """

    text: str = field(repr=False)
    lifetime: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BearerClaims:
    """What a token says that was found good.

    :ivar expires: the second since 1970 from which on it is worth nothing.
    """

    client: str
    role: Role
    expires: int


class TokenIssuer:
    """Issues tokens and tells good ones from others.

    :param clients: who may ask; none = nobody, and no token is good.
    :param clock: what time it is.
    :raises ValueError: when two clients have the same id.
    """

    def __init__(self, clients: Sequence[Client], *, clock: Clock) -> None:
        self._clients: Final = {client.id: client for client in clients}
        if len(self._clients) != len(clients):
            raise ValueError(f"clients are {[client.id for client in clients]}; allowed: each id once")
        self._clock: Final = clock

    @cached_property
    def _signer(self) -> Signer:
        # Not before it is needed: most who start a namespace never use it, and it takes a while to load.
        from servicebus_emulator.security.signing import Signer

        clients = sorted(self._clients.values(), key=lambda each: each.id)
        return Signer(text for client in clients for text in (client.id, client.secret))

    def issue(self, client_id: str, secret: str, *, scope: str, tenant: str, issuer: str) -> IssuedToken:
        """Issue a token to a client.

        :param scope: an audience followed by ``/.default``.
        :param tenant: the directory that the client names; any.
        :param issuer: the URI under which the client reached the endpoint.
        :raises ClientError: when the client is unknown, its secret wrong, or the scope not served.
        """
        client = self._clients.get(client_id)
        expected = "" if client is None else client.secret
        if not hmac.compare_digest(expected.encode(), secret.encode()) or client is None:
            message = "AADSTS7000215: Invalid client secret provided, or no client of that id is known here."
            raise ClientError("invalid_client", message, status=401)
        audience = scope.removesuffix("/.default").rstrip("/")
        if audience not in _AUDIENCES or not scope.endswith("/.default"):
            allowed = ", ".join(f"{each}/.default" for each in _AUDIENCES)
            raise ClientError("invalid_scope", f"AADSTS70011: The scope is not valid; allowed: {allowed}", status=400)
        now = self._now()
        claims = {
            "aud": audience,
            "iss": issuer,
            "iat": now,
            "nbf": now,
            "exp": now + _LIFETIME,
            "appid": client.id,
            "tid": tenant,
            "roles": [client.role.value],
            "ver": "1.0",
        }
        return IssuedToken(text=self._signer.sign(claims), lifetime=_LIFETIME)

    def check(self, token: str, *, audience: str) -> BearerClaims:
        """Return what a token says.

        :param audience: whom it must be for.
        :raises Unauthorized: when it is none of ours, for someone else, or out of date; nothing of it is repeated.
        """
        if len(self._clients) == 0 or len(token) > _LONGEST or not token.isascii():
            raise bad_signature("Bearer tokens like it, or any, are not accepted here")
        claims = self._signer.claims_of(token)
        if str(claims.get("aud")).rstrip("/") != audience:
            raise wrong_audience(f"Allowed: {audience}")
        return self._in_time(claims)

    def _in_time(self, claims: dict[str, Any]) -> BearerClaims:
        expires, client_id = claims["exp"], str(claims["appid"])
        if not isinstance(expires, int) or expires <= self._now():
            raise expired("; ask for a new one")
        # The role is that of the client now, not that of the time of issue.
        client = self._clients.get(client_id)
        if client is None:
            raise bad_signature("Its client is not known here")
        return BearerClaims(client=client_id, role=client.role, expires=expires)

    def _now(self) -> int:
        return self._clock.now() // 1000
