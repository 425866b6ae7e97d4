"""Bearer tokens: JSON Web Tokens issued for a client id and secret.

The tokens resemble those that Microsoft Entra ID issues to applications (OAuth 2.0 client credentials, RFC 6749
section 4.4). The signing key is derived from the clients' secrets: processes with the same clients accept each other's
tokens, also after a restart.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from servicebus_emulator.engine.model.access_policy import ALL_RIGHTS
from servicebus_emulator.engine.model.descriptions import AccessRight
from servicebus_emulator.security.token_errors import bad_signature, expired, wrong_audience

if TYPE_CHECKING:
    from servicebus_emulator.engine.model.clock import Clock
    from servicebus_emulator.security.signing import Signer

SERVICE_BUS: Final = "https://servicebus.azure.net"
"""The audience of tokens for messaging and entity administration."""

MANAGEMENT: Final = "https://management.azure.com"
"""The audience of tokens for the ARM interface."""

_AUDIENCES: Final = (SERVICE_BUS, MANAGEMENT)
_LIFETIME: Final = 3600
_MAX_LENGTH: Final = 8192


class Role(StrEnum):
    """The role of a client, after Azure's roles "Azure Service Bus Data Owner" etc."""

    OWNER = "Owner"
    SENDER = "Sender"
    RECEIVER = "Receiver"

    @property
    def rights(self) -> frozenset[AccessRight]:
        """The rights that the role grants on the whole namespace."""
        return _RIGHTS[self]


_RIGHTS: Final[Mapping[Role, frozenset[AccessRight]]] = {
    Role.OWNER: ALL_RIGHTS,
    Role.SENDER: frozenset({AccessRight.SEND}),
    Role.RECEIVER: frozenset({AccessRight.LISTEN}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """An application that may request tokens. Its secret does not appear in ``repr``."""

    id: str
    secret: str = field(repr=False)
    role: Role = Role.OWNER

    def __post_init__(self) -> None:
        for name, value in (("ClientId", self.id), ("ClientSecret", self.secret)):
            if value == "" or not value.isprintable():
                raise ValueError(f"{name} of a client is empty or unreadable; allowed: printable characters")


DEVELOPMENT_CLIENT: Final = Client(id="servicebus-emulator", secret="CLIENT_SECRET_VALUE")  # noqa: S106 - well known
"""The default client on loopback addresses, with a publicly known secret."""


class ClientError(Exception):
    """A token request was refused.

    :ivar code: the OAuth 2.0 error code.
    :ivar status: the HTTP status.
    """

    def __init__(self, code: str, message: str, *, status: int) -> None:
        super().__init__(message)
        self.code = code
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuedToken:
    """A token issued to a client.

    :ivar lifetime: in seconds.
    """

    text: str = field(repr=False)
    lifetime: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BearerClaims:
    """The claims of a valid token.

    :ivar expires: seconds since 1970.
    """

    client: str
    role: Role
    expires: int


class TokenIssuer:
    """Issues and validates tokens.

    :param clients: the clients that may request tokens; without any, no token is valid.
    :raises ValueError: when two clients have the same id.
    """

    def __init__(self, clients: Sequence[Client], *, clock: Clock) -> None:
        self._clients: Final = {client.id: client for client in clients}
        if len(self._clients) != len(clients):
            raise ValueError(f"clients are {[client.id for client in clients]}; allowed: each id once")
        self._clock: Final = clock

    @property
    def well_known(self) -> bool:
        """Whether anybody can make a token that is valid here: one client has the secret of the documentation."""
        return DEVELOPMENT_CLIENT in self._clients.values()

    @cached_property
    def _signer(self) -> Signer:
        # Imported lazily: most namespaces never issue tokens, and loading the cryptography libraries takes a while.
        from servicebus_emulator.security.signing import Signer

        clients = sorted(self._clients.values(), key=lambda each: each.id)
        return Signer(text for client in clients for text in (client.id, client.secret))

    def issue(self, client_id: str, secret: str, *, scope: str, tenant: str, issuer: str) -> IssuedToken:
        """Issue a token to a client.

        :param scope: an audience followed by ``/.default``.
        :param tenant: the tenant that the client names; not checked.
        :param issuer: the URI of the token endpoint as the client addressed it.
        :raises ClientError: when the client is unknown, its secret wrong, or the scope invalid.
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
        """Validate a token and return its claims.

        :param audience: the required audience.
        :raises Unauthorized: when the signature, audience or expiry is invalid. The message does not contain any part
            of the token.
        """
        if len(self._clients) == 0 or len(token) > _MAX_LENGTH or not token.isascii():
            raise bad_signature("Bearer tokens are not accepted here, or not of this form")
        claims = self._signer.verified_claims(token)
        if str(claims.get("aud")).rstrip("/") != audience:
            raise wrong_audience(f"Allowed: {audience}")
        return self._check_expiry(claims)

    def _check_expiry(self, claims: dict[str, Any]) -> BearerClaims:
        expires, client_id = claims["exp"], str(claims["appid"])
        if not isinstance(expires, int) or expires <= self._now():
            raise expired("; request a new one")
        # The client's current role, not the one at the time of issue.
        client = self._clients.get(client_id)
        if client is None:
            raise bad_signature("Its client is not known here")
        return BearerClaims(client=client_id, role=client.role, expires=expires)

    def _now(self) -> int:
        return self._clock.now() // 1000
