"""WebSocket handshakes and frames (RFC 6455)."""

from __future__ import annotations

import asyncio

import pytest

from servicebus_emulator import HostedNamespace


async def test_invalid_frames_close_the_websocket_with_a_status(hosted: HostedNamespace):
    request = (
        b"GET /$servicebus/websocket HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Protocol: AMQPWSB10\r\n\r\n"
    )
    for frames, code in (
        (b"\x82\x05hello", 1002),  # not masked
        (b"\xc2\x80\x00\x00\x00\x00", 1002),  # a reserved bit
        (b"\x81\x80\x00\x00\x00\x00", 1003),  # text
        (b"\x89\xfe\x01\x00\x00\x00\x00\x00", 1002),  # a ping of 256 bytes
        (b"\x88\x80\x00\x00\x00\x00", 1000),  # close
    ):
        reader, writer = await asyncio.open_connection(hosted.host, hosted.amqp_port)
        writer.write(request)
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 3)
        # The example of RFC 6455, section 1.3.
        assert b" 101 " in head
        assert b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in head
        assert b"AMQPWSB10" in head
        writer.write(b"\x89\x82\x01\x02\x03\x04" + bytes((ord("h") ^ 1, ord("i") ^ 2)) + frames)
        answer = await asyncio.wait_for(reader.read(), 3)
        assert answer.startswith(b"\x8a\x02hi")
        assert answer.endswith(b"\x88\x02" + code.to_bytes(2, "big"))
        writer.close()


@pytest.mark.parametrize(
    ("field", "status"),
    [
        (b"Upgrade: h2c", b" 426 "),
        (b"Sec-WebSocket-Protocol: mqtt", b" 400 "),
        (b"Sec-WebSocket-Protocol: amqp\n\n", b" 400 "),
        (b"X: " + b"y" * 16_600, b" 431 "),
        (b"X: " + b"y" * 16_600 + b"\r\n\r\n", b" 431 "),
    ],
)
async def test_invalid_handshakes_are_refused_and_logged(
    hosted: HostedNamespace, field: bytes, status: bytes, caplog: pytest.LogCaptureFixture
):
    caplog.set_level("INFO")
    upgrade = b"" if field.startswith(b"Upgrade") else b"Upgrade: websocket\r\n"
    reader, writer = await asyncio.open_connection(hosted.host, hosted.amqp_port)
    writer.write(b"GET /$servicebus/websocket HTTP/1.1\r\nSec-WebSocket-Key: eA==\r\n" + upgrade + field)
    if not field.endswith((b"y", b"\n")):
        writer.write(b"\r\n\r\n")
    assert status in await asyncio.wait_for(reader.read(), 3)
    assert f"refused:{status.decode().rstrip()}" in caplog.text
    writer.close()
