"""A frame of an impossible size, or with a field of an impossible type or value, ends its connection."""

from __future__ import annotations

from asyncio import StreamReader
from functools import partial
from struct import pack
from types import SimpleNamespace
from typing import Any

import pytest

from servicebus_pair.core.protocol.amqp_sections import NULL, binary, join_list, section, text, uint
from servicebus_pair.core.sdk._private.frame_checks import checked, limit_frames

pytestmark = pytest.mark.fast_sdk

TRUE, ONE = b"\x41", uint(1)
ERROR = section(0x1D, join_list([text("amqp:internal-error", constructor=0xA3)]))
SYMBOL = text("name", constructor=0xA3)
# By performative: one with all of its fields that are checked.
FRAMES: dict[int, list[bytes]] = {
    0x10: [SYMBOL, SYMBOL, ONE, ONE, ONE],
    0x11: [ONE] * 5,
    0x12: [SYMBOL, ONE, TRUE, *[NULL] * 6, ONE, b"\x80" + b"\xff" * 8],
    0x13: [ONE] * 7,
    0x14: [ONE, ONE, binary(b"tag"), ONE, TRUE, TRUE],
    0x15: [TRUE, ONE, ONE, TRUE],
    0x16: [ONE, TRUE, ERROR],
    0x17: [ERROR],
    0x18: [ERROR],
}
REQUIRED = {0x11: (1, 2, 3), 0x12: (0, 1, 2), 0x13: (1, 2, 3), 0x14: (0,), 0x15: (0, 1), 0x16: (0,)}
UNCHECKED = {0x10: (0, 1), 0x12: range(3, 9)}
FIELDS = [
    (code, index)
    for code, fields in FRAMES.items()
    for index in range(len(fields))
    if index not in UNCHECKED.get(code, ())
]
# A map, a list that is empty or begins with true, a NaN, -1, a UUID, and a decimal out of range.
LIES = [
    b"\xc1\x01\x00",
    b"\x45",
    join_list([TRUE]),
    b"\x72\x7f\xc0\x00\x00",
    b"\x54\xff",
    b"\x98" + b"\x00" * 16,
    b"\x94" + b"\xff" * 16,
    b"\xff",
]


def decoded(code: int, fields: list[bytes]) -> Any:
    from azure.servicebus._pyamqp._decode import decode_frame

    return checked(decode_frame)(memoryview(section(code, join_list(fields))))


def with_field(code: int, index: int, value: bytes) -> list[bytes]:
    fields = FRAMES[code]
    return [*fields[:index], value, *fields[index + 1 :]]


@pytest.mark.parametrize("code", FRAMES)
def test_other_frames_are_decoded_as_before(code: int) -> None:
    from azure.servicebus._pyamqp._decode import decode_frame

    for fields in (FRAMES[code], FRAMES[code][: 1 + max(REQUIRED.get(code, (0,)))]):
        assert decoded(code, fields) == decode_frame(memoryview(section(code, join_list(fields))))


@pytest.mark.parametrize(("code", "index"), FIELDS)
def test_a_field_of_another_type_ends_the_connection(code: int, index: int) -> None:
    for lie in (*LIES, b"\x80" + pack(">Q", 2**32)):
        if (code, index) == (0x12, 10) and lie[0] == 0x80:
            continue  # the size of a message may be that large
        with pytest.raises(ConnectionAbortedError, match=r"cannot be decoded|impossible field"):
            decoded(code, with_field(code, index, lie))


@pytest.mark.parametrize("code", [0x16, 0x17, 0x18])
def test_the_description_of_an_error_is_a_text(code: int) -> None:
    for description in (NULL, text("why"), b"\xb1" + pack(">I", 300) + b"x" * 300):
        decoded(code, with_field(code, len(FRAMES[code]) - 1, section(0x1D, join_list([SYMBOL, description]))))
    with pytest.raises(ConnectionAbortedError, match="impossible field"):
        decoded(code, with_field(code, len(FRAMES[code]) - 1, section(0x1D, join_list([SYMBOL, b"\x45"]))))


@pytest.mark.parametrize(("code", "index"), FIELDS)
def test_a_field_may_be_missing_where_the_protocol_says_so(code: int, index: int) -> None:
    fields = with_field(code, index, NULL)
    if index in REQUIRED.get(code, ()):
        with pytest.raises(ConnectionAbortedError, match=f"impossible field {index}"):
            decoded(code, fields)
    else:
        decoded(code, fields)


@pytest.mark.parametrize("index", [2, 7, 12])
def test_a_transfer_has_few_bytes_beside_its_message(index: int) -> None:
    """They are kept with the message: 5,000 with tags of a megabyte took gigabytes."""
    from azure.servicebus._pyamqp._decode import decode_frame

    def frame(size: int) -> memoryview:
        fields = [*FRAMES[0x14], *[NULL] * 7]
        fields[index] = binary(bytes(size))
        return memoryview(section(0x14, join_list(fields)) + section(0x75, binary(bytes(10_000))))

    (code, fields), fits = checked(decode_frame)(frame(300)), 1024 - (len(frame(300)) - 10_008 - 300)
    assert (code, len(fields[-1])) == (0x14, 10_008)
    checked(decode_frame)(frame(fits))
    with pytest.raises(ConnectionAbortedError, match="a transfer with 1025 bytes of fields"):
        checked(decode_frame)(frame(fits + 1))


@pytest.mark.parametrize("websocket", [False, True])
@pytest.mark.parametrize("size", [0, 7, 2**24 + 1, 2**31, 2**32 - 1])
async def test_a_frame_of_an_impossible_size_is_not_awaited(size: int, websocket: bool) -> None:
    with pytest.raises(ConnectionAbortedError, match=f"a frame of {size} bytes"):
        await read_by(pack(">IBBH", size, 2, 0, 0), websocket=websocket)


@pytest.mark.parametrize("websocket", [False, True])
@pytest.mark.parametrize(
    ("sent", "payload"),
    [(b"AMQP\0\1\0\0", None), (pack(">IBBH", 8, 2, 0, 5), b""), (pack(">IBBH", 9, 2, 0, 5) + b"x", b"x")],
)
async def test_other_frames_are_read_as_before(sent: bytes, payload: bytes | None, websocket: bool) -> None:
    assert await read_by(sent, websocket=websocket) == payload


async def read_by(sent: bytes, *, websocket: bool) -> bytes | None:
    """Return the payload of the frame that a transport of the SDK reads."""
    limit_frames()
    from azure.servicebus._pyamqp.aio import _transport_async as transports

    reader = StreamReader()
    reader.feed_data(sent)
    transport: Any
    if websocket:
        transport = transports.WebSocketTransportAsync("localhost")
        transport.sock = SimpleNamespace(receive_bytes=partial(reader.read, 99))
    else:
        transport = transports.AsyncTransport("localhost")
        transport.reader = reader
    _, _, payload = await transport.read()
    return None if payload is None else bytes(payload)
