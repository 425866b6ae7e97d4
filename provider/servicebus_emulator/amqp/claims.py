"""What one client may do: the tokens that it brought, and the links that depend on them.

A token is good for the resource for which it was brought, on this connection, until it expires. A newer one for
the same resource takes its place. When none is left for a link, the link is detached. A rule that changes
meanwhile changes nothing for tokens that were accepted: the service reads them once, too.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol
from weakref import proxy

from servicebus_emulator.amqp import proton
from servicebus_emulator.engine.errors import BrokerError, InvalidArgument, QuotaExceeded
from servicebus_emulator.security.guard import Grant, Guard
from servicebus_emulator.security.resources import resource_path, resources_over

if TYPE_CHECKING:
    from proton import Link

    from servicebus_emulator.engine.descriptions import AccessRight
    from servicebus_emulator.engine.namespace import Namespace

__all__ = ["Claims", "Host"]

_MOST: Final = 10_000

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Held:
    """A link that stays as long as its right does."""

    link: Link
    rights: frozenset[AccessRight]
    path: str


class Host(Protocol):
    """The connection of a client."""

    def expel(self, link: Link, *, error: BrokerError) -> None:
        """End a link with an error."""
        ...


class Claims:
    """The claims of one connection.

    :param connection: whose links are detached when their time is over.
    :param namespace: reminds of that.
    :param guard: reads tokens, and tells what they permit.
    """

    def __init__(self, connection: Host, *, namespace: Namespace, guard: Guard) -> None:
        # Weakly: what is over goes at once, rather than when Python next looks for cycles.
        self._connection: Final[Host] = proxy(connection)
        self._namespace: Final = namespace
        self._guard: Final = guard
        self._grants: Final[dict[str, Grant]] = {}
        self._held: Final[dict[int, _Held]] = {}

    def bring(self, token: object, *, kind: object, audience: object) -> None:
        """Take in a token for a resource.

        :param audience: the URI of the resource.
        :raises InvalidArgument: when one of the three is no string, or the type of token is unknown.
        :raises Unauthorized: when the token is not good; an older one stays what it was.
        :raises QuotaExceeded: when the connection holds too many.
        """
        if self._guard.open:
            return
        if not isinstance(token, str) or not isinstance(kind, str) or not isinstance(audience, str):
            raise InvalidArgument("a token, its type and the name of its resource are to be strings, and one is not")
        path = resource_path(audience)
        if len(self._grants) >= _MOST and path not in self._grants:
            raise QuotaExceeded(f"the connection holds tokens for {_MOST} resources; close it and open another")
        try:
            self._grants[path] = self._guard.grant(token, kind=kind, audience=audience)
        except BrokerError as error:
            _log.warning("namespace %s: token refused: %s", self._namespace.name, error)
            raise
        self._namespace.remind(self)

    def require(self, rights: frozenset[AccessRight], *, path: str) -> None:
        """Check that the client may do something now.

        :param rights: of which one is needed.
        :param path: the path of the resource.
        :raises Unauthorized: when no token of the client permits it.
        """
        if not self._guard.open:
            self._guard.require(self._over(path), rights=rights, path=path)

    def hold(self, link: Link, *, rights: frozenset[AccessRight], path: str) -> None:
        """Let a link be attached, and stay as long as one of the rights does.

        :raises Unauthorized: when no token of the client permits it.
        """
        if self._guard.open:
            return
        try:
            self.require(rights, path=path)
        except BrokerError as error:
            _log.warning("namespace %s: link refused: %s", self._namespace.name, error)
            raise
        self._held[_identity(link)] = _Held(link, rights, path)
        self._namespace.remind(self)

    def forget(self, link: int) -> None:
        """Note that a link is gone, by the identity of its handle."""
        if self._held.pop(link, None) is not None:
            self._namespace.remind(self)

    def forget_all(self) -> None:
        """Note that the connection is gone."""
        if len(self._held) > 0:
            self._held.clear()
            self._namespace.remind(self)

    # The namespace's side: the time at which a link loses its right

    def next_due(self) -> int | None:
        """Return when the next token runs out, if links may depend on it."""
        if len(self._held) == 0:
            return None
        now = self._guard.clock.now()
        ends = [grant.expires_at for grant in self._grants.values() if grant.expires_at > now]
        # In the namespace's time: it may have been put forward, the time by which tokens are judged is not.
        return self._namespace.now() + min(ends) - now if len(ends) > 0 else None

    def advance(self) -> None:
        """Detach the links that have lost their right."""
        now = self._guard.clock.now()
        for held in [held for held in self._held.values() if self._end_of(held) <= now]:
            _log.info("namespace %s: token expired, link to %r detached", self._namespace.name, held.path)
            self._connection.expel(held.link, error=self._guard.expired(held.path))

    def _end_of(self, held: _Held) -> int:
        path = held.path.strip("/").casefold()
        grants = [grant for grant in self._over(path) if grant.permits(held.rights, path=path, now=0)]
        return max((grant.expires_at for grant in grants), default=0)

    def _over(self, path: str) -> list[Grant]:
        """Return the tokens that were brought for a resource, or for one around it."""
        around = resources_over(path.strip("/").casefold())
        return [self._grants[resource] for resource in around if resource in self._grants]


def _identity(link: Link) -> int:
    return proton.identity(link._impl)  # noqa: SLF001 - the only door from Proton's wrapper to what it wraps
