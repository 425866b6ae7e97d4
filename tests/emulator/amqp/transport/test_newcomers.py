"""Clients that have not logged in neither hold up the others, nor send without end, nor fill the log."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from servicebus_emulator import Emulator, HostedNamespace
from servicebus_emulator.amqp.session.connection import AmqpConnection
from servicebus_emulator.amqp.transport import newcomers
from servicebus_emulator.amqp.transport.websocket import WebSocketConnection
from tests.emulator.support.encoded_messages import listed
from tests.emulator.support.hostile_bytes import SASL_HEADER, attach, begin_frame, begun, frame

HANDSHAKE = (
    b"GET /$servicebus/websocket HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Protocol: amqp\r\n\r\n"
)
MASK = bytes(4)
HEARTBEAT = frame(b"")
OPENED = b"".join(begun())
BINARY = b"\x82" + bytes((0x80 | len(OPENED),)) + MASK + OPENED
# What starts a connection, and what it repeats.
FLOODS = {
    "sessions": (OPENED, begin_frame(channel=1) + frame(b"\x00\x53\x17" + listed(), channel=1)),
    "heartbeats": (OPENED, HEARTBEAT),
    "frames of one byte": (HANDSHAKE + BINARY, b"".join(b"\x82\x81" + MASK + bytes((each,)) for each in HEARTBEAT)),
    "empty fragments": (HANDSHAKE + BINARY + b"\x02\x80" + MASK, b"\x00\x80" + MASK),
    "pings": (HANDSHAKE + BINARY, b"\x89\x80" + MASK),
}
OTHERS = 3


@pytest.mark.parametrize(("start", "repeated"), FLOODS.values(), ids=FLOODS)
async def test_a_flood_without_a_login_keeps_no_other_client_waiting(
    hosted: HostedNamespace, start: bytes, repeated: bytes, monkeypatch: pytest.MonkeyPatch
):
    worked_through = 0
    served = WebSocketConnection if start.startswith(HANDSHAKE) else AmqpConnection
    receive = served.data_received

    def count(protocol: Any, data: bytes) -> None:
        nonlocal worked_through
        worked_through += len(data)
        receive(protocol, data)

    monkeypatch.setattr(served, "data_received", count)
    flooding = [(await asyncio.open_connection(hosted.host, hosted.amqp_port))[1] for _ in range(OTHERS)]
    for writer in flooding:
        writer.write(start + repeated * (100_000 // len(repeated)))
    reader, writer = await asyncio.open_connection(hosted.host, hosted.amqp_port)
    writer.write(SASL_HEADER)
    assert await reader.readexactly(8) == SASL_HEADER
    for each in (*flooding, writer):
        each.transport.abort()

    # A few turns of the event loop, of which each takes little from each: not the 300,000 bytes that were sent.
    assert 0 < worked_through < 30_000


@pytest.mark.parametrize("logged_in", [False, True])
@pytest.mark.parametrize(("start", "repeated"), FLOODS.values(), ids=FLOODS)
async def test_a_client_sends_a_limited_number_of_bytes_without_a_login(
    start: bytes, repeated: bytes, monkeypatch: pytest.MonkeyPatch, *, logged_in: bool
):
    assert newcomers._MAX_BYTES == 2 * 1024 * 1024
    monkeypatch.setattr(newcomers, "_MAX_BYTES", 4096)
    async with Emulator(["contoso"], open=logged_in) as emulator:
        reader, writer = await asyncio.open_connection(emulator["contoso"].host, emulator["contoso"].amqp_port)
        writer.write(start + repeated * (5000 // len(repeated)))
        answered = b""
        ends = (b"amqp:resource-limit-exceeded", b"\x00\x53\x18")
        # Past the flood: only a client that has logged in may go on.
        ending = frame(ends[1] + listed())
        framed = b"\x80" if repeated.startswith(b"\x00") else b"\x82"
        writer.write(framed + bytes((0x80 | len(ending),)) + MASK + ending if start.startswith(HANDSHAKE) else ending)
        async with asyncio.timeout(10):
            while ends[1] not in answered and (more := await reader.read(1 << 16)):
                answered += more
        writer.transport.abort()

    assert ends[1] in answered
    assert (ends[0] in answered) is not logged_in


async def test_the_log_tells_of_ten_refusals_without_a_login_in_short_lines(
    hosted: HostedNamespace, caplog: pytest.LogCaptureFixture
):
    caplog.set_level("INFO", logger="servicebus_emulator.amqp.session")
    links = [attach("q" * 5000, name=f"{each:05}" * 1000, handle=each) for each in range(50)]
    reader, writer = await asyncio.open_connection(hosted.host, hosted.amqp_port, limit=1 << 20)
    writer.write(OPENED + begin_frame() + b"".join(links) + attach("$cbs", name="last", handle=200))
    await asyncio.wait_for(reader.readuntil(b"last"), 10)
    writer.transport.abort()

    refusals = [each for each in caplog.messages if "refused" in each]
    assert len(refusals) == 10
    assert max(map(len, refusals)) < 2000
