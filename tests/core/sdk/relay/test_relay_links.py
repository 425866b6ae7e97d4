"""Encoded messages are received, sent and settled over the wire, without being decoded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from servicebus_pair.core.model.errors import LockLostError
from servicebus_pair.core.protocol.relay_batch import RelayBatch
from servicebus_pair.core.protocol.relayed_message import BacklogRewriter
from servicebus_pair.core.sdk.relay.delivery import RelayDelivery
from servicebus_pair.core.sdk.relay.receive import RelayReceiveLink
from servicebus_pair.core.sdk.relay.send import RelaySendLink
from servicebus_pair.core.sdk.send_link import SendSlot
from tests.core.support.local_pair import BACKLOG, LocalPair, messages, numbered, open_local_pair

pytestmark = pytest.mark.fast_sdk
SLOT = SendSlot(attempt_timeout=lambda: 5.0)


@pytest.fixture
async def local() -> AsyncIterator[LocalPair]:
    async with open_local_pair("flights") as pair:
        yield pair


def source(local: LocalPair, *, max_bytes: int = 2**23) -> RelayReceiveLink:
    link = local.pair._open().secondary.receive_link(BACKLOG, relay_bytes=max_bytes)
    assert isinstance(link, RelayReceiveLink)
    return link


def destination(local: LocalPair) -> RelaySendLink:
    return local.pair._open().primary.relay_send_link("flights")


async def receive(link: RelayReceiveLink, count: int, *, wait: float = 1.0) -> list[RelayDelivery]:
    received = await link.receive(max_messages=count, max_wait_time=wait, timeout=5)
    return [each for each in received if isinstance(each, RelayDelivery)]


def restored(received: list[RelayDelivery], link: RelaySendLink) -> RelayBatch:
    batch, rewriter = link.new_batch(), BacklogRewriter()
    for each in received:
        assert batch.try_add(rewriter.restore(each.encoded, now=0.0)[1])
    return batch


async def test_a_run_is_received_sent_and_settled(local: LocalPair) -> None:
    await local.put_into_backlog("flights", numbered(300))
    link, target = source(local), destination(local)
    received = await receive(link, 300)
    assert [each.sequence_number for each in received] == list(range(1, 301))
    assert {each.locked_until for each in received} == {received[0].locked_until}
    await target.open(timeout=5)
    assert await target.send_in_slot(restored(received, target), SLOT)
    assert await link.complete(received, timeout=5) == [None] * 300
    assert await local.primary_ids() == [f"m{number}" for number in range(300)]
    assert await local.backlog_ids() == []


async def test_several_batches_are_under_way_at_a_time(local: LocalPair) -> None:
    await local.put_into_backlog("flights", messages(*range(40), body="x" * 5000))
    link, target = source(local), destination(local)
    received = await receive(link, 40)
    await target.open(timeout=5)
    parts = [received[start : start + 4] for start in range(0, 40, 4)]
    sent = await asyncio.gather(*(target.send_in_slot(restored(part, target), SLOT) for part in parts))
    assert sent == [True] * 10
    assert sorted(await local.primary_ids()) == sorted(f"m{number}" for number in range(40))


async def test_messages_larger_than_a_frame_arrive_whole(local: LocalPair) -> None:
    body = "y" * 150_000
    await local.put_into_backlog("flights", messages(1, body=body))
    link, target = source(local), destination(local)
    received = await receive(link, 5)
    await target.open(timeout=5)
    await target.send_in_slot(restored(received, target), SLOT)
    assert await local.primary_ids() == ["m1"]
    assert len(received[0].encoded) > len(body)
    assert next(iter(received[0].amqp.body)) == f"{body} 1".encode()


@pytest.mark.parametrize("small", [0, 60])
async def test_section_6_a_receive_ends_with_a_limited_number_of_bytes(local: LocalPair, small: int) -> None:
    """Even the first one; after small messages, it exceeds that by what is on its way."""
    await local.put_into_backlog("flights", numbered(small))
    for number in range(20):
        await local.put_into_backlog("flights", messages(100 + number, body="y" * 200_000))
    link, sizes, ids = source(local, max_bytes=1_000_000), [], list[str | None]()
    while received := await receive(link, 500, wait=0.2):
        sizes.append(sum(len(each.encoded) for each in received))
        ids += [each.message_id for each in received]
    assert ids == [f"m{number}" for number in (*range(small), *range(100, 120))]
    assert sizes[0] <= (2_000_000 if small else 1_000_000)
    assert max(sizes[1:]) <= 1_400_000


async def test_messages_are_abandoned_dead_lettered_and_peeked_over_one_link(local: LocalPair) -> None:
    await local.put_into_backlog("flights", numbered(5))
    link = source(local)
    assert len(await link.peek(max_messages=10, timeout=5)) == 5
    received = await receive(link, 5)
    assert await link.abandon(received[:2], timeout=5) == [None, None]
    assert await link.dead_letter(received[2], reason="Why", description="because", timeout=5) is None
    assert await link.complete([received[4], received[3]], timeout=5) == [None, None]
    assert [each.message_id for each in await link.peek(max_messages=10, timeout=5)] == ["m0", "m1"]
    assert await local.backlog_ids(dead_letter=True) == ["m2"]


async def test_a_message_that_is_settled_over_another_link_is_not_confirmed(local: LocalPair) -> None:
    await local.put_into_backlog("flights", numbered(1))
    link = source(local)
    received = await receive(link, 1)
    link.detach_soon()
    assert [type(each) for each in await link.complete(received, timeout=5)] == [LockLostError]


async def test_credit_that_is_taken_back_locks_no_message(local: LocalPair) -> None:
    link = source(local)
    assert await receive(link, 100, wait=0.1) == []
    await link.drain_credit(timeout=5)
    await local.put_into_backlog("flights", numbered(3))
    other = source(local)
    assert len(await receive(other, 3)) == 3
