"""What the embedded Service Bus says is on its way at once."""

from __future__ import annotations

import asyncio
import gc
import socket

import pytest

from servicebus_emulator import Emulator


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_no_answer_waits_for_an_acknowledgement_of_the_one_before(host: str):
    """Nagle's algorithm holds a small answer back until then, and a client's kernel takes 40 ms to acknowledge."""
    async with Emulator(["contoso"], host=host) as emulator:
        reader, writer = await asyncio.open_connection(emulator["contoso"].host, emulator["contoso"].amqp_port)
        writer.write(b"AMQP\x03\x01\x00\x00")
        assert await reader.readexactly(8) == b"AMQP\x03\x01\x00\x00"
        own = writer.get_extra_info("sockname")
        # By its very type: to ask a weak proxy that others left for its class would raise.
        ends = [each for each in gc.get_objects() if type(each) is socket.socket and peer_of(each) == own]
        assert [each.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) for each in ends] == [1]
        writer.close()
        await writer.wait_closed()


def peer_of(end: socket.socket) -> object:
    try:
        return end.getpeername()
    except OSError:
        return None
