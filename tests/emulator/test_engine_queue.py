"""SPEC 1, 4, 6 and EMULATOR 1: what a queue does with its messages, on a clock of our own."""

from __future__ import annotations

from datetime import timedelta

import pytest

from servicebus_emulator.engine.descriptions import (
    EntityStatus,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from servicebus_emulator.engine.entities import QueueEntity, SubQueue
from servicebus_emulator.engine.errors import (
    EntityDisabled,
    MessageLockLost,
    MessageNotFound,
    OperationNotAllowed,
    QuotaExceeded,
)
from servicebus_emulator.engine.message import MessageState
from servicebus_emulator.engine.queue import MessageQueue
from servicebus_emulator.engine.timespan import TimeSpan
from tests.emulator.broker import Bench, content, texts, token_of

MINUTE = TimeSpan.of(timedelta(minutes=1))


@pytest.fixture
def entity(bench: Bench) -> QueueEntity:
    return bench.queue(QueueDescription("flights", lock_duration=MINUTE, max_delivery_count=3))


@pytest.fixture
def queue(entity: QueueEntity) -> MessageQueue:
    entity.send([content("a"), content("b"), content("c")])
    return entity.main


def dead(entity: QueueEntity) -> MessageQueue:
    return entity.part(SubQueue.DEAD_LETTER)


def test_messages_are_received_in_the_order_of_their_sequence_numbers(queue: MessageQueue):
    taken = queue.take(2)
    assert texts(taken) == ["a", "b"]
    assert [message.number for message in taken] == [1, 2]
    assert texts(queue.take(2)) == ["c"]


def test_a_completed_message_is_gone(queue: MessageQueue):
    for message in queue.take(3):
        queue.complete(token_of(message))
    assert (queue.active_count, queue.size_in_bytes) == (0, 0)


def test_an_abandoned_message_comes_back_to_its_place_with_a_delivery_counted(queue: MessageQueue):
    first, second = queue.take(2)
    queue.abandon(token_of(first))
    assert texts(queue.take(2)) == ["a", "c"]
    assert (first.delivery_count, second.delivery_count) == (1, 0)


def test_a_released_message_comes_back_as_if_it_had_not_been_delivered(queue: MessageQueue):
    (message,) = queue.take(1)
    queue.release(token_of(message))
    assert texts(queue.take(1)) == ["a"]
    assert message.delivery_count == 0


def test_a_lock_that_expires_gives_the_message_back_and_counts_a_delivery(bench: Bench, queue: MessageQueue):
    (message,) = queue.take(1)
    token = token_of(message)
    bench.go_on(59.9)
    assert message.lock is not None
    bench.go_on(0.1)
    assert message.lock is None
    assert message.delivery_count == 1
    with pytest.raises(MessageLockLost):
        queue.complete(token)
    assert texts(queue.take(1)) == ["a"]


def test_a_renewed_lock_lasts_for_the_lock_duration_from_then(bench: Bench, queue: MessageQueue):
    (message,) = queue.take(1)
    token = token_of(message)
    bench.go_on(50)
    assert queue.renew(token) == bench.clock.now() + 60_000
    bench.go_on(59)
    queue.complete(token)
    assert queue.active_count == 2


def test_a_message_is_dead_lettered_after_its_last_delivery(bench: Bench, entity: QueueEntity, queue: MessageQueue):
    for _ in range(2):
        queue.abandon(token_of(queue.take(1)[0]))
    assert texts(queue.take(1)) == ["a"]
    bench.go_on(60)
    assert texts(queue.take(3)) == ["b", "c"]
    (message,) = dead(entity).take(1)
    assert message.dead_letter is not None
    assert message.dead_letter.reason == "MaxDeliveryCountExceeded"
    assert message.number == 1


def test_a_dead_lettered_message_keeps_reason_and_description(entity: QueueEntity, queue: MessageQueue):
    queue.dead_letter(token_of(queue.take(1)[0]), reason="unreadable", description="no alias")
    (message,) = dead(entity).take(1)
    assert message.dead_letter == ("unreadable", "no alias")
    assert entity.counts().dead_lettered == 1


def test_a_message_of_the_dead_letter_queue_stays_there_however_often_it_fails(
    bench: Bench, entity: QueueEntity, queue: MessageQueue
):
    queue.dead_letter(token_of(queue.take(1)[0]), reason=None, description=None)
    for _ in range(5):
        dead(entity).abandon(token_of(dead(entity).take(1)[0]))
    bench.go_on(10**9)
    (message,) = dead(entity).take(1)
    with pytest.raises(OperationNotAllowed):
        dead(entity).dead_letter(token_of(message), reason=None, description=None)


def test_a_deferred_message_is_received_by_its_sequence_number_only(queue: MessageQueue):
    (message,) = queue.take(1)
    queue.defer(token_of(message))
    assert texts(queue.take(3)) == ["b", "c"]
    (again,) = queue.take_deferred([1], session_id=None)
    assert again is message
    with pytest.raises(MessageNotFound):
        queue.take_deferred([1], session_id=None)
    queue.complete(token_of(again))
    assert queue.active_count == 2


def test_a_deferred_message_whose_lock_ends_is_deferred_again(bench: Bench, queue: MessageQueue):
    (message,) = queue.take(1)
    queue.defer(token_of(message))
    queue.take_deferred([1], session_id=None)
    bench.go_on(60)
    assert (message.state, message.delivery_count) == (MessageState.DEFERRED, 1)
    assert texts(queue.take(3)) == ["b", "c"]
    queue.take_deferred([1], session_id=None, delete=True)
    assert queue.active_count == 2


def test_receiving_by_sequence_number_takes_all_or_none(queue: MessageQueue):
    (message,) = queue.take(1)
    queue.defer(token_of(message))
    with pytest.raises(MessageNotFound):
        queue.take_deferred([1, 2], session_id=None)
    assert message.lock is None


def test_receive_and_delete_removes_at_once(queue: MessageQueue):
    assert texts(queue.take(2, delete=True)) == ["a", "b"]
    assert queue.active_count == 1


def test_peeking_sees_every_state_from_a_cursor_on_and_changes_nothing(
    bench: Bench, entity: QueueEntity, queue: MessageQueue
):
    entity.schedule([content("later", scheduled_for=bench.clock.now() + 1000)])
    locked, deferred = queue.take(2)
    queue.defer(token_of(deferred))
    seen = queue.peek(1, limit=10)
    assert texts(seen) == ["a", "b", "c", "later"]
    assert [message.state for message in seen] == [
        MessageState.ACTIVE,
        MessageState.DEFERRED,
        MessageState.ACTIVE,
        MessageState.SCHEDULED,
    ]
    assert texts(queue.peek(3, limit=1)) == ["c"]
    assert queue.peek(5, limit=10) == []
    queue.complete(token_of(locked))
    assert texts(queue.peek(0, limit=1)) == ["b"]


def test_a_scheduled_message_becomes_active_at_its_time_under_a_new_number(
    bench: Bench, entity: QueueEntity, queue: MessageQueue
):
    numbers = entity.schedule([content("later", scheduled_for=bench.clock.now() + 5000)])
    assert numbers == [4]
    bench.go_on(4.9)
    assert (entity.counts().active, entity.counts().scheduled) == (3, 1)
    bench.go_on(0.1)
    assert (entity.counts().active, entity.counts().scheduled) == (4, 0)
    message = queue.take(4)[-1]
    assert (message.number, message.enqueued_at) == (5, bench.clock.now())


def test_an_annotation_schedules_a_message_as_the_operation_does(bench: Bench, entity: QueueEntity):
    entity.send([content("later", scheduled_for=bench.clock.now() + 5000), content("now")])
    assert texts(entity.main.take(2)) == ["now"]
    bench.go_on(5)
    assert texts(entity.main.take(2)) == ["later"]


def test_a_scheduled_time_in_the_past_is_now(bench: Bench, entity: QueueEntity):
    entity.send([content("late", scheduled_for=bench.clock.now() - 1)])
    assert texts(entity.main.take(1)) == ["late"]


def test_cancelling_removes_scheduled_messages_all_or_none(bench: Bench, entity: QueueEntity):
    due = bench.clock.now() + 5000
    numbers = entity.schedule([content("x", scheduled_for=due), content("y", scheduled_for=due)])
    with pytest.raises(MessageNotFound):
        entity.cancel([*numbers, 99])
    entity.cancel([numbers[0], numbers[0]])
    bench.go_on(5)
    assert texts(entity.main.take(2)) == ["y"]
    with pytest.raises(MessageNotFound):
        entity.cancel([numbers[1]])


@pytest.mark.parametrize(("own", "default", "lives"), [(None, 10, 10), (5000, 10, 5), (20_000, 10, 10)])
def test_a_message_lives_for_its_own_time_or_the_entitys_if_that_is_shorter(
    bench: Bench, own: int | None, default: int, lives: int
):
    span = TimeSpan.of(timedelta(seconds=default))
    entity = bench.queue(QueueDescription("q", default_message_time_to_live=span))
    entity.send([content("x", time_to_live=own)])
    bench.go_on(lives - 0.001)
    assert entity.counts().active == 1
    bench.go_on(0.001)
    assert entity.counts().total == 0
    assert entity.main.take(1) == []


def test_an_expired_message_is_dead_lettered_where_the_entity_says_so(bench: Bench):
    entity = bench.queue(QueueDescription("q", dead_lettering_on_message_expiration=True))
    entity.send([content("x", time_to_live=1000)])
    bench.go_on(1)
    (message,) = dead(entity).take(1)
    assert message.dead_letter is not None
    assert message.dead_letter.reason == "TTLExpiredException"


def test_a_locked_message_expires_only_when_its_lock_ends(bench: Bench, entity: QueueEntity):
    entity.send([content(text, time_to_live=1000) for text in ("x", "y", "z")])
    settled, given_back, deferred = entity.main.take(3)
    bench.go_on(2)
    entity.main.complete(token_of(settled))
    entity.main.abandon(token_of(given_back))
    entity.main.defer(token_of(deferred))
    assert entity.counts().total == 0


def test_the_time_to_live_of_a_scheduled_message_begins_when_it_becomes_active(bench: Bench, entity: QueueEntity):
    entity.send([content("x", time_to_live=1000, scheduled_for=bench.clock.now() + 5000)])
    bench.go_on(5)
    assert entity.counts().active == 1
    bench.go_on(1)
    assert entity.counts().active == 0


def test_a_ping_is_accepted_and_never_delivered(entity: QueueEntity):
    entity.send([content("ping", ping=True)])
    assert entity.counts().total == 0
    assert entity.main.peek(0, limit=10) == []


@pytest.mark.parametrize("status", [EntityStatus.DISABLED, EntityStatus.SEND_DISABLED])
def test_an_entity_that_is_disabled_for_sending_refuses_messages(bench: Bench, status: EntityStatus):
    entity = bench.queue(QueueDescription("q", status=status))
    with pytest.raises(EntityDisabled, match="set it to Active"):
        entity.send([content("x")])


def test_a_batch_that_does_not_fit_is_refused_as_a_whole(bench: Bench):
    entity = bench.queue(QueueDescription("q", max_size_in_megabytes=1))
    with pytest.raises(QuotaExceeded, match="allowed: 1048576"):
        entity.send([content("x"), content("y" * 1024 * 1024)])
    assert entity.counts().total == 0


def test_what_waits_for_its_time_or_is_dead_counts_as_stored_until_it_is_settled(bench: Bench):
    entity = bench.queue(QueueDescription("q", max_size_in_megabytes=1))
    third = "x" * (1024 * 1024 // 3)
    entity.schedule([content(third, scheduled_for=bench.clock.now() + 60_000)])
    entity.send([content(third), content(third)])
    entity.main.dead_letter(token_of(entity.main.take(1)[0]), reason=None, description=None)
    with pytest.raises(QuotaExceeded):
        entity.send([content(third)])
    dead(entity).complete(token_of(dead(entity).take(1)[0]))
    entity.send([content(third)])
    with pytest.raises(QuotaExceeded):
        entity.send([content(third)])
    entity.main.take(1, delete=True)
    entity.send([content(third)])


def test_a_topic_is_as_full_as_what_its_subscriptions_hold(bench: Bench):
    topic = bench.topic(TopicDescription("t", max_size_in_megabytes=1))
    subscription = bench.subscription(SubscriptionDescription("t", "s"))
    topic.send([content("x" * 1024 * 1024)])
    with pytest.raises(QuotaExceeded, match="'t' holds 1048576 bytes"):
        topic.send([content("y")])
    subscription.main.complete(token_of(subscription.main.take(1)[0]))
    topic.send([content("y")])


def test_a_message_without_a_session_id_is_refused_where_sessions_are_required(bench: Bench):
    entity = bench.queue(QueueDescription("q", requires_session=True))
    with pytest.raises(OperationNotAllowed, match="message 1 of 2 has no session id"):
        entity.send([content("x", session_id="s"), content("y")])
    assert entity.counts().total == 0
