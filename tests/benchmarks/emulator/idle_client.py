"""A client that only connects, with the fewest bytes that AMQP 1.0 allows: thousands fit into one process."""

from __future__ import annotations

import asyncio
from typing import Final

from servicebus_emulator.amqp.codec.raw_encoding import NULL, encode_compound, encode_string, encode_symbol, encode_uint

_PROTOCOL: Final = b"AMQP\x00\x01\x00\x00"
_SASL_PROTOCOL: Final = b"AMQP\x03\x01\x00\x00"
_AMQP_FRAME, _SASL_FRAME = 0, 1
_SASL_INIT, _OPEN, _BEGIN, _ATTACH, _SOURCE, _TARGET = 0x41, 0x10, 0x11, 0x12, 0x28, 0x29
_SENDER: Final = b"\x42"
_ATTACHED: Final = bytes((0x00, 0x53, _ATTACH))
_WINDOW: Final = 2_000


async def connect(host: str, port: int, *, number: int) -> asyncio.StreamWriter:
    """Open a connection with one session and a link to ``$cbs``, as every client of the SDK does.

    :raises ConnectionError: the service closed it before the link was attached.
    """
    reader, writer = await asyncio.open_connection(host, port)
    target = described(_TARGET, encode_string("$cbs"))
    writer.write(
        _SASL_PROTOCOL
        + frame(_SASL_FRAME, described(_SASL_INIT, encode_symbol("ANONYMOUS")))
        + _PROTOCOL
        + frame(_AMQP_FRAME, described(_OPEN, encode_string(f"client-{number}"), encode_string(host)))
        + frame(_AMQP_FRAME, described(_BEGIN, NULL, encode_uint(0), encode_uint(_WINDOW), encode_uint(_WINDOW)))
        + frame(
            _AMQP_FRAME,
            described(_ATTACH, encode_string("cbs"), encode_uint(0), _SENDER, NULL, NULL, described(_SOURCE), target),
        )
    )
    received = b""
    while _ATTACHED not in received:
        data = await reader.read(_WINDOW)
        if len(data) == 0:
            raise ConnectionError(f"connection {number} was closed after {len(received)} bytes")
        received += data
    return writer


def described(code: int, *fields: bytes) -> bytes:
    return bytes((0x00, 0x53, code)) + encode_compound(0xC0, body=b"".join(fields), count=len(fields))


def frame(kind: int, body: bytes) -> bytes:
    return (len(body) + 8).to_bytes(4, "big") + bytes((2, kind, 0, 0)) + body
