"""Detects the protocol of a connection from its first bytes, within a timeout, and passes the connection on."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, cast
from urllib.parse import unquote_to_bytes

from servicebus_emulator.amqp.transport.newcomers import SmallReads, StreamProtocol

_AMQP: Final = b"AMQP"
_AMQP_HEADER: Final = b"AMQP\x00\x01\x00\x00"
_REQUEST_LINE: Final = re.compile(rb"[A-Z]{1,16}(?: .*)?\Z", re.DOTALL)
_MAX_REQUEST_LINE: Final = 8190
_MAX_REQUEST_HEAD: Final = 64 * 1024
_HEAD_ENDS: Final = (b"\r\n\r\n", b"\n\n")
_WEBSOCKET_PATH: Final = b"/$servicebus/websocket"

# What one client can send at once makes the others wait.
_READ_BYTES: Final = 1024

_log = logging.getLogger(__name__)


class WireProtocol(Enum):
    """The protocols that a client can start with."""

    AMQP = auto()
    WEBSOCKET = auto()
    HTTP = auto()
    UNRECOGNISED = auto()


_NOT_HTTP: Final = frozenset({WireProtocol.AMQP, WireProtocol.UNRECOGNISED})


def detect_protocol(head: bytes) -> WireProtocol | None:
    """Return the protocol of a connection that starts with `head`; None = more bytes are needed.

    An AMQP client starts with the eight bytes of a protocol header (AMQP 1.0, section 2.2), an HTTP request with a
    method and a target (RFC 9112, section 3).
    """
    if head[:4] == _AMQP[: len(head)]:
        return WireProtocol.AMQP if len(head) >= len(_AMQP) else None
    line, ended, _ = head.partition(b"\n")
    if _REQUEST_LINE.match(line) is None or len(line) > _MAX_REQUEST_LINE:
        return WireProtocol.UNRECOGNISED
    if len(ended) == 0:
        return None
    method, _, target = line.partition(b" ")
    path = unquote_to_bytes(target.split(b" ")[0].split(b"?")[0]).lower()
    return WireProtocol.WEBSOCKET if method == b"GET" and path.rstrip(b"/") == _WEBSOCKET_PATH else WireProtocol.HTTP


@dataclass(slots=True)
class ConnectionCounts:
    """Counts of the connections to a port, by outcome of detection.

    :ivar accepted: all connections.
    :ivar encrypted: those that started TLS.
    :ivar failed_handshakes: those of them whose TLS handshake failed.
    :ivar amqp: those that started with AMQP.
    :ivar websocket: those that requested AMQP over WebSocket.
    :ivar http: those that sent another HTTP request.
    :ivar silent: those that sent too little in time, or closed before.
    :ivar unrecognised: those that sent anything else.
    """

    accepted: int = 0
    encrypted: int = 0
    failed_handshakes: int = 0
    amqp: int = 0
    websocket: int = 0
    http: int = 0
    silent: int = 0
    unrecognised: int = 0

    def add(self, protocol: WireProtocol) -> None:
        """Count a connection whose protocol was detected."""
        name = protocol.name.lower()
        setattr(self, name, getattr(self, name) + 1)


class HeadReader(SmallReads):
    """Collects the first bytes of a connection, within a timeout, until another protocol can take over.

    :param choose: returns the protocol to pass the connection to, given its first bytes; None = more are needed.
    :param timeout: seconds until the connection is dropped.
    :param counts: the port's connection counts.
    """

    def __init__(
        self, choose: Callable[[bytes], StreamProtocol | None], *, timeout: float, counts: ConnectionCounts
    ) -> None:
        super().__init__(_READ_BYTES)
        self._choose = choose
        self._timeout = timeout
        self._counts = counts
        self._head = b""
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the timeout."""
        self._transport = cast("asyncio.Transport", transport)
        self._timer = asyncio.get_running_loop().call_later(self._timeout, self._on_timeout)

    def data_received(self, data: bytes) -> None:
        """Collect bytes; pass the connection on once they suffice."""
        transport = self._transport
        if transport is None:
            return
        self._head += data
        protocol = self._choose(self._head)
        if protocol is not None:
            self._stop()
            transport.set_protocol(protocol)
            protocol.connection_made(transport)
            protocol.data_received(self._head)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the reason makes no difference
        """Count a connection that ended too early."""
        self._counts.silent += 1
        self._stop()

    def _stop(self) -> None:
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()

    def _on_timeout(self) -> None:
        if self._transport is not None:
            _log.info("a client sent too little for %g s and was dropped", self._timeout)
            self._transport.abort()


def protocol_detector(
    protocols: Mapping[WireProtocol, Callable[[], StreamProtocol]], *, timeout: float, counts: ConnectionCounts
) -> HeadReader:
    """Return a protocol that detects what a client speaks and passes the connection on.

    :param protocols: makes the protocol for each :class:`WireProtocol` but the unrecognised.
    """

    def choose(head: bytes) -> StreamProtocol | None:
        protocol = detect_protocol(head)
        if protocol is None:
            return None
        counts.add(protocol)
        return _Unrecognised() if protocol is WireProtocol.UNRECOGNISED else protocols[protocol]()

    return HeadReader(choose, timeout=timeout, counts=counts)


def request_head_reader(
    make_protocol: Callable[[], StreamProtocol],
    *,
    timeout: float,
    counts: ConnectionCounts,
    max_bytes: int = _MAX_REQUEST_HEAD,
) -> HeadReader:
    """Return a protocol that waits for the head of the first HTTP request, then passes the connection on.

    aiohttp limits the time for each later request by its keep-alive timeout, but not for the first.

    :param make_protocol: makes the HTTP protocol, which also refuses what is no request or has too long a head.
    :param max_bytes: the length after which the end of the head is no longer awaited.
    """

    def choose(head: bytes) -> StreamProtocol | None:
        complete = any(end in head for end in _HEAD_ENDS) or len(head) > max_bytes
        return make_protocol() if complete or detect_protocol(head) in _NOT_HTTP else None

    return HeadReader(choose, timeout=timeout, counts=counts)


class _Unrecognised(asyncio.Protocol):
    """Closes a connection with the answer of AMQP 1.0, section 2.2: the header of a supported protocol."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        _log.info("a client that sent neither AMQP nor HTTP was dropped")
        cast("asyncio.Transport", transport).write(_AMQP_HEADER)
        transport.close()
