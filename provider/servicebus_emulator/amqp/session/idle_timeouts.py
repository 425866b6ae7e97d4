"""Timeouts of one connection: until it is open, and for idle links and connections without links."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, Protocol
from weakref import proxy

from servicebus_emulator.amqp.codec import proton_fast_path as proton
from servicebus_emulator.amqp.session.node_address import NodeAddress
from servicebus_emulator.engine.model.errors import BrokerError

if TYPE_CHECKING:
    from proton import Link

    from servicebus_emulator.amqp.transport.timeouts import ClientTimeouts

__all__ = ["ConnectionIdle", "IdleMonitor", "LinkIdle", "MonitoredConnection"]

_CHECKS_PER_TIMEOUT: Final = 4

_log = logging.getLogger(__name__)


class LinkIdle(BrokerError):  # noqa: N818 - broker errors are named after their condition
    """The link was idle for too long."""

    condition = "amqp:link:detach-forced"


class ConnectionIdle(BrokerError):  # noqa: N818 - broker errors are named after their condition
    """The connection had no link for too long."""

    condition = "amqp:connection:forced"


class MonitoredConnection(Protocol):
    """A connection, as its monitor uses it."""

    @property
    def frozen(self) -> bool:
        """Whether a fault suspends reading and writing."""

    def detach(self, link: Link, *, error: BrokerError) -> None:
        """Detach a link with an error."""

    def close_with_error(self, error: BrokerError) -> None:
        """Close the connection with an error."""

    def abort(self) -> None:
        """Drop the connection."""


class _LinkActivity:
    """When a link was last active."""

    __slots__ = ("credit", "last_active", "link", "to_entity")

    def __init__(self, link: Link, *, now: float) -> None:
        self.link = link
        self.last_active = now
        self.credit = 0
        # Links to $cbs carry a request every half hour or so, so they neither time out nor keep a connection open.
        # The service's documentation speaks of links to entities only and does not say whether it detaches these.
        self.to_entity = not NodeAddress.of(link).is_cbs

    def credit_changed(self) -> bool:
        """Return whether messages were sent on the link, or credit was given, since the last call."""
        before, self.credit = self.credit, proton.credit(self.link._impl)  # noqa: SLF001 - the C object
        return before != self.credit


class IdleMonitor:
    """Closes idle links, and connections that do not open or have no link.

    :param connection: the connection.
    :param timeouts: the timeouts.
    :ivar active_links: the links that were active since the last check.
    """

    def __init__(self, connection: MonitoredConnection, *, timeouts: ClientTimeouts) -> None:
        self.active_links: set[proton.Handle] = set()
        # A weak reference, so that a closed connection is freed at once rather than by the garbage collector.
        self._connection: MonitoredConnection = proxy(connection)
        self._timeouts = timeouts
        self._loop = asyncio.get_running_loop()
        self._links: dict[proton.Handle, _LinkActivity] = {}
        self._unlinked_since = 0.0
        self._timer: asyncio.TimerHandle | None = None
        limits = [each for each in (timeouts.link_idle_seconds, timeouts.unlinked_seconds) if each is not None]
        self._period = min(limits) / _CHECKS_PER_TIMEOUT if len(limits) > 0 else None

    def start(self) -> None:
        """Wait for the client to open the connection."""
        if self._timeouts.opening_seconds is not None:
            self._timer = self._loop.call_later(self._timeouts.opening_seconds, self._drop_unopened)

    def connection_opened(self) -> None:
        """Start to check for idleness: the connection is open."""
        self.stop()
        self._unlinked_since = self._loop.time()
        self._schedule_check()

    def add_link(self, handle: proton.Handle, link: Link) -> None:
        """Register a link."""
        if self._period is not None:
            self._links[handle] = _LinkActivity(link, now=self._loop.time())

    def remove_link(self, handle: proton.Handle) -> None:
        """Forget a link."""
        activity = self._links.pop(handle, None)
        if activity is not None and activity.to_entity:
            self._unlinked_since = self._loop.time()

    def stop(self) -> None:
        """Cancel all timeouts."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _drop_unopened(self) -> None:
        _log.info("a connection was not opened in %g s and was dropped", self._timeouts.opening_seconds)
        self._connection.abort()

    def _schedule_check(self) -> None:
        if self._period is not None:
            self._timer = self._loop.call_later(self._period, self._check)

    def _check(self) -> None:
        now = self._loop.time()
        self._schedule_check()
        self._check_links(now, frozen=self._connection.frozen)
        self.active_links.clear()
        limit = self._timeouts.unlinked_seconds
        if self._connection.frozen or any(activity.to_entity for activity in self._links.values()):
            self._unlinked_since = now
        elif limit is not None and now - self._unlinked_since >= limit:
            self.stop()
            error = ConnectionIdle(f"the connection had no link for {limit:g} s and is closed")
            self._connection.close_with_error(error)

    def _check_links(self, now: float, *, frozen: bool) -> None:
        limit = self._timeouts.link_idle_seconds
        for handle, activity in tuple(self._links.items()):
            if activity.credit_changed() or handle in self.active_links or frozen:
                activity.last_active = now
            elif activity.to_entity and limit is not None and now - activity.last_active >= limit:
                error = LinkIdle(f"the link {activity.link.name!r} was idle for {limit:g} s and is detached")
                self._connection.detach(activity.link, error=error)
