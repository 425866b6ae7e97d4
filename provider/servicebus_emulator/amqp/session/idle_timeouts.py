"""Timeouts of one connection: until it is open, for idle links, without links, and without any frame."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Final, Protocol
from weakref import proxy

from servicebus_emulator.amqp.codec import proton_fast_path as proton
from servicebus_emulator.amqp.session.node_address import NodeAddress
from servicebus_emulator.engine.model.errors import BrokerError

if TYPE_CHECKING:
    from proton import Link

    from servicebus_emulator.amqp.transport.timeouts import ClientTimeouts

_CHECKS_PER_TIMEOUT: Final = 4

_log = logging.getLogger(__name__)


class LinkIdle(BrokerError):  # noqa: N818 - broker errors are named after their condition
    """The link was idle for too long."""

    condition = "amqp:link:detach-forced"


class ConnectionIdle(BrokerError):  # noqa: N818 - broker errors are named after their condition
    """The connection had no link, or was silent, for too long."""

    condition = "amqp:connection:forced"


class MonitoredConnection(Protocol):
    """A connection, as its monitor uses it."""

    @property
    def frozen(self) -> bool:
        """Whether a fault suspends reading and writing."""

    @property
    def container(self) -> str:
        """The name of this side of the connection."""

    @property
    def frames_received(self) -> int:
        """How many frames have arrived."""

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
    """Closes idle links, and connections that do not open, have no link or are silent.

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
        self._silent_since = 0.0
        self._frames = 0
        self._timer: asyncio.TimerHandle | None = None
        all_limits = (timeouts.link_idle_seconds, timeouts.unlinked_seconds, timeouts.silence_seconds)
        limits = [each for each in all_limits if each is not None]
        self._period = min(limits) / _CHECKS_PER_TIMEOUT if len(limits) > 0 else None

    def start(self) -> None:
        """Wait for the client to open the connection."""
        if self._timeouts.opening_seconds is not None:
            self._timer = self._loop.call_later(self._timeouts.opening_seconds, self._drop_unopened)

    def connection_opened(self) -> None:
        """Start to check for idleness: the connection is open."""
        self.stop()
        self._unlinked_since = self._silent_since = self._loop.time()
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
        now, connection = self._loop.time(), self._connection
        self._schedule_check()
        self._check_links(now, frozen=connection.frozen)
        self.active_links.clear()
        if connection.frozen or any(activity.to_entity for activity in self._links.values()):
            self._unlinked_since = now
        if connection.frozen or connection.frames_received != self._frames:
            self._frames, self._silent_since = connection.frames_received, now
        unlinked, silence = self._timeouts.unlinked_seconds, self._timeouts.silence_seconds
        if silence is not None and now - self._silent_since >= silence:
            self._close(
                f"The connection was inactive for more than the allowed {silence * 1000:.0f} milliseconds and is "
                f"closed by container '{connection.container}'."
            )
        elif unlinked is not None and now - self._unlinked_since >= unlinked:
            self._close(
                f"The connection was closed by container '{connection.container}' because it did not have any active "
                f"links in the past {unlinked * 1000:.0f} milliseconds."
            )

    def _close(self, text: str) -> None:
        self.stop()
        self._connection.close_with_error(ConnectionIdle(text))

    def _check_links(self, now: float, *, frozen: bool) -> None:
        limit = self._timeouts.link_idle_seconds
        for handle, activity in tuple(self._links.items()):
            if activity.credit_changed() or handle in self.active_links or frozen:
                activity.last_active = now
            elif activity.to_entity and limit is not None and now - activity.last_active >= limit:
                role = "publisher" if activity.link.is_receiver else "consumer"
                error = LinkIdle(
                    f"The link '{activity.link.name}' is force detached. Code: {role}. Details: IdleTimerExpired: "
                    f"Idle timeout: {timedelta(seconds=limit)}."
                )
                self._connection.detach(activity.link, error=error)
