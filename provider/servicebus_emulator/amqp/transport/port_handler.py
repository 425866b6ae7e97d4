"""What a listening port does with accepted connections, up to their first byte and an optional TLS handshake.

Clients of every supported protocol send first. The first byte is peeked at and left in the socket: that of a TLS
handshake record (RFC 8446, section 5.1: content type 22) starts TLS. Until it arrives, a client costs a socket and a
timer but no task.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from servicebus_emulator.amqp.transport.packet_loss import lose_packets

if TYPE_CHECKING:
    from servicebus_emulator.amqp.transport.newcomers import StreamProtocol
    from servicebus_emulator.amqp.transport.protocol_detection import ConnectionCounts
    from servicebus_emulator.faults import Pace

_TLS_HANDSHAKE: Final = b"\x16"
_TLS_SHUTDOWN_SECONDS: Final = 2.0

_log = logging.getLogger(__name__)


class ConnectionObserver(Protocol):
    """Receives every accepted connection: fault injection."""

    def accepted(self, connection: AcceptedSocket) -> None:
        """Register a connection; it may already be broken when this returns."""

    def remove_connection(self, connection: AcceptedSocket) -> None:
        """Forget a connection."""


class PortHandler:
    """What a listening port does with the connections it accepts.

    :param make_protocol: makes the protocol of a connection whose first byte, or TLS handshake, has arrived.
    :param tls: returns the TLS server context; None = TLS is not offered.
    :param timeout: seconds within which a client must send its first byte and complete a TLS handshake.
    :param counts: the port's connection counts.
    :param observer: receives each accepted connection; None = none.
    """

    def __init__(
        self,
        *,
        make_protocol: Callable[[], StreamProtocol],
        tls: Callable[[], ssl.SSLContext] | None,
        timeout: float,
        counts: ConnectionCounts,
        observer: ConnectionObserver | None = None,
    ) -> None:
        self.make_protocol = make_protocol
        self.tls = tls
        self.timeout = timeout
        self.observer = observer
        self.counts = counts
        self.waiting: set[AcceptedSocket] = set()
        self.handshakes: set[asyncio.Task[None]] = set()

    def close(self) -> None:
        """Drop the connections that have no protocol yet."""
        for connection in tuple(self.waiting):
            connection.close()
        for task in tuple(self.handshakes):
            task.cancel()


class AcceptedSocket:
    """An accepted socket from which nothing has been read.

    :param sock: the socket.
    :param handler: the handler of its port.
    """

    def __init__(self, sock: socket.socket, *, handler: PortHandler) -> None:
        self._socket = sock
        self._handler = handler
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._frozen = False
        self._done = False

    def start(self) -> None:
        """Wait for the first byte."""
        self._socket.settimeout(0)
        self._handler.counts.accepted += 1
        self._handler.waiting.add(self)
        if self._handler.observer is not None:
            self._handler.observer.accepted(self)
        self._start_waiting()

    def close(self) -> None:
        """Close the socket, unless it was passed on."""
        if not self._done:
            self._finish()
            self._socket.close()

    # Fault injection (see `FaultTarget`)

    def freeze(self) -> None:
        """Stop reading and stop the timeout."""
        self._frozen = True
        self._stop_waiting()

    def thaw(self) -> None:
        """Wait for the first byte again."""
        self._frozen = False
        self._start_waiting()

    def lose_packets(self, *, lost: bool) -> None:
        """Drop incoming packets, or accept them again."""
        if not self._done:
            lose_packets(self._socket, lost=lost)

    def set_pace(self, pace: Pace | None) -> None:
        """Do nothing: nothing is read or written yet."""

    def reset(self) -> None:
        """Close with a TCP reset."""
        reset_on_close(self._socket)
        self.close()

    def _start_waiting(self) -> None:
        if not self._done and not self._frozen:
            self._loop.add_reader(self._socket, self._on_readable)
            self._timer = self._loop.call_later(self._handler.timeout, self._on_timeout)

    def _stop_waiting(self) -> None:
        self._loop.remove_reader(self._socket)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _finish(self) -> None:
        self._done = True
        self._stop_waiting()
        self._handler.waiting.discard(self)
        if self._handler.observer is not None:
            self._handler.observer.remove_connection(self)

    def _on_timeout(self) -> None:
        self._handler.counts.silent += 1
        _log.info("a client sent nothing for %g s and was dropped", self._handler.timeout)
        self.close()

    def _on_readable(self) -> None:
        try:
            first = self._socket.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            first = b""
        if len(first) == 0:
            self._handler.counts.silent += 1
            self.close()
            return
        self._finish()
        task = self._loop.create_task(self._connect_protocol(encrypted=first == _TLS_HANDSHAKE))
        self._handler.handshakes.add(task)
        task.add_done_callback(self._handler.handshakes.discard)

    async def _connect_protocol(self, *, encrypted: bool) -> None:
        handler = self._handler
        try:
            if encrypted and handler.tls is not None:
                handler.counts.encrypted += 1
                await self._loop.connect_accepted_socket(
                    handler.make_protocol,
                    self._socket,
                    ssl=handler.tls(),
                    ssl_handshake_timeout=handler.timeout,
                    ssl_shutdown_timeout=_TLS_SHUTDOWN_SECONDS,
                )
            else:
                await self._loop.connect_accepted_socket(handler.make_protocol, self._socket)
        except OSError as error:
            # Includes ssl.SSLError.
            handler.counts.failed_handshakes += encrypted
            _log.info("a connection failed before its protocol was detected: %s", error)
            self._socket.close()
        except asyncio.CancelledError:
            self._socket.close()
            raise


def reset_on_close(sock: socket.socket) -> None:
    """Make the kernel send a TCP reset when the socket is closed."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
