"""Somebody who has connected and is not yet understood: in clear or under TLS, and speaking what.

A client begins to speak first, in each of the protocols that are served. The first byte is looked at and
left where it is: a TLS hello (RFC 8446, section 5.1: content type 22) is answered by TLS, and what is said
within is looked at again. Until then a client costs a socket and a timer, no task.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from servicebus_emulator.amqp.packets import lose_packets

if TYPE_CHECKING:
    from servicebus_emulator.faults import Pace

__all__ = ["Arrival", "ArrivalCounts", "Door", "Watch", "reset_socket"]

_TLS_HANDSHAKE: Final = b"\x16"
_TLS_GOODBYE_SECONDS: Final = 2.0
_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class ArrivalCounts:
    """What became of those who connected.

    :ivar accepted: all of them.
    :ivar encrypted: those who asked for TLS.
    :ivar failed_handshakes: those of them with whom it came to nothing.
    :ivar amqp: those who spoke AMQP at once.
    :ivar websocket: those who asked for AMQP over WebSocket.
    :ivar http: those who sent another HTTP request.
    :ivar silent: those who said nothing in time, or left before they had.
    :ivar rubbish: those who spoke what is not served.
    """

    accepted: int = 0
    encrypted: int = 0
    failed_handshakes: int = 0
    amqp: int = 0
    websocket: int = 0
    http: int = 0
    silent: int = 0
    rubbish: int = 0


class Watch(Protocol):
    """What breaks connections on purpose."""

    def arrived(self, arrival: Arrival) -> None:
        """Note who connected; the connection may be broken already when this returns."""
        ...

    def left(self, arrival: Arrival) -> None:
        """Forget an arrival."""
        ...


class Door:
    """What becomes of those who connect to a port.

    :param make: makes the protocol of a connection that began to speak.
    :param tls: returns what a TLS server is made of; None = there is no TLS.
    :param seconds: how long a client may take to begin to speak, and to complete a TLS handshake.
    :param watch: the namespace's faults; None = the port has none.
    :ivar counts: what became of them.
    """

    def __init__(
        self,
        *,
        make: Callable[[], asyncio.Protocol],
        tls: Callable[[], ssl.SSLContext] | None,
        seconds: float,
        counts: ArrivalCounts,
        watch: Watch | None = None,
    ) -> None:
        self.make = make
        self.tls = tls
        self.seconds = seconds
        self.watch = watch
        self.counts = counts
        self.waiting: set[Arrival] = set()
        self.entering: set[asyncio.Task[None]] = set()

    def close(self) -> None:
        """Drop who has not yet been let in."""
        for arrival in tuple(self.waiting):
            arrival.close()
        for task in tuple(self.entering):
            task.cancel()


class Arrival:
    """An accepted socket from which nothing was read yet.

    :param plain: the socket.
    :param door: what becomes of it.
    """

    def __init__(self, plain: socket.socket, *, door: Door) -> None:
        self._plain = plain
        self._door = door
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._frozen = False
        self._over = False

    def begin(self) -> None:
        """Wait for the first byte."""
        self._plain.settimeout(0)
        self._door.counts.accepted += 1
        self._door.waiting.add(self)
        if self._door.watch is not None:
            self._door.watch.arrived(self)
        self._listen()

    def close(self) -> None:
        """Hang up."""
        if not self._over:
            self._leave()
            self._plain.close()

    # The faults' side

    def freeze(self) -> None:
        """Say nothing and hear nothing."""
        self._frozen = True
        self._deafen()

    def thaw(self) -> None:
        """Listen again."""
        self._frozen = False
        self._listen()

    def lose_packets(self, *, lost: bool) -> None:
        """Let nothing that the client sends arrive, or let it arrive again."""
        if not self._over:
            lose_packets(self._plain, lost=lost)

    def set_pace(self, pace: Pace | None) -> None:
        """Nothing: the pace is that of the connection, once there is one."""

    def reset(self) -> None:
        """Hang up: the client sees the connection reset."""
        reset_socket(self._plain)
        self.close()

    # Until the first byte

    def _listen(self) -> None:
        if not self._over and not self._frozen:
            self._loop.add_reader(self._plain, self._look)
            self._timer = self._loop.call_later(self._door.seconds, self._give_up)

    def _deafen(self) -> None:
        self._loop.remove_reader(self._plain)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _leave(self) -> None:
        self._over = True
        self._deafen()
        self._door.waiting.discard(self)
        if self._door.watch is not None:
            self._door.watch.left(self)

    def _give_up(self) -> None:
        self._door.counts.silent += 1
        _log.info("a client said nothing for %g s and was dropped", self._door.seconds)
        self.close()

    def _look(self) -> None:
        try:
            first = self._plain.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            first = b""
        if len(first) == 0:
            self._door.counts.silent += 1
            self.close()
            return
        self._leave()
        task = self._loop.create_task(self._enter(encrypted=first == _TLS_HANDSHAKE))
        self._door.entering.add(task)
        task.add_done_callback(self._door.entering.discard)

    async def _enter(self, *, encrypted: bool) -> None:
        door = self._door
        try:
            if encrypted and door.tls is not None:
                door.counts.encrypted += 1
                await self._loop.connect_accepted_socket(
                    door.make,
                    self._plain,
                    ssl=door.tls(),
                    ssl_handshake_timeout=door.seconds,
                    ssl_shutdown_timeout=_TLS_GOODBYE_SECONDS,
                )
            else:
                await self._loop.connect_accepted_socket(door.make, self._plain)
        except OSError as error:
            # ssl.SSLError is one, too.
            door.counts.failed_handshakes += encrypted
            _log.info("a connection failed before anything was said on it: %s", error)
            self._plain.close()
        except asyncio.CancelledError:
            self._plain.close()
            raise


def reset_socket(plain: socket.socket) -> None:
    """Have the peer see a reset once the socket is closed."""
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
