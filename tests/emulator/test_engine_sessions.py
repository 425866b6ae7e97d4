"""EMULATOR 1: sessions, on a clock of our own."""

from __future__ import annotations

from datetime import timedelta

import pytest

from servicebus_emulator.engine.descriptions import QueueDescription
from servicebus_emulator.engine.errors import OperationNotAllowed, SessionCannotBeLocked, SessionLockLost
from servicebus_emulator.engine.queue import MessageQueue
from servicebus_emulator.engine.sessions import SessionHold
from servicebus_emulator.engine.timespan import TimeSpan
from tests.emulator.broker import Bench, content, texts, token_of


@pytest.fixture
def queue(bench: Bench) -> MessageQueue:
    minute = TimeSpan.of(timedelta(minutes=1))
    entity = bench.queue(QueueDescription("flights", requires_session=True, lock_duration=minute))
    entity.send([content(text, session_id=text[0]) for text in ("N1", "M1", "N2", "M2")])
    return entity.main


def accept(queue: MessageQueue, session_id: str | None = None) -> SessionHold:
    hold = queue.accept_session(session_id)
    assert hold is not None
    return hold


def test_a_session_gives_its_own_messages_in_order(queue: MessageQueue):
    assert texts(queue.take(10, hold=accept(queue, "M"))) == ["M1", "M2"]


def test_the_next_available_session_is_the_one_that_waited_longest(queue: MessageQueue):
    assert accept(queue).session_id == "N"
    assert accept(queue).session_id == "M"
    assert queue.accept_session(None) is None


def test_a_session_has_one_receiver_at_a_time(queue: MessageQueue):
    hold = accept(queue, "N")
    with pytest.raises(SessionCannotBeLocked):
        queue.accept_session("N")
    queue.close_session(hold)
    assert accept(queue, "N").session_id == "N"


def test_a_session_can_be_accepted_before_it_has_messages(queue: MessageQueue):
    assert queue.take(1, hold=accept(queue, "unknown")) == []


def test_a_receiver_that_deletes_keeps_its_session_until_it_closes(bench: Bench, queue: MessageQueue):
    hold = queue.accept_session("N", lasting=True)
    assert hold is not None
    assert (hold.until, queue.renew_session("N")) == (bench.clock.now() + 60_000, bench.clock.now() + 60_000)
    bench.go_on(3600)
    assert texts(queue.take(1, hold=hold, delete=True)) == ["N1"]
    queue.close_session(hold)
    assert accept(queue, "N") is not hold


def test_closing_a_session_gives_its_messages_back_without_counting(queue: MessageQueue):
    hold = accept(queue, "N")
    taken = queue.take(2, hold=hold)
    queue.close_session(hold)
    assert [message.delivery_count for message in taken] == [0, 0]
    assert texts(queue.take(2, hold=accept(queue, "N"))) == ["N1", "N2"]


def test_a_session_lock_that_expires_counts_a_delivery_and_is_reported(bench: Bench, queue: MessageQueue):
    hold = accept(queue, "N")
    taken = queue.take(1, hold=hold)
    bench.go_on(60)
    assert bench.namespace.take_effects().lost == (hold,)
    assert taken[0].delivery_count == 1
    with pytest.raises(SessionLockLost):
        queue.take(1, hold=hold)
    assert texts(queue.take(2, hold=accept(queue, "N"))) == ["N1", "N2"]


def test_a_renewed_session_keeps_the_locks_of_its_messages(bench: Bench, queue: MessageQueue):
    hold = accept(queue, "N")
    (message,) = queue.take(1, hold=hold)
    bench.go_on(50)
    assert queue.renew_session("N") == bench.clock.now() + 60_000
    bench.go_on(50)
    queue.complete(token_of(message))
    assert texts(queue.take(2, hold=hold)) == ["N2"]


def test_a_message_of_a_session_has_no_lock_of_its_own_to_renew(queue: MessageQueue):
    (message,) = queue.take(1, hold=accept(queue, "N"))
    with pytest.raises(OperationNotAllowed):
        queue.renew(token_of(message))


def test_the_state_of_a_session_outlives_its_lock(queue: MessageQueue):
    hold = accept(queue, "N")
    queue.set_session_state("N", b"half way")
    queue.close_session(hold)
    with pytest.raises(SessionLockLost):
        queue.session_state("N")
    accept(queue, "N")
    assert queue.session_state("N") == b"half way"
    queue.set_session_state("N", None)
    assert queue.session_state("N") is None


def test_a_deferred_message_is_received_within_its_session_only(queue: MessageQueue):
    hold = accept(queue, "N")
    queue.defer(token_of(queue.take(1, hold=hold)[0]))
    with pytest.raises(SessionLockLost):
        queue.take_deferred([1], session_id="M")
    assert texts(queue.take_deferred([1], session_id="N")) == ["N1"]


def test_a_session_that_is_empty_waits_for_nobody(queue: MessageQueue):
    hold = accept(queue, "N")
    for message in queue.take(2, hold=hold):
        queue.complete(token_of(message))
    queue.close_session(hold)
    assert accept(queue).session_id == "M"
    assert queue.accept_session(None) is None


def test_sessions_are_listed_by_their_messages_and_their_states(bench: Bench, queue: MessageQueue):
    begun = bench.clock.now()
    assert queue.session_ids() == ["M", "N"]
    hold = accept(queue, "N")
    taken = queue.take(2, hold=hold)
    assert queue.session_ids() == ["M", "N"]
    for message in taken:
        queue.complete(token_of(message))
    assert queue.session_ids() == ["M"]
    bench.go_on(1)
    queue.set_session_state("N", b"x")
    assert queue.session_ids() == ["M", "N"]
    assert queue.session_ids(state_after=begun) == ["N"]
    assert queue.session_ids(state_after=begun + 1000) == []
    queue.set_session_state("N", None)
    assert queue.session_ids() == ["M"]
    assert queue.session_ids(state_after=begun) == []


def test_a_session_whose_messages_are_deferred_is_listed_and_one_whose_are_scheduled_is_not(bench: Bench):
    entity = bench.queue(QueueDescription("q", requires_session=True))
    entity.send([content("x", session_id="deferred")])
    entity.schedule([content("x", session_id="scheduled", scheduled_for=bench.clock.now() + 1000)])
    (message,) = entity.main.take(1, hold=entity.main.accept_session("deferred"))
    entity.main.defer(token_of(message))
    assert entity.main.session_ids() == ["deferred"]


def test_a_queue_without_sessions_has_none_to_accept(bench: Bench):
    with pytest.raises(OperationNotAllowed):
        bench.queue(QueueDescription("plain")).main.accept_session("N")
