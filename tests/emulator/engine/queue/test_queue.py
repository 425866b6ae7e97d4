"""Receiving, settling, browsing and expiring the messages of a queue."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from servicebus_emulator.engine.model.descriptions import (
    QueueDescription,
)
from servicebus_emulator.engine.model.errors import (
    MessageLockLost,
    MessageNotFound,
    OperationNotAllowed,
)
from servicebus_emulator.engine.model.message import MessageState
from servicebus_emulator.engine.model.timespan import TimeSpan
from servicebus_emulator.engine.namespace.entities import QueueEntity
from servicebus_emulator.engine.queue.queue import MessageQueue
from tests.emulator.support.engine import EngineHarness, content, dead_letters, reason_of, texts, token_of


def test_messages_are_received_by_sequence_number(queue: MessageQueue):
    received = queue.receive(2)
    assert texts(received) == ["a", "b"]
    assert [message.sequence_number for message in received] == [1, 2]
    assert texts(queue.receive(2)) == ["c"]


def test_an_expired_lock_returns_the_message_and_increments_its_delivery_count(
    harness: EngineHarness, queue: MessageQueue
):
    (message,) = queue.receive(1)
    token = token_of(message)
    locked = []
    for seconds in (59.9, 0.1):
        harness.advance(seconds)
        locked.append(message.lock is not None)
    assert locked == [True, False]
    assert message.delivery_count == 1
    with pytest.raises(MessageLockLost):
        queue.complete(token)
    assert texts(queue.receive(1)) == ["a"]


def test_renew_lock_extends_the_lock_by_the_lock_duration(harness: EngineHarness, queue: MessageQueue):
    (message,) = queue.receive(1)
    token = token_of(message)
    harness.advance(50)
    assert queue.renew_lock(token) == harness.clock.now() + 60_000
    harness.advance(59)
    queue.complete(token)
    assert queue.active_count == 2


def test_a_message_is_dead_lettered_at_the_maximum_delivery_count(
    harness: EngineHarness, entity: QueueEntity, queue: MessageQueue
):
    for _ in range(2):
        queue.abandon(token_of(queue.receive(1)[0]))
    assert texts(queue.receive(1)) == ["a"]
    harness.advance(60)
    assert texts(queue.receive(3)) == ["b", "c"]
    (message,) = dead_letters(entity).receive(1)
    assert reason_of(message) == "MaxDeliveryCountExceeded"
    assert message.sequence_number == 1


def test_messages_of_a_dead_letter_queue_neither_expire_nor_exceed_a_delivery_count(
    harness: EngineHarness, entity: QueueEntity, queue: MessageQueue
):
    queue.dead_letter(token_of(queue.receive(1)[0]), reason=None, description=None)
    for _ in range(5):
        dead_letters(entity).abandon(token_of(dead_letters(entity).receive(1)[0]))
    harness.advance(10**9)
    (message,) = dead_letters(entity).receive(1)
    with pytest.raises(OperationNotAllowed):
        dead_letters(entity).dead_letter(token_of(message), reason=None, description=None)


def test_a_deferred_message_is_received_only_by_sequence_number(queue: MessageQueue):
    (message,) = queue.receive(1)
    queue.defer(token_of(message))
    assert texts(queue.receive(3)) == ["b", "c"]
    (again,) = queue.receive_deferred([1], session_id=None)
    assert again is message
    with pytest.raises(MessageNotFound):
        queue.receive_deferred([1], session_id=None)
    queue.complete(token_of(again))
    assert queue.active_count == 2


def test_a_deferred_message_is_deferred_again_when_its_lock_expires(harness: EngineHarness, queue: MessageQueue):
    (message,) = queue.receive(1)
    queue.defer(token_of(message))
    queue.receive_deferred([1], session_id=None)
    harness.advance(60)
    assert (message.state, message.delivery_count) == (MessageState.DEFERRED, 1)
    assert texts(queue.receive(3)) == ["b", "c"]
    queue.receive_deferred([1], session_id=None, delete=True)
    assert queue.active_count == 2


def test_receive_deferred_is_all_or_none(queue: MessageQueue):
    (message,) = queue.receive(1)
    queue.defer(token_of(message))
    with pytest.raises(MessageNotFound):
        queue.receive_deferred([1, 2], session_id=None)
    assert message.lock is None


@pytest.mark.parametrize(("settle", "count"), [(MessageQueue.abandon, 1), (MessageQueue.release, 0)])
def test_an_abandoned_message_counts_a_delivery_and_a_released_one_does_not(
    queue: MessageQueue, settle: Callable[[MessageQueue, bytes], None], count: int
):
    first, second = queue.receive(2)
    settle(queue, token_of(first))
    assert texts(queue.receive(2)) == ["a", "c"]
    assert (first.delivery_count, second.delivery_count) == (count, 0)


@pytest.mark.parametrize(("own", "default", "lives"), [(None, 10, 10), (5000, 10, 5), (20_000, 10, 10)])
def test_the_shorter_time_to_live_of_message_and_entity_applies(
    harness: EngineHarness, own: int | None, default: int, lives: int
):
    span = TimeSpan.of(timedelta(seconds=default))
    entity = harness.queue(QueueDescription("q", default_message_time_to_live=span))
    entity.send([content("x", time_to_live=own)])
    harness.advance(lives - 0.001)
    assert entity.counts().active == 1
    harness.advance(0.001)
    assert entity.counts().total == 0
    assert entity.main.receive(1) == []


def test_a_locked_message_expires_only_when_its_lock_ends(harness: EngineHarness, entity: QueueEntity):
    entity.send([content(text, time_to_live=1000) for text in ("x", "y", "z")])
    settled, returned, deferred = entity.main.receive(3)
    harness.advance(2)
    entity.main.complete(token_of(settled))
    entity.main.abandon(token_of(returned))
    entity.main.defer(token_of(deferred))
    assert entity.counts().total == 0


def test_a_run_is_completed_except_for_messages_whose_locks_have_ended(entity: QueueEntity):
    entity.send([content(text, time_to_live=90_000) for text in ("v", "w", "x", "y", "z")])
    tokens = [token_of(message) for message in entity.main.receive(5)]
    entity.main.abandon(tokens[1])
    unknown = b"?" * len(tokens[0])
    assert entity.main.complete_all([*tokens[:4], unknown]) == {tokens[1], unknown}
    assert (texts(entity.main.peek(0, limit=9)), entity.main.counters.completed) == (["w", "z"], 3)
    # Nothing is left that could end later.
    entity.main.complete(tokens[4])
    assert entity.main.complete_all([token_of(message) for message in entity.main.receive(1)]) == set()
    assert (entity.main.next_due(), entity.main.size_in_bytes) == (None, 0)
