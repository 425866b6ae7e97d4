"""Idle timeouts of links and connections, and the timeout for opening a connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from servicebus_emulator import Emulator, Fault, FaultKind, HostedNamespace
from servicebus_emulator.amqp.transport.timeouts import ClientTimeouts
from servicebus_emulator.engine.model.descriptions import QueueDescription
from tests.emulator.support.proton_client import (
    Peer,
    attach_links,
    condition_of,
    connected,
    has_received,
    is_closed,
    is_open,
    send_messages,
)

pytestmark = pytest.mark.simulated


@asynccontextmanager
async def emulator_with(**seconds: float | None) -> AsyncIterator[HostedNamespace]:
    never: dict[str, Any] = dict.fromkeys(
        ("opening_seconds", "link_idle_seconds", "unlinked_seconds", "silence_seconds")
    )
    async with Emulator(["contoso"], open=True, timeouts=ClientTimeouts(**{**never, **seconds})) as emulator:
        emulator["contoso"].namespace.create_queue(QueueDescription("flights"))
        yield emulator["contoso"]


def description_of(peer: Peer) -> str:
    condition = peer.connection.remote_condition
    assert condition is not None
    return str(condition.description)


async def test_an_idle_link_is_detached_and_an_active_one_stays():
    async with emulator_with(link_idle_seconds=0.4) as hosted, connected(hosted) as peer:
        session = peer.begin()
        idle, busy = peer.receiver(session, "flights"), peer.sender(session, "flights")
        authenticating = peer.sender(session, "$cbs")
        await peer.until(lambda: busy.credit > 0 and is_open(idle) and is_open(authenticating))
        began = asyncio.get_running_loop().time()
        for _ in range(40):
            await send_messages(peer, busy)
            if is_closed(idle):
                break
            await asyncio.sleep(0.05)
        waited = asyncio.get_running_loop().time() - began
        assert condition_of(idle) == "amqp:link:detach-forced"
        assert 0.39 < waited < 1.5
        assert is_open(busy)
        await peer.until(lambda: is_closed(busy))
        assert condition_of(busy) == "amqp:link:detach-forced"
        # A link to $cbs is quiet for half an hour at a time.
        assert is_open(authenticating)


async def test_a_receiver_that_gets_messages_is_not_idle():
    async with emulator_with(link_idle_seconds=0.3) as hosted, connected(hosted) as peer:
        sender, receiver = await attach_links(peer, credit=100)
        for count in range(1, 12):
            await send_messages(peer, sender)
            await peer.until(partial(has_received, peer, count))
            assert is_open(receiver)
            await asyncio.sleep(0.1)


async def test_a_connection_without_links_is_closed():
    async with emulator_with(unlinked_seconds=0.3) as hosted, connected(hosted) as peer:
        session = peer.begin()
        sender, authenticating = peer.sender(session, "flights"), peer.sender(session, "$cbs")
        await peer.until(lambda: sender.credit > 0)
        with pytest.raises(TimeoutError):
            await peer.until(lambda: is_closed(peer.connection), seconds=0.8)
        sender.close()
        began = asyncio.get_running_loop().time()
        await peer.until(lambda: is_closed(peer.connection))
        assert condition_of(peer.connection) == "amqp:connection:forced"
        assert "did not have any active links in the past 300 milliseconds" in description_of(peer)
        assert 0.29 < asyncio.get_running_loop().time() - began < 1.5
        assert is_open(authenticating)


@pytest.mark.parametrize("sent", [b"AMQP", b"AMQP\x03\x01\x00\x00", b"AMQP\x00\x01\x00\x00"])
async def test_an_unopened_connection_is_dropped(sent: bytes):
    async with emulator_with(opening_seconds=0.3) as hosted, connected(hosted) as peer:
        peer.writer.write(sent)
        await asyncio.wait_for(peer.reader.read(1 << 16), 3)
        await asyncio.wait_for(peer.reader.read(), 3)


async def test_a_silent_client_is_dropped_and_one_with_heartbeats_is_not():
    async with emulator_with(silence_seconds=0.6) as hosted, connected(hosted) as silent, connected(hosted) as beating:
        for peer in (silent, beating):
            peer.begin()
            await peer.until(partial(is_open, peer.connection))
            assert peer.transport.remote_idle_timeout == pytest.approx(0.6)
        loop = asyncio.get_running_loop()
        for _ in range(20):
            beating.transport.tick(loop.time())
            beating.push()
            await asyncio.sleep(0.1)
        await silent.until(lambda: False, seconds=3)
        assert silent.gone
        assert condition_of(silent.connection) == "amqp:connection:forced"
        assert "The connection was inactive for more than the allowed 600 milliseconds" in description_of(silent)
        await beating.quiet()
        assert not beating.gone
        assert beating.connection.state & beating.connection.REMOTE_ACTIVE


async def test_heartbeats_are_sent_at_the_clients_idle_timeout():
    async with emulator_with() as hosted, connected(hosted) as asking, connected(hosted) as not_asking:
        asking.transport.idle_timeout = 0.4
        for peer in (asking, not_asking):
            peer.begin()
            await peer.until(partial(is_open, peer.connection))
            await peer.quiet(seconds=0.05)
        assert not_asking.transport.remote_idle_timeout == 0
        beats = 0
        async with asyncio.timeout(3):
            while beats < 5:
                assert await asking.reader.read(100) == b"\x00\x00\x00\x08\x02\x00\x00\x00"
                beats += 1
        await not_asking.quiet(seconds=0.5)
        assert not not_asking.gone


async def test_a_frozen_connection_is_neither_idle_nor_timed_out():
    times = {"link_idle_seconds": 0.3, "unlinked_seconds": 0.3, "silence_seconds": 0.4}
    async with emulator_with(**times) as hosted, connected(hosted) as peer:
        session = peer.begin()
        sender = peer.sender(session, "flights")
        await peer.until(lambda: sender.credit > 0)
        fault = hosted.set_fault(Fault(kind=FaultKind.FREEZE))
        await peer.quiet(seconds=1)
        hosted.clear_faults(fault.id)
        await send_messages(peer, sender, seconds=3)
        assert is_open(sender)


@pytest.mark.parametrize("name", ["greeting_seconds", "opening_seconds", "link_idle_seconds", "silence_seconds"])
@pytest.mark.parametrize("value", [0, -1.0, float("nan")])
def test_a_timeout_that_is_not_positive_is_refused(name: str, value: float):
    with pytest.raises(ValueError, match=rf"{name} is .*; allowed: a number of seconds above 0"):
        ClientTimeouts(**{name: value})
