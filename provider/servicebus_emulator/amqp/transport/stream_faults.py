"""The byte stream of one connection, with the faults that delay, freeze or break it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, cast

from servicebus_emulator.amqp.transport.packet_loss import lose_packets
from servicebus_emulator.amqp.transport.port_handler import reset_on_close
from servicebus_emulator.faults import Pace

if TYPE_CHECKING:
    import socket

_CLOSE_SECONDS: Final = 10.0
_MAX_UNREAD_BYTES: Final = 16 * 1024 * 1024


def departure_time(*, now: float, last: float, size: int, pace: Pace) -> float:
    """Return when the last of some bytes is sent or received, in seconds.

    :param now: when they are ready to be sent.
    :param last: the departure time of the bytes before them.
    :param size: their number.
    """
    ready = now + pace.delay
    return ready if pace.bytes_per_second is None else max(ready, last) + size / pace.bytes_per_second


class FaultableStream:
    """Writes to a transport and passes on what is read from it.

    :param transport: the transport.
    :param on_data: receives the bytes that are read.
    :ivar frozen: whether reading and writing are suspended; the kernel still acknowledges what arrives.
    """

    def __init__(self, transport: asyncio.Transport, *, on_data: Callable[[bytes], None]) -> None:
        self.frozen = False
        self._transport = transport
        self._on_data = on_data
        self._loop = asyncio.get_running_loop()
        self._pace: Pace | None = None
        self._outgoing: deque[tuple[float, bytes]] = deque()
        self._incoming: bytes | None = None
        self._closing = False
        self._backlogged = False
        self._last_departure = 0.0
        self._timers: dict[Callable[[], None], asyncio.TimerHandle] = {}

    def write(self, data: bytes) -> None:
        """Send bytes, delayed as the pace demands; discard them when the connection is closing."""
        if self._transport.is_closing():
            return
        if self._pace is None and not self.frozen and len(self._outgoing) == 0:
            self._transport.write(data)
            return
        now = self._loop.time()
        pace = self._pace
        due = now if pace is None else departure_time(now=now, last=self._last_departure, size=len(data), pace=pace)
        self._last_departure = max(due, self._last_departure)
        self._outgoing.append((self._last_departure, data))
        if len(self._outgoing) == 1:
            self._send_due()

    def receive(self, data: bytes) -> None:
        """Pass on bytes that were read, delayed as the pace demands."""
        if self._incoming is not None:
            # Some transports deliver what they had already read although reading is paused.
            self._incoming += data
            return
        if self.frozen:
            self._incoming = data
            return
        if self._pace is None or self._pace.bytes_per_second is None:
            self._on_data(data)
            return
        self._incoming = data
        self._transport.pause_reading()
        self._schedule(self._loop.time() + len(data) / self._pace.bytes_per_second, self._pass_on_incoming)

    def pause_reading_if_backlogged(self) -> None:
        """Stop reading from a peer that does not read its replies, which would otherwise accumulate without limit.

        Below the limit, the peer may still be busy writing.
        """
        if not self._backlogged and self._transport.get_write_buffer_size() > _MAX_UNREAD_BYTES:
            self._backlogged = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read again: the peer has read its replies."""
        if self._backlogged:
            self._backlogged = False
            if self._incoming is None:
                self._resume_transport()

    def set_pace(self, pace: Pace | None) -> None:
        """Set delay and bandwidth; None removes both and sends at once what was delayed."""
        self._pace = pace
        if pace is None:
            self._last_departure = 0.0
            self._outgoing = deque((self._last_departure, data) for _, data in self._outgoing)
            self._send_due()

    def freeze(self) -> None:
        """Suspend reading and writing."""
        self.frozen = True
        self._transport.pause_reading()

    def thaw(self) -> None:
        """Resume reading and writing."""
        self.frozen = False
        self._send_due()
        if self._incoming is None:
            self._resume_transport()
        else:
            self._pass_on_incoming()

    def close(self) -> None:
        """Close after what was written has been sent; a frozen connection closes without sending it."""
        self._closing = True
        if self.frozen or len(self._outgoing) == 0:
            self._close_transport()

    def lose_packets(self, *, lost: bool) -> None:
        """Start or stop dropping the packets that arrive."""
        lose_packets(self._transport.get_extra_info("socket"), lost=lost)

    def abort(self) -> None:
        """Close at once, discarding unsent bytes."""
        self._transport.abort()

    def reset(self) -> None:
        """Close with a TCP reset."""
        reset_on_close(cast("socket.socket", self._transport.get_extra_info("socket")))
        self._transport.abort()

    def stop(self) -> None:
        """Cancel what is scheduled: the connection is lost."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._outgoing.clear()

    def _send_due(self) -> None:
        # Together: a delay is to cost no more of the processor than a line does.
        now, due = self._loop.time(), list[bytes]()
        while not self.frozen and len(self._outgoing) > 0 and self._outgoing[0][0] <= now:
            due.append(self._outgoing.popleft()[1])
        if len(due) > 0:
            self._transport.write(b"".join(due))
        if not self.frozen and len(self._outgoing) > 0:
            self._schedule(self._outgoing[0][0], self._send_due)
        elif self._closing:
            self._close_transport()

    def _close_transport(self) -> None:
        # With a peer that does not read, a transport with unsent bytes never closes by itself.
        self._schedule(self._loop.time() + _CLOSE_SECONDS, self._transport.abort)
        self._transport.close()

    def _pass_on_incoming(self) -> None:
        if self.frozen or self._incoming is None:
            return
        data, self._incoming = self._incoming, None
        self._on_data(data)
        self._resume_transport()

    def _resume_transport(self) -> None:
        # The received bytes may have closed or frozen the connection.
        if not self.frozen and not self._backlogged and not self._transport.is_closing():
            self._transport.resume_reading()

    def _schedule(self, due: float, action: Callable[[], None]) -> None:
        pending = self._timers.get(action)
        if pending is not None:
            pending.cancel()
        self._timers[action] = self._loop.call_at(due, action)
