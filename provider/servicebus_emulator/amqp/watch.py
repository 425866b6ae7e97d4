"""Who watches over one connection: that it is opened, and that it and its links show signs of life."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, Protocol
from weakref import proxy

from servicebus_emulator.amqp import proton
from servicebus_emulator.amqp.address import CBS, Address
from servicebus_emulator.engine.errors import BrokerError

if TYPE_CHECKING:
    from proton import Link

    from servicebus_emulator.amqp.patience import Patience

__all__ = ["ConnectionIdle", "ConnectionWatch", "LinkIdle", "Watched"]

# How much later than promised an idle link may be detached.
_LOOKS_PER_TERM: Final = 4

_log = logging.getLogger(__name__)


class LinkIdle(BrokerError):  # noqa: N818 - a refusal is named for what was refused
    """Nothing has happened on the link for too long."""

    condition = "amqp:link:detach-forced"


class ConnectionIdle(BrokerError):  # noqa: N818 - the same
    """The connection has had no link for too long."""

    condition = "amqp:connection:forced"


class Watched(Protocol):
    """A connection, as its watch sees it."""

    @property
    def frozen(self) -> bool:
        """Whether a fault keeps the connection from hearing anything."""
        ...

    def detach(self, link: Link, *, error: BrokerError) -> None:
        """End a link with an error."""
        ...

    def close_with(self, error: BrokerError) -> None:
        """Close, saying why."""
        ...

    def abort(self) -> None:
        """Drop the connection."""
        ...


class _LinkLife:
    """When a link last showed a sign of life."""

    __slots__ = ("credit", "entity", "link", "since")

    def __init__(self, link: Link, *, now: float) -> None:
        self.link = link
        self.since = now
        self.credit = 0
        text = (link.remote_source if link.is_sender else link.remote_target).address
        # Links to $cbs carry a request per half hour or so; they are neither idle nor what a connection is for.
        # The service's documents speak of links to entities only, and do not say whether it detaches these as well.
        self.entity = Address.parse("" if text is None else text).path.casefold() != CBS

    def spent_credit(self) -> bool:
        """Tell whether anything was sent on the link, or it was given credit, since this was last asked."""
        before, self.credit = self.credit, proton.credit(self.link._impl)  # noqa: SLF001 - the only door
        return before != self.credit


class ConnectionWatch:
    """Ends what has been silent for too long.

    :param watched: the connection.
    :param patience: how long is too long.
    :ivar signs: the links that showed a sign of life since the last look.
    """

    def __init__(self, watched: Watched, *, patience: Patience) -> None:
        self.signs: set[int] = set()
        # Weakly: what is over goes at once, rather than when Python next looks for cycles.
        self._watched: Watched = proxy(watched)
        self._patience = patience
        self._loop = asyncio.get_running_loop()
        self._links: dict[int, _LinkLife] = {}
        self._unlinked_since = 0.0
        self._timer: asyncio.TimerHandle | None = None
        terms = [each for each in (patience.link_idle_seconds, patience.unlinked_seconds) if each is not None]
        self._period = min(terms) / _LOOKS_PER_TERM if len(terms) > 0 else None

    def begin(self) -> None:
        """Expect that the connection is opened."""
        if self._patience.opening_seconds is not None:
            self._timer = self._loop.call_later(self._patience.opening_seconds, self._give_up)

    def opened(self) -> None:
        """Note that the connection is open."""
        self.stop()
        self._unlinked_since = self._loop.time()
        self._look_later()

    def link_began(self, key: int, link: Link) -> None:
        """Note a new link."""
        if self._period is not None:
            self._links[key] = _LinkLife(link, now=self._loop.time())

    def link_ended(self, key: int) -> None:
        """Forget a link."""
        life = self._links.pop(key, None)
        if life is not None and life.entity:
            self._unlinked_since = self._loop.time()

    def stop(self) -> None:
        """Watch no longer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        _log.info("a connection was not opened in %g s and was dropped", self._patience.opening_seconds)
        self._watched.abort()

    def _look_later(self) -> None:
        if self._period is not None:
            self._timer = self._loop.call_later(self._period, self._look)

    def _look(self) -> None:
        now = self._loop.time()
        self._look_later()
        self._look_at_links(now, frozen=self._watched.frozen)
        self.signs.clear()
        allowed = self._patience.unlinked_seconds
        if self._watched.frozen or any(life.entity for life in self._links.values()):
            self._unlinked_since = now
        elif allowed is not None and now - self._unlinked_since >= allowed:
            self.stop()
            self._watched.close_with(ConnectionIdle(f"the connection had no link for {allowed:g} s and is closed"))

    def _look_at_links(self, now: float, *, frozen: bool) -> None:
        allowed = self._patience.link_idle_seconds
        for key, life in tuple(self._links.items()):
            if life.spent_credit() or key in self.signs or frozen:
                life.since = now
            elif life.entity and allowed is not None and now - life.since >= allowed:
                error = LinkIdle(f"the link {life.link.name!r} was idle for {allowed:g} s and is detached")
                self._watched.detach(life.link, error=error)
