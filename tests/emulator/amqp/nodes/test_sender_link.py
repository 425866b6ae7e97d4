"""Messages are sent as the client's credit permits (AMQP 1.0 part 2, section 2.6.7)."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType

import pytest
from proton import Delivery, Link

from servicebus_emulator import Fault, FaultKind, HostedNamespace
from servicebus_emulator.amqp.codec.transfer_decoder import decode_message
from servicebus_emulator.amqp.nodes.sender_link import SenderLink
from servicebus_emulator.engine.model.descriptions import QueueDescription
from tests.emulator.support.engine import queue_of, token_of
from tests.emulator.support.proton_client import (
    Peer,
    attach_links,
    condition_of,
    connected,
    encoded_message,
    has_received,
    is_closed,
    is_open,
    send_messages,
)

pytestmark = pytest.mark.simulated


async def test_no_more_messages_are_sent_than_the_client_gave_credit_for(peer: Peer):
    sender, receiver = await attach_links(peer)
    await send_messages(peer, sender, count=20)
    await peer.quiet()
    assert len(peer.received) == 0
    for credit, arrived in ((5, 5), (1, 6), (10, 16), (10, 20)):
        receiver.flow(credit)
        await peer.until(partial(has_received, peer, arrived))
        await peer.quiet()
        assert len(peer.received) == arrived
    assert receiver.credit == 6
    # Unused credit applies to later messages.
    await send_messages(peer, sender, count=10)
    await peer.until(lambda: len(peer.received) == 26)
    await peer.quiet()
    assert (len(peer.received), receiver.credit) == (26, 0)


async def test_a_drain_sends_the_waiting_messages_and_returns_unused_credit(peer: Peer):
    sender, receiver = await attach_links(peer)
    await send_messages(peer, sender, count=3)
    receiver.drain(10)
    await peer.until(lambda: not receiver.draining())
    assert (len(peer.received), receiver.credit, receiver.drained()) == (3, 0, 7)
    await send_messages(peer, sender)
    await peer.quiet()
    assert len(peer.received) == 3
    receiver.drain(2)
    await peer.until(lambda: not receiver.draining())
    assert (len(peer.received), receiver.credit, receiver.drained()) == (4, 0, 1)
    # A drain is answered even without messages.
    receiver.drain(5)
    await peer.until(lambda: not receiver.draining())
    assert (len(peer.received), receiver.drained()) == (4, 5)


async def test_a_drain_of_a_long_queue_uses_all_credit(peer: Peer):
    sender, receiver = await attach_links(peer)
    await send_messages(peer, sender, count=600)
    receiver.drain(550)
    await peer.until(lambda: not receiver.draining() and len(peer.received) >= 550)
    await peer.quiet()
    assert (len(peer.received), receiver.credit, receiver.drained()) == (550, 0, 0)


async def test_credit_beyond_one_cycle_is_served_in_further_cycles(peer: Peer):
    sender, receiver = await attach_links(peer)
    await send_messages(peer, sender, count=900)
    await send_messages(peer, sender, count=900)
    receiver.flow(1800)
    await peer.until(lambda: len(peer.received) == 1800)


async def test_a_client_with_much_credit_does_not_starve_another(hosted: HostedNamespace, peer: Peer):
    hosted.namespace.create_queue(QueueDescription("calm"))
    stored = 20_000
    content = decode_message(encoded_message(), new_id=lambda: "m")
    queue_of(hosted.namespace, "flights").send([content] * stored)
    queue_of(hosted.namespace, "calm").send([content])
    flood = peer.receiver(peer.begin(), "flights")
    async with connected(hosted) as other:
        calm = other.receiver(other.begin(), "calm")
        await peer.until(lambda: is_open(flood))
        await other.until(lambda: is_open(calm))
        flood.flow(stored)
        peer.push()
        calm.flow(1)
        await other.until(lambda: len(other.received) == 1)
    # The other client was served after some cycles, while many of the first client's messages still waited.
    assert queue_of(hosted.namespace, "flights").main.ready_count() > stored // 4


async def settle(peer: Peer, receiver: Link, *, one_by_one: bool = False) -> list[Delivery]:
    """Accept all that was received; return the deliveries once each is settled."""
    deliveries = [delivery for delivery, _ in peer.received]
    for delivery in deliveries:
        delivery.update(Delivery.ACCEPTED)
        if one_by_one:
            # Otherwise Proton settles adjacent deliveries with one frame.
            peer.transport.pending()
    await peer.until(lambda: all(delivery.settled for delivery in deliveries))
    assert receiver.unsettled == len(deliveries)
    return deliveries


@contextmanager
def counted_calls() -> Iterator[Counter[str]]:
    """Count the calls of our functions, by name."""
    calls = Counter[str]()

    def count(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and "/servicebus_emulator/" in frame.f_code.co_filename:
            calls[frame.f_code.co_qualname] += 1

    sys.setprofile(count)
    try:
        yield calls
    finally:
        sys.setprofile(None)


async def receive(peer: Peer, *, count: int) -> Link:
    """Send messages and receive them; return the link."""
    sender, receiver = await attach_links(peer)
    await send_messages(peer, sender, count=count)
    receiver.flow(count)
    await peer.until(lambda: len(peer.received) == count)
    return receiver


@pytest.mark.parametrize("late", [False, True])
async def test_a_disposition_of_a_range_is_answered_by_one_frame(hosted: HostedNamespace, peer: Peer, late: bool):
    """A delay, which benchmarks set, costs no more of the processor than a long line does."""
    receiver = await receive(peer, count=400)
    if late:
        hosted.set_fault(Fault(kind=FaultKind.LATENCY, delay=0.1))
    before = peer.transport.frames_input
    with counted_calls() as calls:
        settled = await settle(peer, receiver)
    assert {delivery.remote_state for delivery in settled} == {Delivery.ACCEPTED}
    assert peer.transport.frames_input - before == 1
    assert calls.total() / 400 < 3
    assert queue_of(hosted.namespace, "flights").counts().total == 0


async def test_dispositions_of_single_deliveries_are_answered_one_by_one(hosted: HostedNamespace, peer: Peer):
    """Each concurrent settlement of the Python client waits for a frame of its own."""
    receiver = await receive(peer, count=40)
    before = peer.transport.frames_input
    await settle(peer, receiver, one_by_one=True)
    assert peer.transport.frames_input - before == 40
    assert queue_of(hosted.namespace, "flights").counts().total == 0


async def test_receiving_and_completing_one_by_one_takes_few_calls(peer: Peer):
    """The processor time per message cannot be asserted on a busy machine, but what it is spent on can."""
    sender, receiver = await attach_links(peer)
    await send_messages(peer, sender, count=60)

    async def complete(numbers: range) -> None:
        for number in numbers:
            receiver.flow(1)
            await peer.until(partial(has_received, peer, number + 1))
            delivery, _ = peer.received[number]
            delivery.update(Delivery.ACCEPTED)
            await peer.until(partial(getattr, delivery, "settled"))
            delivery.settle()

    # The first ones do what is done once.
    await complete(range(10))
    with counted_calls() as calls:
        await complete(range(10, 60))
    assert calls.total() / 50 <= 100


async def test_a_completed_message_whose_lock_expired_is_refused(hosted: HostedNamespace, peer: Peer):
    await receive(peer, count=2)
    queue = queue_of(hosted.namespace, "flights").main
    queue.abandon(token_of(queue.peek(0, limit=2)[0]))
    for delivery, _ in peer.received:
        delivery.update(Delivery.ACCEPTED)
        peer.transport.pending()
    await peer.until(lambda: all(delivery.settled for delivery, _ in peer.received))
    assert [delivery.remote_state for delivery, _ in peer.received] == [Delivery.REJECTED, Delivery.ACCEPTED]
    condition = peer.received[0][0].remote.condition
    assert condition is not None
    assert condition.name == "com.microsoft:message-lock-lost"
    assert queue.active_count == 1


async def test_in_a_range_only_the_messages_without_a_lock_are_refused(hosted: HostedNamespace, peer: Peer):
    receiver = await receive(peer, count=5)
    queue = queue_of(hosted.namespace, "flights").main
    queue.abandon(token_of(queue.peek(0, limit=5)[2]))
    settled = await settle(peer, receiver)
    states = [delivery.remote_state for delivery in settled]
    assert states == [Delivery.ACCEPTED] * 2 + [Delivery.REJECTED] + [Delivery.ACCEPTED] * 2
    condition = settled[2].remote.condition
    assert condition is not None
    assert condition.name == "com.microsoft:message-lock-lost"
    assert queue.active_count == 1


async def test_a_fault_strikes_single_deliveries_of_a_range(hosted: HostedNamespace, peer: Peer):
    receiver = await receive(peer, count=5)
    hosted.set_fault(Fault(kind=FaultKind.LOCK_LOST, count=2))
    settled = await settle(peer, receiver)
    assert [delivery.remote_state for delivery in settled] == [Delivery.REJECTED] * 2 + [Delivery.ACCEPTED] * 3
    assert queue_of(hosted.namespace, "flights").main.active_count == 2


@pytest.mark.parametrize("state", [Delivery.RELEASED, Delivery.MODIFIED])
async def test_a_range_is_returned_as_well(hosted: HostedNamespace, peer: Peer, state: int):
    await receive(peer, count=5)
    for delivery, _ in peer.received:
        delivery.update(state)
    await peer.until(lambda: all(delivery.settled for delivery, _ in peer.received))
    assert {delivery.remote_state for delivery, _ in peer.received} == {state}
    queue = queue_of(hosted.namespace, "flights").main
    assert [each.delivery_count for each in queue.peek(0, limit=9)] == [int(state == Delivery.MODIFIED)] * 5


async def test_a_range_that_cannot_be_read_closes_the_connection(peer: Peer, monkeypatch: pytest.MonkeyPatch):
    """As other frames do, whose names Proton does not check to be UTF-8."""

    def refuse(*_: object) -> None:
        raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")

    await receive(peer, count=2)
    monkeypatch.setattr(SenderLink, "on_dispositions", refuse)
    for delivery, _ in peer.received:
        delivery.update(Delivery.ACCEPTED)
    await peer.until(lambda: is_closed(peer.connection))
    assert condition_of(peer.connection) == "amqp:decode-error"
