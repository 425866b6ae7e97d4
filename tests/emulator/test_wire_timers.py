"""Issue 3, "Wire": idle time-outs, detach and close timers as options; EMULATOR 1: the timers of the real service."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

from servicebus_emulator import Emulator, Fault, FaultKind, HostedNamespace
from servicebus_emulator.amqp.intake import Intake
from servicebus_emulator.amqp.patience import Patience
from servicebus_emulator.engine.descriptions import QueueDescription
from tests.emulator.peer import connected, is_closed, is_open

pytestmark = pytest.mark.simulated

MESSAGE = b"\x00Su\xa0\x01x"


@asynccontextmanager
async def patient(**seconds: float | None) -> AsyncIterator[HostedNamespace]:
    never: dict[str, Any] = dict.fromkeys(
        ("opening_seconds", "link_idle_seconds", "unlinked_seconds", "silence_seconds")
    )
    async with Emulator(["contoso"], open=True, patience=Patience(**{**never, **seconds})) as emulator:
        emulator["contoso"].namespace.create_queue(QueueDescription("flights"))
        yield emulator["contoso"]


async def test_an_idle_link_is_detached_and_a_busy_one_stays():
    async with patient(link_idle_seconds=0.4) as hosted, connected(hosted) as peer:
        session = peer.begin()
        idle, busy = peer.receiver(session, "flights"), peer.sender(session, "flights")
        authenticating = peer.sender(session, "$cbs")
        await peer.until(lambda: busy.credit > 0 and is_open(idle) and is_open(authenticating))
        began = asyncio.get_running_loop().time()
        for number in range(40):
            busy.delivery(str(number))
            busy.send(MESSAGE)
            busy.advance()
            await peer.until(lambda number=number: str(number) in peer.answered)
            if is_closed(idle):
                break
            await asyncio.sleep(0.05)
        waited = asyncio.get_running_loop().time() - began
        assert idle.remote_condition.name == "amqp:link:detach-forced"
        assert 0.39 < waited < 1.5
        assert is_open(busy)
        await peer.until(lambda: is_closed(busy))
        assert busy.remote_condition.name == "amqp:link:detach-forced"
        # A link to $cbs is quiet for half an hour at a time.
        assert is_open(authenticating)


async def test_a_receiver_that_is_sent_messages_is_not_idle():
    async with patient(link_idle_seconds=0.3) as hosted, connected(hosted) as peer:
        session = peer.begin()
        receiver, sender = peer.receiver(session, "flights"), peer.sender(session, "flights")
        receiver.flow(100)
        await peer.until(lambda: is_open(receiver) and sender.credit > 0)
        for count in range(1, 12):
            sender.delivery(str(count))
            sender.send(MESSAGE)
            sender.advance()
            await peer.until(lambda count=count: len(peer.received) == count)
            assert is_open(receiver)
            await asyncio.sleep(0.1)


async def test_the_official_client_gets_over_an_idle_link_that_was_detached():
    async with (
        patient(link_idle_seconds=0.4) as hosted,
        ServiceBusClient.from_connection_string(hosted.connection_string) as client,
    ):
        sender = client.get_queue_sender("flights")
        for text in ("before", "after"):
            await sender.send_messages(ServiceBusMessage(text), timeout=15)
            await asyncio.sleep(1.2)
        assert [link for link in hosted._broker._links if isinstance(link, Intake)] == []
        receiver = client.get_queue_receiver("flights")
        received = await receiver.receive_messages(2, max_wait_time=5)
        assert [str(message) for message in received] == ["before", "after"]


async def test_a_connection_without_links_is_closed():
    async with patient(unlinked_seconds=0.3) as hosted, connected(hosted) as peer:
        session = peer.begin()
        sender, authenticating = peer.sender(session, "flights"), peer.sender(session, "$cbs")
        await peer.until(lambda: sender.credit > 0)
        with pytest.raises(TimeoutError):
            await peer.until(lambda: is_closed(peer.connection), seconds=0.8)
        sender.close()
        began = asyncio.get_running_loop().time()
        await peer.until(lambda: is_closed(peer.connection))
        assert peer.connection.remote_condition.name == "amqp:connection:forced"
        assert 0.29 < asyncio.get_running_loop().time() - began < 1.5
        assert is_open(authenticating)


@pytest.mark.parametrize("said", [b"AMQP", b"AMQP\x03\x01\x00\x00", b"AMQP\x00\x01\x00\x00"])
async def test_a_connection_that_is_never_opened_is_dropped(said: bytes):
    async with patient(opening_seconds=0.3) as hosted, connected(hosted) as peer:
        peer.writer.write(said)
        await asyncio.wait_for(peer.reader.read(1 << 16), 3)
        await asyncio.wait_for(peer.reader.read(), 3)


async def test_an_open_connection_is_not_dropped_for_opening():
    async with patient(opening_seconds=0.2) as hosted, connected(hosted) as peer:
        peer.begin()
        await peer.until(lambda: is_open(peer.connection))
        await peer.quiet(seconds=0.5)
        assert not peer.gone


async def test_a_client_that_falls_silent_is_dropped_and_one_that_beats_is_not():
    async with patient(silence_seconds=0.6) as hosted, connected(hosted) as silent, connected(hosted) as beating:
        for peer in (silent, beating):
            peer.begin()
            await peer.until(lambda peer=peer: is_open(peer.connection))
            # Half of what is waited for is announced, so that a heartbeat may be late (AMQP 1.0, section 2.4.5).
            assert peer.transport.remote_idle_timeout == pytest.approx(0.3)
        loop = asyncio.get_running_loop()
        for _ in range(20):
            beating.transport.tick(loop.time())
            beating.push()
            await asyncio.sleep(0.1)
        await silent.until(lambda: False, seconds=3)
        assert silent.gone
        await beating.quiet()
        assert not beating.gone
        assert beating.connection.state & beating.connection.REMOTE_ACTIVE


async def test_the_client_gets_the_heartbeats_it_asks_for():
    async with patient() as hosted, connected(hosted) as asking, connected(hosted) as not_asking:
        asking.transport.idle_timeout = 0.4
        for peer in (asking, not_asking):
            peer.begin()
            await peer.until(lambda peer=peer: is_open(peer.connection))
            await peer.quiet(seconds=0.05)
        assert not_asking.transport.remote_idle_timeout == 0
        beats = 0
        async with asyncio.timeout(3):
            while beats < 5:
                assert await asking.reader.read(100) == b"\x00\x00\x00\x08\x02\x00\x00\x00"
                beats += 1
        await not_asking.quiet(seconds=0.5)
        assert not not_asking.gone


async def test_a_frozen_connection_is_neither_idle_nor_silent():
    times = {"link_idle_seconds": 0.3, "unlinked_seconds": 0.3, "silence_seconds": 0.4}
    async with patient(**times) as hosted, connected(hosted) as peer:
        session = peer.begin()
        sender = peer.sender(session, "flights")
        await peer.until(lambda: sender.credit > 0)
        fault = hosted.set_fault(Fault(kind=FaultKind.FREEZE))
        await peer.quiet(seconds=1)
        hosted.clear_faults(fault.id)
        sender.delivery("late")
        sender.send(MESSAGE)
        sender.advance()
        await peer.until(lambda: "late" in peer.answered, seconds=3)
        assert is_open(sender)


@pytest.mark.parametrize("name", ["greeting_seconds", "opening_seconds", "link_idle_seconds", "silence_seconds"])
@pytest.mark.parametrize("value", [0, -1.0, float("nan")])
def test_a_time_that_is_none_is_refused(name: str, value: float):
    with pytest.raises(ValueError, match=rf"{name} is .*; allowed: a number of seconds above 0"):
        Patience(**{name: value})
