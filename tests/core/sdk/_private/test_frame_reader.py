"""Frames are read in chunks: some are taken as bytes, all others are given to the SDK."""

from __future__ import annotations

import asyncio
import errno
import struct
from types import SimpleNamespace
from typing import Any

import pytest
from azure.servicebus._pyamqp.error import AMQPException

from servicebus_pair.core.sdk._private import turns
from servicebus_pair.core.sdk._private.frame_reader import FrameReader, mapped_error
from tests.core.support.frames import FrameConnection

pytestmark = pytest.mark.fast_sdk

# Two frames on channel 5: a transfer (0x14) without fields, and a flow (0x13).
TRANSFER = b"\x00\x00\x00\x0c\x02\x00\x00\x05\x00\x53\x14\x45"
FLOW = b"\x00\x00\x00\x12\x02\x00\x00\x05\x00\x53\x13\xc0\x05\x04\x40\x43\x43\x43"
EMPTY = b"\x00\x00\x00\x08\x02\x00\x00\x00"


def reader(connection: Any, taken: list[bytes]) -> FrameReader:
    def take(data: bytes, start: int, end: int) -> bool:
        if data[start + 2] != 0x14:
            return False
        taken.append(data[start:end])
        return True

    return FrameReader(connection, take)


async def test_a_frame_is_taken_or_given_to_the_sdk() -> None:
    connection, taken = FrameConnection(), list[bytes]()
    frames = reader(connection, taken)
    connection.reader.feed_data(TRANSFER + EMPTY + FLOW + TRANSFER)
    assert await frames.listen(1.0)
    assert taken == [TRANSFER[8:]] * 2
    assert connection.given == [(5, 0x13)]
    assert not await frames.listen(0.01)


async def test_others_get_a_turn_while_many_frames_are_dealt_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "_MAX_PASS", 0.0)
    connection, taken, seen = FrameConnection(), list[bytes](), list[int]()
    frames = reader(connection, taken)
    connection.reader.feed_data(TRANSFER * 9)
    listening = asyncio.create_task(frames.listen(1.0))
    while not listening.done():
        await asyncio.sleep(0)
        seen.append(len(taken))
    assert len(taken) == 9
    assert set(range(1, 10)) <= set(seen)


@pytest.mark.parametrize("cut", range(1, 12))
async def test_a_frame_that_arrives_in_parts_is_put_together(cut: int) -> None:
    """Also if the SDK had read the first part."""
    connection, taken = FrameConnection(TRANSFER[:cut]), list[bytes]()
    frames = reader(connection, taken)
    connection.reader.feed_data(TRANSFER[cut:] + TRANSFER[:cut])
    await frames.listen(1.0)
    assert len(taken) == 1
    connection.reader.feed_data(TRANSFER[cut:])
    await frames.listen(1.0)
    assert taken == [TRANSFER[8:]] * 2


async def test_frames_behind_one_whose_handling_was_cancelled_are_handled_by_the_next_listener() -> None:
    connection, taken = FrameConnection(), list[bytes]()
    frames = reader(connection, taken)
    connection.before_given = asyncio.Event().wait
    connection.reader.feed_data(FLOW + TRANSFER)
    listening = asyncio.create_task(frames.listen(1.0))
    await asyncio.sleep(0.01)
    listening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await listening
    connection.before_given = None
    assert await frames.listen(1.0)
    assert taken == [TRANSFER[8:]]


async def test_several_listeners_go_on_once_one_has_read() -> None:
    connection, taken = FrameConnection(), list[bytes]()
    frames = reader(connection, taken)
    listeners = [asyncio.create_task(frames.listen(5.0)) for _ in range(3)]
    await asyncio.sleep(0)
    connection.reader.feed_data(TRANSFER)
    async with asyncio.timeout(1):
        assert await asyncio.gather(*listeners) == [True, True, True]
    assert len(taken) == 1


@pytest.mark.simulated
@pytest.mark.parametrize(("wait", "seconds"), [(False, 0.2), (0.5, 0.5), (1.0, 1.0), (True, 60.0)])
async def test_the_sdk_reads_for_as_long_as_it_asks_for(wait: Any, seconds: float) -> None:
    """It looks at what has changed after each read, also when another task has read."""
    connection, clock = FrameConnection(), asyncio.get_running_loop().time
    reader(connection, [])
    began = clock()
    reading = [asyncio.create_task(connection._read_frame(wait=wait)) for _ in range(2)]
    asyncio.get_running_loop().call_later(60.0, connection.reader.feed_data, FLOW)
    assert await asyncio.wait_for(reading[0], 90.0) is True
    assert clock() - began == pytest.approx(seconds, abs=0.01)
    assert await asyncio.wait_for(reading[1], 90.0) is True


def test_only_private_errors_of_the_sdk_are_mapped() -> None:
    mapped, other = ConnectionError("mapped"), ConnectionError("other")
    transport = SimpleNamespace(create_servicebus_exception=lambda *_, **__: mapped)
    owner = SimpleNamespace(_amqp_transport=transport, _config=SimpleNamespace(custom_endpoint_address=None))
    # The others are those of code that believes what the service sent.
    for failure in (AMQPException(b"amqp:internal-error"), ValueError(), TypeError(), IndexError(), struct.error()):
        assert mapped_error(owner, failure) is mapped
    assert mapped_error(owner, other) is other


@pytest.mark.parametrize(
    "failure",
    [None, OSError(errno.ECONNRESET, "reset"), TimeoutError(errno.ETIMEDOUT, "timed out")],
    ids=["end", "reset", "no acknowledgement"],
)
async def test_a_lost_connection_is_an_error(failure: Exception | None) -> None:
    connection = FrameConnection()
    frames = reader(connection, [])
    if failure is None:
        connection.reader.feed_eof()
    else:
        connection.reader.set_exception(failure)
    with pytest.raises(OSError, match=r"closed|reset|acknowledge"):
        await frames.listen(1.0)


async def test_a_closed_transport_is_an_error() -> None:
    connection = FrameConnection()
    frames = reader(connection, [])
    connection._transport.reader = None
    with pytest.raises(ConnectionResetError):
        await frames.listen(1.0)


@pytest.mark.parametrize("size", [0, 7, 2**24 + 1, 0x48545450])
async def test_what_is_no_frame_is_an_error(size: int) -> None:
    connection = FrameConnection()
    frames = reader(connection, [])
    connection.reader.feed_data(size.to_bytes(4, "big") + b"/1.1 400 Bad Request\r\n")
    with pytest.raises(ConnectionAbortedError, match=f"frame of {size} bytes"):
        await frames.listen(1.0)


async def test_a_frame_of_the_largest_size_is_awaited_and_one_without_a_performative_is_none() -> None:
    connection, taken = FrameConnection(), list[bytes]()
    frames = reader(connection, taken)
    beyond_its_end = b"\x00\x00\x00\x08\xff\x00\x00\x00"
    connection.reader.feed_data(beyond_its_end + TRANSFER + (2**24).to_bytes(4, "big") + TRANSFER[4:])
    assert await frames.listen(1.0)
    assert not await frames.listen(0.01)
    assert (taken, connection.given) == ([TRANSFER[8:]], [])
