"""Encoded messages are received, sent and settled over the wire, without being decoded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from azure.servicebus._pyamqp.constants import LinkState

from servicebus_emulator import Fault, FaultKind, Operation
from servicebus_pair.core.model.errors import LockLostError, RejectedError, TimedOutError, UnreachableError
from servicebus_pair.core.protocol.amqp_message import new_message
from servicebus_pair.core.protocol.relay_batch import RelayBatch
from servicebus_pair.core.protocol.relayed_message import BacklogRewriter, RelayedMessage
from servicebus_pair.core.sdk.relay.delivery import RelayDelivery
from servicebus_pair.core.sdk.relay.encoding import encode_message
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


def relayed(number: int, **fields: Any) -> RelayedMessage:
    key = fields.pop("partition_key", None)
    annotations = {} if key is None else {"x-opt-partition-key": key}
    return encode_message(replace(new_message("x", message_id=f"m{number}", **fields), annotations=annotations))


def batch_of(link: RelaySendLink, *messages: RelayedMessage) -> RelayBatch:
    batch = link.new_batch()
    assert all(map(batch.try_add, messages))
    return batch


async def test_a_message_that_was_decoded_is_encoded_with_what_a_batch_must_know_of_it(local: LocalPair) -> None:
    encoded = relayed(1, session_id="s", partition_key="s")
    assert (encoded.message_id, encoded.session_id, encoded.partition_key) == ("m1", "s", "s")
    assert encode_message(encoded) is encoded
    plain = relayed(2)
    assert (plain.session_id, plain.partition_key) == (None, None)
    target = destination(local)
    await target.open(timeout=5)
    assert await target.send_in_slot(batch_of(target, encoded, plain), SLOT)
    assert await local.primary_ids() == ["m1", "m2"]


async def test_a_refused_batch_of_several_sessions_is_split_and_they_are_kept_apart(local: LocalPair) -> None:
    link = destination(local)
    await link.open(timeout=5)
    mixed = [relayed(n, session_id="ab"[n % 2]) for n in range(4)]
    assert [link.batch_key(each) for each in mixed] == [None] * 4
    assert link.split_if_mixed(batch_of(link, *mixed[::2])) == []
    assert link.accepts_mixed_sessions
    parts = link.split_if_mixed(batch_of(link, *mixed))
    assert [[each.message_id for each in part.messages] for part in parts] == [["m0", "m2"], ["m1", "m3"]]
    assert [link.batch_key(each) for each in mixed[:2]] == [(None, "a"), (None, "b")]
    keys = link.split_if_mixed(batch_of(link, relayed(5, partition_key="a"), relayed(6, partition_key="b")))
    assert len(keys) == 2


async def test_a_slot_that_is_given_up_sends_and_counts_nothing(local: LocalPair) -> None:
    link = destination(local)
    await link.open(timeout=5)
    began = list[int]()
    for slot in (SendSlot(attempt_timeout=lambda: None), replace(SLOT, still_wanted=lambda: False)):
        assert not await link.send_in_slot(batch_of(link, relayed(1)), slot, lambda: began.append(1))
    assert (began, link._client.meter.read().sends, link.in_use) == ([], 0, False)
    assert await link.send_in_slot(batch_of(link, relayed(1), relayed(2)), SLOT, lambda: began.append(1))
    assert (began, link._client.meter.read().sends, link._client.authenticated) == ([1], 2, True)


async def test_a_ping_is_counted_as_one(local: LocalPair) -> None:
    link = destination(local)
    await link.send_ping(new_message("x", message_id="ping"), timeout=5)
    assert await local.primary_ids() == ["ping"]
    assert (link._client.meter.read().pings, link._client.meter.read().sends) == (1, 0)


async def test_a_link_is_used_as_long_as_it_is_attached(local: LocalPair) -> None:
    link = destination(local)
    handlers = list[Any]()
    await link.open(timeout=5)
    for number in range(4):
        assert await link.send_in_slot(batch_of(link, relayed(number)), SLOT)
        assert not link.in_use
        assert link._attachment is not None
        handlers.append(link._attachment.handler)
        if number == 1:
            link._handler._handler._link.state = LinkState.DETACHED
        if number == 2:
            link.disconnect()
    assert handlers[0] is handlers[1]
    assert len(set(map(id, handlers))) == 3
    assert await local.primary_ids() == ["m0", "m1", "m2", "m3"]


@pytest.mark.parametrize(
    ("kind", "error", "kept"),
    [(FaultKind.INTERNAL_ERROR, RejectedError, True), (FaultKind.CLOSE_LINK, UnreachableError, False)],
)
async def test_a_link_outlives_the_rejection_of_a_message(
    local: LocalPair, kind: FaultKind, error: type[Exception], kept: bool
) -> None:
    link = destination(local)
    await link.open(timeout=5)
    handler = link._handler
    local.primary.set_fault(Fault(kind=kind, on=(Operation.SEND,), count=1))
    with pytest.raises(error):
        await link.send_in_slot(batch_of(link, relayed(1)), SLOT)
    assert (link._handler is handler, link._handler is None) == (kept, not kept)
    assert await link.send_in_slot(batch_of(link, relayed(2)), SLOT)


@pytest.mark.parametrize("cancelled", [False, True])
async def test_a_link_that_did_not_answer_is_used_no_more_and_sends_under_way_on_it_end(
    local: LocalPair, cancelled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = destination(local)
    await link.open(timeout=5)
    handler, closed, close_soon = link._handler, list[Any](), link._client.close_soon

    def noted(handler: Any) -> None:
        closed.append(handler)
        close_soon(handler)

    monkeypatch.setattr(link._client, "close_soon", noted)
    local.primary.set_fault(Fault(kind=FaultKind.LATE_DISPOSITION, delay=1.0, count=1))
    slow = asyncio.create_task(link.send_in_slot(batch_of(link, relayed(1)), SLOT))
    await asyncio.sleep(0.1)
    in_use = [link.in_use]
    local.primary.set_fault(Fault(kind=FaultKind.NO_DISPOSITION, count=1))
    lost = asyncio.create_task(link.send_in_slot(batch_of(link, relayed(2)), SendSlot(attempt_timeout=lambda: 0.3)))
    if cancelled:
        await asyncio.sleep(0.1)
        lost.cancel()
    with pytest.raises(asyncio.CancelledError if cancelled else TimedOutError):
        await lost
    assert [*in_use, link.in_use] == [True, False]
    local.primary.clear_faults()
    assert await link.send_in_slot(batch_of(link, relayed(3)), SLOT)
    assert closed == []
    assert await slow
    assert closed == [handler]
    assert sorted(await local.primary_ids()) == ["m1", "m2", "m3"]


def test_a_message_that_the_sdk_cannot_decode_says_why() -> None:
    delivery = RelayDelivery(b"\x00\x53\x75\x01", delivery_id=1, receiver=None, lock_ends=1.5)
    assert (delivery.decode_error or "").startswith(("ValueError", "struct.error", "IndexError"))
    assert delivery.sequence_number == 0
    assert delivery.locked_until == datetime(1970, 1, 1, 0, 0, 1, 500_000, UTC)
    assert RelayDelivery(b"", delivery_id=1, receiver=None, lock_ends=None).locked_until is None
