"""AMQP over WebSocket: the server's side of RFC 6455, for a stream of bytes.

AMQP's binding to WebSocket (OASIS, "AMQP WebSocket Binding 1.0", committee draft) asks for binary
messages under the subprotocol ``amqp``; Service Bus names it ``AMQPWSB10``. The bytes of AMQP are a stream to
their reader: payloads are handed on as they arrive, so that no length a client announces costs memory.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from base64 import b64encode
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    from servicebus_emulator.amqp.arrival import ArrivalCounts

__all__ = ["MOST_OF_A_REQUEST", "WebSocketConnection", "accept_key", "unmasked"]

_GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_SUBPROTOCOLS: Final = ("AMQPWSB10", "amqp")
MOST_OF_A_REQUEST: Final = 16 * 1024
# Clients of aiohttp take no message over 4 MB unless told to.
_CHUNK: Final = 64 * 1024

_FIN: Final = 0x80
_MASKED: Final = 0x80
_CONTINUATION, _BINARY, _CLOSE, _PING, _PONG = 0x0, 0x2, 0x8, 0x9, 0xA
_DATA: Final = frozenset({_CONTINUATION, _BINARY})
_CONTROL: Final = frozenset({_CLOSE, _PING, _PONG})
_LENGTH_OF_2, _LENGTH_OF_8 = 126, 127
_KEY_SIZE: Final = 4

_NORMAL, _PROTOCOL_ERROR, _NOT_ACCEPTED = 1000, 1002, 1003

_log = logging.getLogger(__name__)


def accept_key(key: bytes) -> bytes:
    """Return the answer to a client's ``Sec-WebSocket-Key`` (RFC 6455, section 4.2.2)."""
    return b64encode(hashlib.sha1(key + _GUID, usedforsecurity=False).digest())


def unmasked(data: bytes, *, key: bytes, offset: int) -> bytes:
    """Take a client's mask off a part of a payload that begins at `offset` (RFC 6455, section 5.3)."""
    size = len(data)
    turned = key[offset % _KEY_SIZE :] + key[: offset % _KEY_SIZE]
    mask = (turned * (size // _KEY_SIZE + 1))[:size]
    return (int.from_bytes(data, "little") ^ int.from_bytes(mask, "little")).to_bytes(size, "little")


class WebSocketConnection(asyncio.Protocol):
    """Serves one client that asks for a WebSocket.

    :param make: makes the protocol that is spoken inside.
    :param counts: what became of clients.
    """

    def __init__(self, make: Callable[[], asyncio.Protocol], *, counts: ArrivalCounts) -> None:
        self._make = make
        self._counts = counts
        self._inner: asyncio.Protocol | None = None
        self._buffer = bytearray()
        self._opcode = 0
        self._left = 0
        self._offset = 0
        self._key = b""
        self._closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the request."""
        self._outer = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Answer the request, then hand on what the frames hold."""
        self._buffer += data
        if self._inner is None and not self._open():
            return
        while not self._closed and self._take():
            pass

    def eof_received(self) -> bool:
        """Close: a client that sends no more is gone."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell what is spoken inside."""
        self._closed = True
        if self._inner is not None:
            self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        """Tell what is spoken inside."""
        if self._inner is not None:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        """Tell what is spoken inside."""
        if self._inner is not None:
            self._inner.resume_writing()

    # What is spoken inside

    def send(self, data: bytes) -> None:
        """Send bytes."""
        for start in range(0, len(data), _CHUNK):
            self._write(_BINARY, data[start : start + _CHUNK])

    def close(self, code: int = _NORMAL) -> None:
        """Say goodbye and close."""
        if not self._closed:
            self._closed = True
            self._write(_CLOSE, code.to_bytes(2, "big"))
        self._outer.close()

    def _write(self, opcode: int, payload: bytes) -> None:
        size = len(payload)
        if size < _LENGTH_OF_2:
            head = bytes((_FIN | opcode, size))
        elif size <= 0xFFFF:  # noqa: PLR2004 - what two bytes hold
            head = bytes((_FIN | opcode, _LENGTH_OF_2)) + size.to_bytes(2, "big")
        else:
            head = bytes((_FIN | opcode, _LENGTH_OF_8)) + size.to_bytes(8, "big")
        self._outer.write(head + payload)

    # The request

    def _open(self) -> bool:
        head, ended, rest = bytes(self._buffer).partition(b"\r\n\r\n")
        if len(ended) == 0:
            if len(head) > MOST_OF_A_REQUEST:
                self._refuse(b"431 Request Header Fields Too Large")
            return False
        fields = _fields_of(head)
        subprotocol = _chosen(fields.get(b"sec-websocket-protocol", b""))
        key = fields.get(b"sec-websocket-key", b"")
        if fields.get(b"upgrade", b"").lower() != b"websocket" or len(key) == 0:
            self._refuse(b"426 Upgrade Required", field=b"Upgrade: websocket\r\n")
            return False
        if subprotocol is None:
            self._refuse(b"400 Bad Request")
            return False
        self._buffer = bytearray(rest)
        self._outer.write(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: " + accept_key(key) + b"\r\n"
            b"Sec-WebSocket-Protocol: " + subprotocol.encode() + b"\r\n\r\n"
        )
        self._inner = self._make()
        self._inner.connection_made(_Inside(self, outer=self._outer))
        return True

    def _refuse(self, status: bytes, *, field: bytes = b"") -> None:
        self._counts.rubbish += 1
        self._closed = True
        self._outer.write(b"HTTP/1.1 " + status + b"\r\n" + field + b"Connection: close\r\nContent-Length: 0\r\n\r\n")
        self._outer.close()

    # Frames

    def _take(self) -> bool:
        """Take in the next piece of what has arrived; return whether there may be more."""
        if self._left > 0:
            return self._take_data()
        head = _head_of(self._buffer)
        if head is None:
            return False
        opcode, key, size, used = head
        if key is None or (opcode in _CONTROL and size >= _LENGTH_OF_2):
            self._drop(_PROTOCOL_ERROR)
            return False
        if opcode in _DATA:
            del self._buffer[:used]
            self._key, self._left, self._offset = key, size, 0
            return True
        if opcode not in _CONTROL:
            self._drop(_NOT_ACCEPTED)
            return False
        if len(self._buffer) < used + size:
            return False
        payload = unmasked(bytes(self._buffer[used : used + size]), key=key, offset=0)
        del self._buffer[: used + size]
        self._control(opcode, payload)
        return True

    def _take_data(self) -> bool:
        part = bytes(self._buffer[: self._left])
        if len(part) == 0:
            return False
        del self._buffer[: len(part)]
        data = unmasked(part, key=self._key, offset=self._offset)
        self._left -= len(part)
        self._offset += len(part)
        if self._inner is not None:
            self._inner.data_received(data)
        return True

    def _control(self, opcode: int, payload: bytes) -> None:
        if opcode == _PING:
            self._write(_PONG, payload)
        elif opcode == _CLOSE:
            self.close()

    def _drop(self, code: int) -> None:
        self._counts.rubbish += 1
        _log.info("a WebSocket was dropped, with status %d, for what its client sent", code)
        self.close(code)


class _Inside(asyncio.Transport):
    """The transport of what is spoken inside a WebSocket."""

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


def _fields_of(head: bytes) -> dict[bytes, bytes]:
    fields: dict[bytes, bytes] = {}
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        fields[name.strip().lower()] = value.strip()
    return fields


def _chosen(offered: bytes) -> str | None:
    names = {each.strip() for each in offered.decode("latin-1").split(",")}
    return next((each for each in _SUBPROTOCOLS if each in names), None)


def _head_of(buffer: bytearray) -> tuple[int, bytes | None, int, int] | None:
    """Return a frame's opcode, mask, length of payload and length of head; None = it has not all arrived.

    A mask of None stands for a frame that no client may send (RFC 6455, section 5.1 and 5.2).
    """
    if len(buffer) < 2:  # noqa: PLR2004 - the two bytes that each frame begins with
        return None
    size, extra = buffer[1] & 0x7F, 0
    if size >= _LENGTH_OF_2:
        extra = 2 if size == _LENGTH_OF_2 else 8
        size = int.from_bytes(buffer[2 : 2 + extra], "big")
    used = 2 + extra + _KEY_SIZE
    opcode, reserved = buffer[0] & 0x0F, buffer[0] & 0x70
    if buffer[1] & _MASKED == 0 or reserved != 0:
        return opcode, None, 0, 0
    if len(buffer) < used:
        return None
    return opcode, bytes(buffer[used - _KEY_SIZE : used]), size, used
