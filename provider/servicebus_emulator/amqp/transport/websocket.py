"""AMQP over WebSocket: the server side of RFC 6455, presented to AMQP as a byte stream.

The OASIS "AMQP WebSocket Binding 1.0" (committee draft) requires binary messages under the subprotocol ``amqp``;
Service Bus calls it ``AMQPWSB10``. Payload bytes are forwarded as they arrive, so the length that a client announces
for a frame or message costs no memory. wsproto frames the messages. The handshake is read here, because wsproto's
discards bytes that follow the request and answers 400 where RFC 9110, section 15.5.22, asks for 426.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, cast

from wsproto.connection import Connection, ConnectionState, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Event, Ping, TextMessage
from wsproto.frame_protocol import CloseReason
from wsproto.utilities import generate_accept_token

from servicebus_emulator.amqp.transport.newcomers import ClientProtocol
from servicebus_emulator.engine.model.errors import BrokerError
from servicebus_emulator.security.settings import is_foreign_page, is_loopback

if TYPE_CHECKING:
    from servicebus_emulator.amqp.transport.protocol_detection import ConnectionCounts

MAX_REQUEST_BYTES: Final = 16 * 1024
_SUBPROTOCOLS: Final = ("AMQPWSB10", "amqp")
# aiohttp clients reject messages over 4 MB by default.
_MAX_MESSAGE_BYTES: Final = 64 * 1024

_log = logging.getLogger(__name__)


class WebSocketConnection(ClientProtocol):
    """Serves one client that requests a WebSocket; the first bytes that it is given hold the whole head of a request.

    :param make_protocol: returns the protocol to run inside the WebSocket.
    :param counts: the port's connection counts.
    :param well_known: whether anybody can log in: then no page of another host may, in a browser on this machine.
    """

    def __init__(
        self, make_protocol: Callable[[], ClientProtocol], *, counts: ConnectionCounts, well_known: bool
    ) -> None:
        self._make_protocol = make_protocol
        self._counts = counts
        self._well_known = well_known
        self._websocket: Connection | None = None
        self._inner: ClientProtocol | None = None
        self._closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the request."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Answer the request, whose head comes at once, then forward the payload of data frames."""
        if self._closed:
            return
        if self._websocket is None:
            self._websocket = self._accept_request(data)
        else:
            self._websocket.receive_data(data)
        if self._websocket is not None:
            for event in self._websocket.events():
                self._handle(event, websocket=self._websocket)

    def eof_received(self) -> bool:
        """Close the connection: nothing else can arrive on it."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Forward to the inner protocol."""
        self._closed = True
        if self._inner is not None:
            self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        """Forward to the inner protocol."""
        if self._inner is not None:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        """Forward to the inner protocol."""
        if self._inner is not None:
            self._inner.resume_writing()

    @property
    def logged_in(self) -> bool:
        """Whether the client has logged in, or need not."""
        return self._inner is not None and self._inner.logged_in

    def close_with_error(self, error: BrokerError) -> None:
        """Forward to the inner protocol."""
        if self._inner is not None:
            self._inner.close_with_error(error)

    def send(self, data: bytes) -> None:
        """Send bytes as binary messages."""
        if self._websocket is not None and not self._closed:
            for start in range(0, len(data), _MAX_MESSAGE_BYTES):
                chunk = data[start : start + _MAX_MESSAGE_BYTES]
                self._transport.write(self._websocket.send(BytesMessage(data=chunk)))

    def close(self, code: int = CloseReason.NORMAL_CLOSURE) -> None:
        """Send a close frame with a status code, then close the connection."""
        if not self._closed and self._websocket is not None:
            self._transport.write(self._websocket.send(CloseConnection(code=code)))
        self._closed = True
        self._transport.close()

    def _accept_request(self, request: bytes) -> Connection | None:
        head, end, following = request.partition(b"\r\n\r\n")
        if len(head) > MAX_REQUEST_BYTES:
            self._reject(b"431 Request Header Fields Too Large")
            return None
        if len(end) == 0:
            # Lines that end with LF alone: waiting for more would have no limit.
            self._reject(b"400 Bad Request")
            return None
        fields = _header_fields(head)
        key = fields.get(b"sec-websocket-key", b"")
        offered = {each.strip() for each in fields.get(b"sec-websocket-protocol", b"").decode("latin-1").split(",")}
        subprotocol = next((each for each in _SUBPROTOCOLS if each in offered), None)
        if fields.get(b"upgrade", b"").lower() != b"websocket" or len(key) == 0:
            self._reject(b"426 Upgrade Required", field=b"Upgrade: websocket\r\n")
            return None
        if subprotocol is None:
            self._reject(b"400 Bad Request")
            return None
        if self._is_foreign_page(fields):
            self._reject(b"403 Forbidden")
            return None
        self._transport.write(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: " + generate_accept_token(key) + b"\r\n"
            b"Sec-WebSocket-Protocol: " + subprotocol.encode() + b"\r\n\r\n"
        )
        # The inner protocol may write as soon as it is connected.
        self._websocket = Connection(ConnectionType.SERVER, trailing_data=following)
        self._inner = self._make_protocol()
        self._inner.connection_made(_InnerTransport(self, outer=self._transport))
        return self._websocket

    def _is_foreign_page(self, fields: dict[bytes, bytes]) -> bool:
        # Browsers let every page open a WebSocket to every host, and name the page's own in Origin (RFC 6454).
        origin, host = (fields.get(name, b"").decode("latin-1") for name in (b"origin", b"host"))
        peer = self._transport.get_extra_info("peername")
        here = peer is not None and is_loopback(peer[0])
        return self._well_known and here and b"origin" in fields and is_foreign_page(origin, host=host)

    def _reject(self, status: bytes, *, field: bytes = b"") -> None:
        self._counts.unrecognised += 1
        _log.info("a client that asked for a WebSocket was refused: %s", status.decode())
        end = b"Connection: close\r\nContent-Length: 0\r\n\r\n"
        self._transport.write(b"HTTP/1.1 " + status + b"\r\n" + field + end)
        self.close()

    def _handle(self, event: Event, *, websocket: Connection) -> None:
        if self._closed:
            return
        match event:
            case BytesMessage():
                if self._inner is not None:
                    self._inner.data_received(bytes(event.data))
            case Ping():
                # Not each ping must be answered (RFC 6455, section 5.5.3): none of a client that reads nothing.
                if self._transport.get_write_buffer_size() <= _MAX_MESSAGE_BYTES:
                    self._transport.write(websocket.send(event.response()))
            case TextMessage():
                self._drop(CloseReason.UNSUPPORTED_DATA)
            case CloseConnection() if websocket.state is ConnectionState.OPEN:
                # wsproto reports a malformed frame as a close with its own reason, without changing state.
                self._drop(event.code)
            case CloseConnection():
                self.close()
            case _:
                pass

    def _drop(self, code: int) -> None:
        self._counts.unrecognised += 1
        _log.info("a WebSocket was closed with status %d because of the frames its client sent", code)
        self.close(code)


class _InnerTransport(asyncio.Transport):
    """The transport of the protocol inside a WebSocket."""

    def __init__(self, connection: WebSocketConnection, *, outer: asyncio.Transport) -> None:
        super().__init__()
        self._connection = connection
        self._outer = outer

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._outer.get_extra_info(name, default)

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        self._connection.send(bytes(data))

    def close(self) -> None:
        self._connection.close()

    def abort(self) -> None:
        self._outer.abort()

    def is_closing(self) -> bool:
        return self._outer.is_closing()

    def pause_reading(self) -> None:
        self._outer.pause_reading()

    def resume_reading(self) -> None:
        self._outer.resume_reading()

    def get_write_buffer_size(self) -> int:
        return self._outer.get_write_buffer_size()


def _header_fields(head: bytes) -> dict[bytes, bytes]:
    fields: dict[bytes, list[bytes]] = {}
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        # Fields of one name are a list (RFC 9110, section 5.3), which names no host.
        fields.setdefault(name.strip().lower(), []).append(value.strip())
    return {name: b", ".join(values) for name, values in fields.items()}
