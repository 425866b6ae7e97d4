"""Session locks, session state and receiving from sessions."""

from __future__ import annotations

from datetime import timedelta

import pytest

from servicebus_emulator.engine.model.descriptions import QueueDescription
from servicebus_emulator.engine.model.errors import OperationNotAllowed, SessionCannotBeLocked, SessionLockLost
from servicebus_emulator.engine.model.session_locks import SessionLock
from servicebus_emulator.engine.model.timespan import TimeSpan
from servicebus_emulator.engine.queue.queue import MessageQueue
from tests.emulator.support.engine import EngineHarness, content, texts, token_of


@pytest.fixture
def queue(harness: EngineHarness) -> MessageQueue:
    minute = TimeSpan.of(timedelta(minutes=1))
    entity = harness.queue(QueueDescription("flights", requires_session=True, lock_duration=minute))
    entity.send([content(text, session_id=text[0]) for text in ("N1", "M1", "N2", "M2")])
    return entity.main


def accept(queue: MessageQueue, session_id: str | None = None) -> SessionLock:
    lock = queue.accept_session(session_id)
    assert lock is not None
    return lock


def test_a_session_receiver_gets_only_its_session_in_order(queue: MessageQueue):
    assert texts(queue.receive(10, session_lock=accept(queue, "M"))) == ["M1", "M2"]


def test_the_next_available_session_is_the_one_available_longest(queue: MessageQueue):
    assert accept(queue).session_id == "N"
    assert accept(queue).session_id == "M"
    assert queue.accept_session(None) is None


def test_a_session_has_one_receiver_at_a_time(queue: MessageQueue):
    lock = accept(queue, "N")
    with pytest.raises(SessionCannotBeLocked):
        queue.accept_session("N")
    queue.close_session(lock)
    assert accept(queue, "N").session_id == "N"


def test_a_session_can_be_accepted_before_it_has_messages(queue: MessageQueue):
    assert queue.receive(1, session_lock=accept(queue, "unknown")) == []


def test_a_receive_and_delete_session_lock_never_expires(harness: EngineHarness, queue: MessageQueue):
    lock = queue.accept_session("N", never_expires=True)
    assert lock is not None
    assert (lock.locked_until, queue.renew_session_lock("N")) == (
        harness.clock.now() + 60_000,
        harness.clock.now() + 60_000,
    )
    harness.advance(3600)
    assert texts(queue.receive(1, session_lock=lock, delete=True)) == ["N1"]
    queue.close_session(lock)
    assert accept(queue, "N") is not lock


def test_close_session_returns_messages_without_incrementing_delivery_counts(queue: MessageQueue):
    lock = accept(queue, "N")
    received = queue.receive(2, session_lock=lock)
    queue.close_session(lock)
    assert [message.delivery_count for message in received] == [0, 0]
    assert texts(queue.receive(2, session_lock=accept(queue, "N"))) == ["N1", "N2"]


def test_an_expired_session_lock_increments_delivery_counts_and_is_reported(
    harness: EngineHarness, queue: MessageQueue
):
    lock = accept(queue, "N")
    received = queue.receive(1, session_lock=lock)
    harness.advance(60)
    assert harness.namespace.take_effects().lost_session_locks == (lock,)
    assert received[0].delivery_count == 1
    with pytest.raises(SessionLockLost):
        queue.receive(1, session_lock=lock)
    assert texts(queue.receive(2, session_lock=accept(queue, "N"))) == ["N1", "N2"]


def test_renewing_a_session_lock_keeps_message_locks(harness: EngineHarness, queue: MessageQueue):
    lock = accept(queue, "N")
    (message,) = queue.receive(1, session_lock=lock)
    harness.advance(50)
    assert queue.renew_session_lock("N") == harness.clock.now() + 60_000
    harness.advance(50)
    queue.complete(token_of(message))
    assert texts(queue.receive(2, session_lock=lock)) == ["N2"]


def test_the_lock_of_a_session_message_cannot_be_renewed(queue: MessageQueue):
    (message,) = queue.receive(1, session_lock=accept(queue, "N"))
    with pytest.raises(OperationNotAllowed):
        queue.renew_lock(token_of(message))


def test_session_state_outlives_the_session_lock(queue: MessageQueue):
    lock = accept(queue, "N")
    queue.set_session_state("N", b"half way")
    queue.close_session(lock)
    with pytest.raises(SessionLockLost):
        queue.session_state("N")
    accept(queue, "N")
    assert queue.session_state("N") == b"half way"
    queue.set_session_state("N", None)
    assert queue.session_state("N") is None


def test_a_deferred_message_is_received_only_within_its_session(queue: MessageQueue):
    lock = accept(queue, "N")
    queue.defer(token_of(queue.receive(1, session_lock=lock)[0]))
    with pytest.raises(SessionLockLost):
        queue.receive_deferred([1], session_id="M")
    assert texts(queue.receive_deferred([1], session_id="N")) == ["N1"]


def test_an_empty_session_is_not_available(queue: MessageQueue):
    lock = accept(queue, "N")
    for message in queue.receive(2, session_lock=lock):
        queue.complete(token_of(message))
    queue.close_session(lock)
    assert accept(queue).session_id == "M"
    assert queue.accept_session(None) is None


def test_session_ids_lists_sessions_with_messages_or_state(harness: EngineHarness, queue: MessageQueue):
    started = harness.clock.now()
    assert queue.session_ids() == ["M", "N"]
    lock = accept(queue, "N")
    received = queue.receive(2, session_lock=lock)
    assert queue.session_ids() == ["M", "N"]
    for message in received:
        queue.complete(token_of(message))
    assert queue.session_ids() == ["M"]
    harness.advance(1)
    queue.set_session_state("N", b"x")
    assert queue.session_ids() == ["M", "N"]
    assert queue.session_ids(state_after=started) == ["N"]
    assert queue.session_ids(state_after=started + 1000) == []
    queue.set_session_state("N", None)
    assert queue.session_ids() == ["M"]
    assert queue.session_ids(state_after=started) == []


def test_session_ids_includes_deferred_but_not_scheduled_messages(harness: EngineHarness):
    entity = harness.queue(QueueDescription("q", requires_session=True))
    entity.send([content("x", session_id="deferred")])
    entity.schedule([content("x", session_id="scheduled", scheduled_for=harness.clock.now() + 1000)])
    (message,) = entity.main.receive(1, session_lock=entity.main.accept_session("deferred"))
    entity.main.defer(token_of(message))
    assert entity.main.session_ids() == ["deferred"]
