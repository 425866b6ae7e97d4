"""Delivery ids of requests are repaired, and dispositions of a range are set apart from all other frames."""

from __future__ import annotations

from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from servicebus_emulator.amqp.codec.raw_encoding import (
    compound_items,
    encode_compound,
    encode_string,
    encode_uint,
    value_end,
)
from servicebus_emulator.amqp.session.incoming_frames import IncomingFrames
from tests.emulator.support.sdk_client import SdkClient, bodies

NULL, TRUE, FALSE = b"\x40", b"\x41", b"\x42"
BEGIN, ATTACH, TRANSFER, DISPOSITION, END = 0x11, 0x12, 0x14, 0x15, 0x17


def frame(code: int, *fields: bytes, payload: bytes = b"", channel: int = 0) -> bytes:
    body = bytes((0, 0x53, code)) + encode_compound(0xC0, body=b"".join(fields), count=len(fields)) + payload
    return (8 + len(body)).to_bytes(4, "big") + b"\x02\x00" + channel.to_bytes(2, "big") + body


def begin(channel: int = 0) -> bytes:
    return frame(BEGIN, NULL, encode_uint(0), encode_uint(9), encode_uint(9), channel=channel)


def attach(handle: int, address: str, *, role: bytes = FALSE, channel: int = 0) -> bytes:
    source, target = NULL, b"\x00\x53\x29" + encode_compound(0xC0, body=encode_string(address), count=1)
    return frame(ATTACH, encode_string("l"), encode_uint(handle), role, NULL, NULL, source, target, channel=channel)


def transfer(handle: int, number: int | None, *, more: bytes = FALSE, channel: int = 0) -> bytes:
    encoded = NULL if number is None else encode_uint(number)
    fields = (encode_uint(handle), encoded, b"\xa0\x01t", NULL, FALSE, more)
    return frame(TRANSFER, *fields, payload=b"\x00\x53\x75\xa0\x01x", channel=channel)


def passed(*pieces: bytes, max_frame_size: int = 512) -> bytes:
    out: list[bytes] = []
    frames = IncomingFrames(out.append, on_range=out.append, on_batch=out.append, max_frame_size=max_frame_size)
    for piece in pieces:
        frames.receive(piece)
    return b"".join(out)


def disposition(first: bytes, last: bytes, *, role: bytes = TRUE) -> bytes:
    return frame(DISPOSITION, role, first, last, FALSE, b"\x00\x53\x24\x45")


def numbers(data: bytes) -> list[int]:
    found = []
    while len(data) > 0:
        size = int.from_bytes(data[:4], "big")
        if data[10] == TRANSFER:
            fields = compound_items(data[11 : value_end(data, 11)])
            found.append(int.from_bytes(fields[1][1:], "big"))
        data = data[size:]
    return found


def test_repeated_and_swapped_delivery_ids_of_requests_are_renumbered():
    opening = begin() + attach(0, "q/$management")
    sent = [transfer(0, number) for number in (3, 4, 4, 7, 6, 8, 300)]
    assert numbers(passed(opening, *sent)) == [3, 4, 5, 6, 7, 8, 9]


def test_ordered_frames_pass_unchanged_however_they_are_split():
    data = b"AMQP\x00\x01\x00\x00" + begin() + attach(0, "$cbs")
    data += transfer(0, 0) + transfer(0, 1, more=TRUE) + transfer(0, None) + transfer(0, 2) + frame(END)
    assert passed(data) == data
    assert passed(*(data[at : at + 1] for at in range(len(data)))) == data


def test_frames_of_one_request_keep_their_delivery_id():
    opening = begin() + attach(0, "$cbs") + attach(1, "q/$management") + attach(2, "q", role=TRUE)
    sent = [transfer(0, 5), transfer(1, 5, more=TRUE), transfer(0, 5), transfer(1, 5)]
    assert numbers(passed(opening, *sent)) == [5, 6, 7, 6]


def test_a_session_with_messages_to_entities_passes_unchanged():
    data = begin() + attach(0, "$cbs") + attach(1, "q") + transfer(0, 0) + transfer(1, 0)
    data += begin(1) + attach(0, "$cbs", channel=1) + transfer(0, 0, channel=1)
    assert passed(data) == data


@pytest.mark.parametrize("size", [0, 7, 513, 2**32 - 1])
def test_a_frame_of_invalid_size_passes_at_once(size: int):
    data = begin() + size.to_bytes(4, "big") + b"\x02\x00\x00\x00rest"
    assert passed(data, b"more") == data + b"more"


def test_a_malformed_frame_passes_unchanged():
    data = begin() + frame(ATTACH) + frame(TRANSFER) + b"\x00\x00\x00\x0c\x02\x00\x00\x00\x00\x53\x14\xc0"
    data += b"\x00\x00\x00\x08\xff\x00\x00\x00" + b"\x00\x00\x00\x08\x00\x00\x00\x00"
    assert passed(data) == data


def test_a_disposition_of_a_range_is_set_apart():
    one, two = encode_uint(1), encode_uint(2)
    ranged = disposition(one, two)
    single = [disposition(one, NULL), disposition(one, one), disposition(one, two, role=FALSE), frame(DISPOSITION)]
    others, ranges = list[Any](), list[Any]()
    frames = IncomingFrames(others.append, on_range=ranges.append, on_batch=others.append, max_frame_size=512)
    for each in (b"".join(single) + ranged + ranged + single[0], single[0] + ranged[:5], ranged[5:]):
        frames.receive(each)
    assert others == [b"".join(single), single[0], single[0]]
    assert ranges == [ranged] * 3


def test_the_first_frame_of_a_batch_is_set_apart():
    batch_format = b"\x70\x80\x01\x37\x00"
    single, batch, unlike = (
        frame(TRANSFER, encode_uint(0), encode_uint(0), b"\xa0\x05" + tag, kind, payload=b"\x00\x53\x75\xa0\x01x")
        for tag, kind in ((b"tag01", b"\x43"), (b"tag01", batch_format), (batch_format, b"\x43"))
    )
    others, batches = list[Any](), list[Any]()
    frames = IncomingFrames(others.append, on_range=others.append, on_batch=batches.append, max_frame_size=512)
    for each in (begin() + attach(0, "flights") + single + batch, unlike):
        frames.receive(each)
    assert batches == [batch]
    assert b"".join(others) == begin() + attach(0, "flights") + single + unlike


@pytest.mark.asyncio(loop_scope="session")
async def test_a_repeated_delivery_id_does_not_close_the_connection(sdk: SdkClient, queue: str):
    async with sdk.queue(queue) as (sender, receiver):
        await sender.send_messages(ServiceBusMessage("x"))
        assert bodies(await receiver.peek_messages(1)) == ["x"]
        session: Any = receiver._handler._session
        session.next_outgoing_id -= 1
        assert bodies(await receiver.peek_messages(1, sequence_number=1)) == ["x"]
        session.next_outgoing_id += 5
        assert bodies(await receiver.peek_messages(1, sequence_number=1)) == ["x"]
