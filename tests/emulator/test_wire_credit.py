"""Issue 3, "Wire": drain and credit done right, and what AMQP 1.0 says of windows, sizes and the order of closing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from proton import Delivery, Link, Session

from servicebus_emulator import Emulator, HostedNamespace
from servicebus_emulator.amqp import wire
from servicebus_emulator.amqp.connection import AmqpConnection
from servicebus_emulator.engine.descriptions import QueueDescription
from tests.emulator import hostility
from tests.emulator.peer import Peer, connected, is_closed, is_open

pytestmark = pytest.mark.simulated

KILOBYTE = 1024


@pytest.fixture
async def hosted() -> AsyncIterator[HostedNamespace]:
    async with Emulator(["contoso"], open=True) as emulator:
        emulator["contoso"].namespace.create_queue(QueueDescription("flights"))
        yield emulator["contoso"]


@pytest.fixture
async def peer(hosted: HostedNamespace) -> AsyncIterator[Peer]:
    async with connected(hosted) as opened:
        yield opened


def message(size: int = 1) -> bytes:
    return b"\x00Su\xb0" + size.to_bytes(4, "big") + bytes(size)


async def send(peer: Peer, sender: Link, *, count: int = 1, size: int = 1) -> None:
    await peer.until(lambda: sender.credit > 0)
    tags = [f"{len(peer.answered)}-{number}" for number in range(count)]
    for tag in tags:
        sender.delivery(tag)
        sender.send(message(size))
        sender.advance()
    await peer.until(lambda: peer.answered.keys() >= set(tags))
    assert {peer.answered[tag] for tag in tags} == {Delivery.ACCEPTED}


async def attached(peer: Peer, *, session: Session | None = None) -> tuple[Link, Link]:
    used = peer.begin() if session is None else session
    sender, receiver = peer.sender(used, "flights"), peer.receiver(used, "flights")
    await peer.until(lambda: sender.credit > 0 and is_open(receiver))
    return sender, receiver


async def test_as_many_messages_arrive_as_there_is_credit_for(peer: Peer):
    sender, receiver = await attached(peer)
    await send(peer, sender, count=20)
    await peer.quiet()
    assert len(peer.received) == 0
    for credit, arrived in ((5, 5), (1, 6), (10, 16), (10, 20)):
        receiver.flow(credit)
        await peer.until(lambda arrived=arrived: len(peer.received) == arrived)
        await peer.quiet()
        assert len(peer.received) == arrived
    assert receiver.credit == 6
    # What comes later finds the credit that was left.
    await send(peer, sender, count=10)
    await peer.until(lambda: len(peer.received) == 26)
    await peer.quiet()
    assert (len(peer.received), receiver.credit) == (26, 0)


async def test_a_drain_sends_what_there_is_and_gives_the_rest_of_the_credit_back(peer: Peer):
    sender, receiver = await attached(peer)
    await send(peer, sender, count=3)
    receiver.drain(10)
    await peer.until(lambda: not receiver.draining())
    assert (len(peer.received), receiver.credit, receiver.drained()) == (3, 0, 7)
    await send(peer, sender)
    await peer.quiet()
    assert len(peer.received) == 3
    receiver.drain(2)
    await peer.until(lambda: not receiver.draining())
    assert (len(peer.received), receiver.credit, receiver.drained()) == (4, 0, 1)
    # Nothing at all to send is an answer too.
    receiver.drain(5)
    await peer.until(lambda: not receiver.draining())
    assert (len(peer.received), receiver.drained()) == (4, 5)


async def test_a_drain_of_a_full_queue_uses_the_credit_up_and_gives_none_back(peer: Peer):
    sender, receiver = await attached(peer)
    await send(peer, sender, count=600)
    receiver.drain(550)
    await peer.until(lambda: not receiver.draining() and len(peer.received) >= 550)
    await peer.quiet()
    assert (len(peer.received), receiver.credit, receiver.drained()) == (550, 0, 0)


async def test_more_than_a_turn_gives_arrives_in_turns(peer: Peer):
    sender, receiver = await attached(peer)
    await send(peer, sender, count=900)
    await send(peer, sender, count=900)
    receiver.flow(1800)
    await peer.until(lambda: len(peer.received) == 1800)


async def test_the_credit_to_send_is_given_back_before_it_is_used_up(peer: Peer):
    sender, _ = await attached(peer)
    for _ in range(5):
        await send(peer, sender, count=400)
    await peer.quiet(seconds=0.05)
    assert sender.credit > 400


async def test_no_frame_is_larger_than_the_client_takes(peer: Peer):
    peer.transport.max_frame_size = 512
    peer.recorded = bytearray()
    sender, receiver = await attached(peer)
    await send(peer, sender, size=20 * KILOBYTE)
    receiver.flow(1)
    await peer.until(lambda: len(peer.received) == 1)
    assert len(peer.received[0][1]) > 20 * KILOBYTE
    sizes = [len(each) for each in hostility.frames_of(bytes(peer.recorded))]
    assert max(sizes) == 512
    assert len(sizes) > 40


async def test_no_more_frames_are_sent_than_the_session_takes(peer: Peer):
    peer.transport.max_frame_size = 1024
    session = peer.begin()
    session.incoming_capacity = 8 * 1024
    sender, receiver = await attached(peer, session=session)
    await send(peer, sender, size=60 * KILOBYTE)
    peer.reads = False
    receiver.flow(1)
    await peer.quiet(seconds=0.3)
    assert 4 * 1024 < session.incoming_bytes <= 8 * 1024
    held = bytearray()
    async with asyncio.timeout(5):
        while len(held) < 60 * KILOBYTE:
            held += receiver.recv(1 << 20) or b""
            await peer.quiet(seconds=0.05)
    assert bytes(held).endswith(message(60 * KILOBYTE)[-KILOBYTE:])


async def test_a_channel_beyond_what_was_announced_ends_the_connection(peer: Peer):
    for words in (*hostility.begun(), hostility.begin_frame(channel=4999)):
        peer.writer.write(words)
        await asyncio.sleep(0.05)
    peer.writer.write(hostility.begin_frame(channel=5000))
    async with asyncio.timeout(3):
        answered = await peer.reader.read()
    assert b"amqp:" in answered[answered.rindex(b"\x00\x53\x18") :]


async def test_what_is_closed_is_closed_back_in_order(peer: Peer):
    sender, receiver = await attached(peer)
    session = sender.session
    receiver.close()
    await peer.until(lambda: is_closed(receiver))
    assert is_open(sender)
    await send(peer, sender)
    session.close()
    await peer.until(lambda: is_closed(session))
    another = peer.connection.session()
    another.open()
    third = peer.sender(another, "flights")
    await peer.until(lambda: third.credit > 0)
    peer.connection.close()
    await peer.until(lambda: is_closed(peer.connection))
    await peer.until(lambda: peer.gone)
    assert peer.connection.remote_condition is None


async def test_a_client_that_leaves_without_a_word_is_forgotten(hosted: HostedNamespace):
    async with connected(hosted) as peer:
        await attached(peer)
        assert len(hosted._broker._carriers) == 1
    async with asyncio.timeout(3):
        while len(hosted._broker._carriers) > 0:  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.01)
    assert hosted._broker._links == set()


async def test_a_sender_that_never_reads_its_answers_is_not_heard_until_it_does(
    hosted: HostedNamespace, peer: Peer, monkeypatch: pytest.MonkeyPatch
):
    """The answers would otherwise pile up without end."""
    monkeypatch.setattr(wire, "_UNREAD_ANSWERS", 100 * KILOBYTE)
    sender = peer.sender(peer.begin(), "$cbs")
    answers = peer.receiver(sender.session, "$cbs")
    answers.flow(100_000)
    await peer.until(lambda: sender.credit > 0 and is_open(answers))
    [connection] = [each for each in hosted._broker._carriers if isinstance(each, AmqpConnection)]
    assert connection._wire is not None
    request = b"\x00Ss" + hostility.listed(hostility.text("i" * 200)) + b"\x00St\xc1\x01\x00\x00Sw\x40"
    peer.writer.transport.set_write_buffer_limits(1 << 30)
    sent = 0
    # The other side's socket fills up first; it reads on until its own buffer holds what it is to hold.
    while connection._wire._transport.get_write_buffer_size() <= 100 * KILOBYTE and sent < 60_000:
        peer.push()
        for _ in range(min(50, sender.credit)):
            sender.delivery(str(sent))
            sender.send(request)
            sender.advance()
            sent += 1
        peer.push()
        await asyncio.sleep(0)
        if sender.credit == 0:
            break
    await asyncio.sleep(0.2)
    assert connection._wire._transport.get_write_buffer_size() < 400 * KILOBYTE
    await peer.until(lambda: len(peer.answered) == sent)
