"""The connections of an event loop share its time: one that is never silent delays the others by little."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from hashlib import sha1
from typing import Any

import pytest
from azure.servicebus._pyamqp.aio._transport_async import WebSocketTransportAsync

from servicebus_pair.core.sdk._private import turns
from servicebus_pair.core.sdk._private.turns import Share, share_of, take_turns

pytestmark = pytest.mark.fast_sdk

PONG, MESSAGE = b"\x8a\x00", b"\x82\x01x"


class Passes:
    """Counts the passes of the event loop, whose clock stands still unless it is moved."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.number, self.seconds = 0, 1000.0
        monkeypatch.setattr(Share()._turns, "now", lambda: self.seconds)

    @asynccontextmanager
    async def counted(self) -> AsyncIterator[None]:
        async def run() -> None:
            while True:
                self.number += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(run())
        yield
        counting.cancel()


@pytest.fixture
async def passes(monkeypatch: pytest.MonkeyPatch) -> Passes:
    return Passes(monkeypatch)


async def flood(passes: Passes, turns_by_pass: Counter[int], *, times: int, seconds: float) -> None:
    share = Share()
    for _ in range(times):
        await share.turn()
        turns_by_pass[passes.number] += 1
        passes.seconds += seconds


@pytest.mark.parametrize("connections", [1, 10])
async def test_all_connections_together_get_a_few_milliseconds_of_a_pass(connections: int, passes: Passes) -> None:
    turns_by_pass = Counter[int]()
    async with passes.counted():
        await asyncio.gather(*(flood(passes, turns_by_pass, times=9, seconds=0.003) for _ in range(connections)))
    assert turns_by_pass.total() == 9 * connections
    assert max(turns_by_pass.values()) == 2


async def test_a_connection_that_took_little_comes_before_those_that_are_never_silent(passes: Passes) -> None:
    turns_by_pass, share = Counter[int](), Share()
    floods = [asyncio.create_task(flood(passes, turns_by_pass, times=99, seconds=0.01)) for _ in range(20)]
    async with passes.counted():
        for _ in range(60):
            await asyncio.sleep(0)
        for _ in range(5):
            before = turns_by_pass.total()
            await share.turn()
            share.end()
            assert turns_by_pass.total() - before <= 2
            passes.seconds += 0.02
            await asyncio.sleep(0)
        await asyncio.gather(*floods)


async def test_a_turn_whose_waiting_is_cancelled_is_left_to_others(passes: Passes) -> None:
    turns_by_pass = Counter[int]()
    floods = [asyncio.create_task(flood(passes, turns_by_pass, times=3, seconds=0.01)) for _ in range(3)]
    await asyncio.sleep(0)
    floods[1].cancel()
    with suppress(asyncio.CancelledError):
        await floods[1]
    async with asyncio.timeout(5):
        await asyncio.gather(floods[0], floods[2])


async def test_a_frame_that_was_read_is_dealt_with_though_its_turn_is_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next one would be taken for its successor."""
    from azure.servicebus._pyamqp.aio._connection_async import Connection

    monkeypatch.setattr(turns, "_MAX_PASS", 0.0)
    take_turns()
    connection = Connection("amqp://localhost")
    share_of(connection)
    before = connection._last_frame_received_time = 1.0
    processing = asyncio.create_task(connection._process_incoming_frame(0, (1, ())))
    await asyncio.sleep(0)
    assert connection._last_frame_received_time == before
    processing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await processing
    assert connection._last_frame_received_time > before


@pytest.mark.filterwarnings("ignore:ssl=None is deprecated:DeprecationWarning")  # the SDK without TLS
async def test_others_get_a_turn_between_the_messages_of_a_websocket(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also between those that aiohttp passes over."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readuntil(b"\r\n\r\n")
        key = next(line for line in request.split(b"\r\n") if line.lower().startswith(b"sec-websocket-key"))
        accept = b64encode(
            sha1(key.split()[1] + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11", usedforsecurity=False).digest()
        ).decode()
        writer.write(
            "HTTP/1.1 101 Go\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Protocol: AMQPWSB10\r\n"
            f"Sec-WebSocket-Accept: {accept}\r\n\r\n".encode()
        )
        writer.write(PONG * 100 + MESSAGE * 100)
        await reader.read()
        writer.close()

    monkeypatch.setattr(turns, "_MAX_PASS", 0.0)
    take_turns()
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    transport: Any = WebSocketTransportAsync(f"127.0.0.1:{server.sockets[0].getsockname()[1]}", use_tls=False)
    async with server:
        await transport.connect()
        counter = Passes(monkeypatch)
        async with counter.counted():
            await transport.sock.receive_bytes()
            assert counter.number > 100
            for _ in range(99):
                await transport.sock.receive_bytes()
        assert counter.number > 200
        await transport.close()
