"""The first bytes of a connection select its protocol."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servicebus_emulator import HostedNamespace
from servicebus_emulator.amqp.transport.protocol_detection import WireProtocol, detect_protocol
from tests.emulator.support.hostile_bytes import SASL_HEADER


async def test_clients_that_send_too_little_are_dropped(hosted: HostedNamespace):
    sent = (b"", b"AM", b"GET /", b"\x16")
    opened = [await asyncio.open_connection(hosted.host, hosted.amqp_port) for _ in sent]
    for (_, writer), data in zip(opened, sent, strict=True):
        writer.write(data)
    async with asyncio.timeout(3):
        for reader, writer in opened:
            assert await reader.read() == b""
            writer.close()
    assert (hosted.counts.silent, hosted.counts.failed_handshakes) == (3, 1)


async def test_unrecognised_bytes_are_answered_with_an_amqp_header_and_counted(hosted: HostedNamespace):
    for unrecognised in (b"\x00\x01\x02\x03", b"hello\r\n", b"A" * 20_000, b"\xff" * 100):
        reader, writer = await asyncio.open_connection(hosted.host, hosted.amqp_port)
        writer.write(unrecognised)
        assert (await asyncio.wait_for(reader.readexactly(8), 3)) == b"AMQP\x00\x01\x00\x00"
        writer.close()
    reader, writer = await asyncio.open_connection(hosted.host, hosted.amqp_port)
    writer.write(b"\x16\x03\x01 not a TLS ClientHello, despite its first byte")
    await asyncio.wait_for(reader.read(), 3)
    writer.close()
    assert (hosted.counts.unrecognised, hosted.counts.failed_handshakes) == (4, 1)
    reader, writer = await asyncio.open_connection(hosted.host, hosted.amqp_port)
    writer.write(SASL_HEADER)
    assert await asyncio.wait_for(reader.readexactly(8), 3) == SASL_HEADER
    writer.close()


@pytest.mark.parametrize(
    ("head", "protocol"),
    [
        (b"", None),
        (b"AMQ", None),
        (b"AMQP", WireProtocol.AMQP),
        (b"AMQ\x00", WireProtocol.UNRECOGNISED),
        (b"AMQX / HTTP/1.1\r\n", WireProtocol.HTTP),
        (b"GET", None),
        (b"GET /q HTTP/1.1\r\n", WireProtocol.HTTP),
        (b"PUT /$servicebus/websocket HTTP/1.1\r\n", WireProtocol.HTTP),
        (b"GET /$servicebus/websocket HTTP/1.1\r\n", WireProtocol.WEBSOCKET),
        (b"GET /%24ServiceBus/WebSocket?x=1 HTTP/1.1\n", WireProtocol.WEBSOCKET),
        (b"GET /$servicebus/websocket/ HTTP/1.1\r\n", WireProtocol.WEBSOCKET),
        (b"GET /" + b"a" * 9000, WireProtocol.UNRECOGNISED),
        (b"get / HTTP/1.1\r\n", WireProtocol.UNRECOGNISED),
        (b"\x80abc", WireProtocol.UNRECOGNISED),
    ],
)
def test_detect_protocol_by_the_first_bytes(head: bytes, protocol: WireProtocol | None):
    assert detect_protocol(head) is protocol


@given(head=st.binary(max_size=40))
def test_more_bytes_never_change_a_detected_protocol(head: bytes):
    verdicts = [detect_protocol(head[:size]) for size in range(len(head) + 1)]
    first = next((verdict for verdict in verdicts if verdict is not None), None)
    assert all(verdict in {None, first} for verdict in verdicts)


@pytest.mark.parametrize(
    "half",
    [
        b"GET /$namespaceinfo HTTP/1.1\r\nHost: x\r\n",
        b"GET /$servicebus/websocket HTTP/1.1\r\nUpgrade: websocket\r\n",
    ],
)
@pytest.mark.parametrize("port", ["amqp_port", "admin_port"])
async def test_a_client_that_sends_half_a_request_head_is_dropped(hosted: HostedNamespace, half: bytes, port: str):
    reader, writer = await asyncio.open_connection(hosted.host, getattr(hosted, port))
    writer.write(half)
    async with asyncio.timeout(3):
        with suppress(ConnectionError):
            assert await reader.read() == b""
    writer.close()


@pytest.mark.parametrize("port", ["amqp_port", "admin_port"])
async def test_a_request_head_in_pieces_is_answered(hosted: HostedNamespace, port: str):
    reader, writer = await asyncio.open_connection(hosted.host, getattr(hosted, port))
    for piece in (b"GET /health HT", b"TP/1.1\r\nHost: localhost\r", b"\n\r\n"):
        writer.write(piece)
        await asyncio.sleep(0.01)
    assert (await asyncio.wait_for(reader.readline(), 3)).split()[1] == b"200"
    writer.close()
