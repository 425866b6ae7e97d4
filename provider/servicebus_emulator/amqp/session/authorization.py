"""The rights of one client: the tokens it sent to ``$cbs``, and the links that depend on them.

A token covers the resource it was sent for, on this connection, until it expires; a newer one for the same resource
replaces it. A link whose last token expires is detached. A change of an access rule does not affect accepted tokens:
the service, too, checks them once.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol
from weakref import proxy

from servicebus_emulator.amqp.codec import proton_fast_path as proton
from servicebus_emulator.engine.model.errors import BrokerError, InvalidArgument, QuotaExceeded
from servicebus_emulator.security.authorizer import NEVER, Authorizer, Grant
from servicebus_emulator.security.resource_paths import resource_path, self_and_ancestors

if TYPE_CHECKING:
    from proton import Link

    from servicebus_emulator.engine.model.descriptions import AccessRight
    from servicebus_emulator.engine.namespace.namespace import Namespace

_MAX_TOKENS: Final = 10_000
# As many as a person reads: a client without a login is not to fill the disk.
_MAX_REFUSALS_LOGGED: Final = 10

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _AuthorizedLink:
    """A link, and the rights of which it needs one."""

    link: Link
    rights: frozenset[AccessRight]
    path: str


class LinkOwner(Protocol):
    """The connection of a client."""

    def end_link(self, link: Link, *, error: BrokerError) -> None:
        """Detach a link, or refuse its attach, with an error."""


class Authorization:
    """The tokens and authorized links of one connection.

    :param connection: ends the links whose tokens have expired.
    :param namespace: calls :meth:`advance` at the time of :meth:`next_due`.
    :param guard: validates tokens and checks rights.
    """

    def __init__(self, connection: LinkOwner, *, namespace: Namespace, guard: Authorizer) -> None:
        # A weak reference, so that a closed connection is freed at once rather than by the garbage collector.
        self._connection: Final[LinkOwner] = proxy(connection)
        self._namespace: Final = namespace
        self._guard: Final = guard
        self._grants: Final[dict[str, Grant]] = {}
        self._refusals = 0
        self._links: Final[dict[proton.Handle, _AuthorizedLink]] = {}

    def put_token(self, token: object, *, kind: object, audience: object) -> None:
        """Accept a token for a resource.

        :param kind: the type of the token.
        :param audience: the URI of the resource.
        :raises InvalidArgument: when one of the three is no string, or the type is unknown.
        :raises Unauthorized: when the token is invalid; an earlier one stays in force.
        :raises EntityNotFound: when there is no such entity, which only a valid token reveals.
        :raises QuotaExceeded: when the connection has too many tokens.
        """
        if self._guard.open:
            return
        if not isinstance(token, str) or not isinstance(kind, str) or not isinstance(audience, str):
            raise InvalidArgument("put-token: the token, its type or its audience is not a string; allowed: strings")
        path = resource_path(audience)
        if len(self._grants) >= _MAX_TOKENS and path not in self._grants:
            raise QuotaExceeded(f"the connection has tokens for {_MAX_TOKENS} resources; close it and open another")
        try:
            grant = self._guard.grant(token, kind=kind, audience=audience)
            entity = path.partition("/$")[0]
            if entity != "" and not self._guard.any_audience:
                self._namespace.find(entity)
            self._grants[path] = grant
        except BrokerError as error:
            self.log_refusal("token", error, level=logging.WARNING)
            raise
        self._namespace.register_timer(self)

    def log_in(self, name: str, key: str) -> bool:
        """Accept the name and key of a shared access policy; return whether there is such a policy."""
        if self._guard.open:
            return True
        grants = self._guard.policy_grants(name, key=key)
        self._grants.update({grant.resource: grant for grant in grants})
        return len(grants) > 0

    def require(self, rights: frozenset[AccessRight], *, path: str) -> None:
        """Check that the client has one of the rights on a resource.

        :param path: the path of the resource.
        :raises Unauthorized: when no token of the client grants one.
        """
        if not self._guard.open:
            self._guard.require(self._grants_over(path), rights=rights, path=path)

    @property
    def logged_in(self) -> bool:
        """Whether the client has sent a valid token, for whatever resource, or needs none."""
        return self._guard.open or len(self._grants) > 0

    def log_refusal(self, refused: str, error: BrokerError, *, level: int) -> None:
        """Log that something of the client was refused, of a client without a login only the first times."""
        self._refusals += 1
        if self.logged_in or self._refusals <= _MAX_REFUSALS_LOGGED:
            _log.log(level, "namespace %s: %.300s refused: %.1000s", self._namespace.name, refused, error)

    def authorize_link(self, link: Link, *, rights: frozenset[AccessRight], path: str) -> None:
        """Check that a link may be attached, and end it when the client no longer has one of the rights.

        :raises Unauthorized: when no token of the client grants one.
        """
        if self._guard.open:
            return
        try:
            self.require(rights, path=path)
        except BrokerError as error:
            self.log_refusal("link", error, level=logging.WARNING)
            raise
        self._links[link._impl] = _AuthorizedLink(link, rights, path)  # noqa: SLF001 - the C object
        self._namespace.register_timer(self)

    def remove_link(self, link: proton.Handle) -> None:
        """Forget a link."""
        if self._links.pop(link, None) is not None:
            self._namespace.register_timer(self)

    def clear_links(self) -> None:
        """Forget all links: the connection is closed."""
        if len(self._links) > 0:
            self._links.clear()
            self._namespace.register_timer(self)

    # Called by the namespace

    def next_due(self) -> int | None:
        """Return when the next token expires, if a link may depend on it."""
        if len(self._links) == 0:
            return None
        now = self._guard.clock.now()
        ends = [grant.expires_at for grant in self._grants.values() if now < grant.expires_at < NEVER]
        # In the time of the namespace, which can be moved forward; the clock that tokens are validated by cannot.
        return self._namespace.now() + min(ends) - now if len(ends) > 0 else None

    def advance(self) -> None:
        """End the links whose tokens have expired."""
        now = self._guard.clock.now()
        for each in [each for each in self._links.values() if self._expiration(each) <= now]:
            _log.info("namespace %s: token expired, link to %r detached", self._namespace.name, each.path)
            self._connection.end_link(each.link, error=self._guard.expiry_error(each.path))

    def _expiration(self, authorized: _AuthorizedLink) -> int:
        path = authorized.path.strip("/").casefold()
        grants = [grant for grant in self._grants_over(path) if grant.permits(authorized.rights, path=path, now=0)]
        return max((grant.expires_at for grant in grants), default=0)

    def _grants_over(self, path: str) -> list[Grant]:
        """Return the grants for a resource and for those that contain it."""
        resources = self_and_ancestors(path.strip("/").casefold())
        return [self._grants[resource] for resource in resources if resource in self._grants]
