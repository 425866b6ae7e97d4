"""The bytes of one connection on their way: at once, or as a fault has them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, cast

from servicebus_emulator.amqp.arrival import reset_socket
from servicebus_emulator.amqp.packets import lose_packets
from servicebus_emulator.faults import Pace

if TYPE_CHECKING:
    import socket

__all__ = ["Wire", "departure"]

_GOODBYE_SECONDS: Final = 10.0
_UNREAD_ANSWERS: Final = 16 * 1024 * 1024


def departure(*, now: float, last: float, size: int, pace: Pace) -> float:
    """Return when bytes leave or arrive in full: not before those ahead of them, and as fast as the pace allows.

    :param now: when they are ready, in seconds.
    :param last: when the bytes ahead of them do.
    :param size: how many they are.
    """
    ready = now + pace.delay
    return ready if pace.bytes_per_second is None else max(ready, last) + size / pace.bytes_per_second


class Wire:
    """Writes to a socket and reads from it.

    :param transport: the socket.
    :param feed: takes what was read.
    :ivar frozen: whether nothing is said and nothing heard; the kernel goes on acknowledging what arrives.
    """

    def __init__(self, transport: asyncio.Transport, *, feed: Callable[[bytes], None]) -> None:
        self.frozen = False
        self._transport = transport
        self._feed = feed
        self._loop = asyncio.get_running_loop()
        self._pace: Pace | None = None
        self._leaving: deque[tuple[float, bytes]] = deque()
        self._arriving: bytes | None = None
        self._closing = False
        self._deaf = False
        self._last = 0.0
        self._timers: dict[Callable[[], None], asyncio.TimerHandle] = {}

    def write(self, data: bytes) -> None:
        """Send bytes, now or when they are due; none once the peer is gone."""
        if self._transport.is_closing():
            return
        if self._pace is None and not self.frozen and len(self._leaving) == 0:
            self._transport.write(data)
            return
        now = self._loop.time()
        pace = self._pace
        due = now if pace is None else departure(now=now, last=self._last, size=len(data), pace=pace)
        self._last = max(due, self._last)
        self._leaving.append((self._last, data))
        self._pump()

    def arrived(self, data: bytes) -> None:
        """Take in bytes, now or when they would have arrived."""
        if self._arriving is not None:
            # Some transports hand on what they had read already although they are paused.
            self._arriving += data
            return
        if self.frozen:
            self._arriving = data
            return
        if self._pace is None or self._pace.bytes_per_second is None:
            self._feed(data)
            return
        self._arriving = data
        self._transport.pause_reading()
        self._later(self._loop.time() + len(data) / self._pace.bytes_per_second, self._take_in)

    def hear_if_heard(self) -> None:
        """Read no more from a peer that reads nothing of what it is told, until it does.

        Otherwise its answers would pile up here without end. Below the limit it may still be busy writing.
        """
        if not self._deaf and self._transport.get_write_buffer_size() > _UNREAD_ANSWERS:
            self._deaf = True
            self._transport.pause_reading()

    def heard(self) -> None:
        """Note that the peer has read what it was told."""
        if self._deaf:
            self._deaf = False
            if self._arriving is None:
                self._go_on_reading()

    def set_pace(self, pace: Pace | None) -> None:
        """Let bytes go at another pace. What is on its way keeps its time; without any pace it arrives at once."""
        self._pace = pace
        if pace is None:
            self._last = 0.0
            self._leaving = deque((self._last, data) for _, data in self._leaving)
            self._pump()

    def freeze(self) -> None:
        """Say nothing and hear nothing from now on."""
        self.frozen = True
        self._transport.pause_reading()

    def thaw(self) -> None:
        """Go on where it was frozen."""
        self.frozen = False
        self._pump()
        if self._arriving is None:
            self._go_on_reading()
        else:
            self._take_in()

    def close(self) -> None:
        """Close once what was written has left; a frozen connection says nothing any more."""
        self._closing = True
        if self.frozen or len(self._leaving) == 0:
            self._close_now()

    def lose_packets(self, *, lost: bool) -> None:
        """Have the kernel drop what arrives, or take it in again."""
        lose_packets(self._transport.get_extra_info("socket"), lost=lost)

    def abort(self) -> None:
        """Close and drop what has not left."""
        self._transport.abort()

    def reset(self) -> None:
        """Break the connection: the peer sees it reset."""
        reset_socket(cast("socket.socket", self._transport.get_extra_info("socket")))
        self._transport.abort()

    def stop(self) -> None:
        """Let go of what waits: the connection is gone."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._leaving.clear()

    def _pump(self) -> None:
        now = self._loop.time()
        while not self.frozen and len(self._leaving) > 0:
            due, data = self._leaving[0]
            if due > now:
                self._later(due, self._pump)
                return
            self._leaving.popleft()
            self._transport.write(data)
        if self._closing:
            self._close_now()

    def _close_now(self) -> None:
        # A peer that no longer reads would keep what is left for it, and the socket, for ever.
        self._later(self._loop.time() + _GOODBYE_SECONDS, self._transport.abort)
        self._transport.close()

    def _take_in(self) -> None:
        if self.frozen or self._arriving is None:
            return
        data, self._arriving = self._arriving, None
        self._feed(data)
        self._go_on_reading()

    def _go_on_reading(self) -> None:
        # What was fed may have closed or frozen the connection.
        if not self.frozen and not self._deaf and not self._transport.is_closing():
            self._transport.resume_reading()

    def _later(self, due: float, action: Callable[[], None]) -> None:
        waiting = self._timers.get(action)
        if waiting is not None:
            waiting.cancel()
        self._timers[action] = self._loop.call_at(due, action)
