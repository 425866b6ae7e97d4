"""Batch sizes, waiting entries, permits and settlement of one link (SPEC section 6)."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from servicebus_pair.core.model.errors import (
    AuthorizationError,
    EntityNotFoundError,
    LockLostError,
    ServerBusyError,
    ServiceError,
    TimedOutError,
)
from servicebus_pair.core.model.events import DeadLettered
from servicebus_pair.core.syphon.backlog_entry import Selection, TimeToLive
from servicebus_pair.core.syphon.drain_context import DrainContext
from servicebus_pair.core.syphon.queue_worker import QueueWorker
from tests.core.support.fake_transport import EPOCH, FakeDestination, FakeQueue, drain_context
from tests.core.support.manual_clock import ManualClock


class Work:
    """A worker of the queue ``q``, which holds messages for ``flights``."""

    def __init__(self, count: int = 0, **more: Any) -> None:
        context, transport, self.events = drain_context(**more)
        self.context: DrainContext = context
        self.clock: ManualClock = transport.clock
        self.queue: FakeQueue = transport.queues["q"]
        self.flights: FakeDestination = transport.entities["flights"]
        self.worker = QueueWorker(context, "q")
        self.put(count)

    def put(self, count: int, entity: str = "flights", **more: Any) -> None:
        start = self.queue._last
        self.queue.put(entity, *(f"m{n}" for n in range(start, start + count)), **more)

    async def steps(self, count: int = 1) -> list[int]:
        return [await self.worker.step(wait=0.3) for _ in range(count)]

    @property
    def waiting(self) -> int:
        return sum(map(len, self.worker.waiting_for_destination.values()))


def busy(_: object) -> ServerBusyError:
    return ServerBusyError("busy")


@pytest.mark.parametrize(("limit", "sizes"), [(100, [16, 100, 100, 64]), (10, [10, 10, 10, 10])])
async def test_section_6_full_batches_grow_up_to_the_limit(limit: int, sizes: list[int]) -> None:
    work = Work(280, max_batch_messages=limit)
    assert await work.steps(4) == sizes
    assert work.flights.ids == [f"m{n}" for n in range(sum(sizes))]
    assert (work.worker.counters.moved, work.worker.highest_sequence_number) == ({"flights": sum(sizes)}, sum(sizes))
    assert (len(work.queue.messages), work.queue.called("complete")) == (280 - sum(sizes), [10.0] * 4)
    assert work.worker.counters.duplicates_possible == 0


async def test_section_6_the_highest_number_is_found_in_any_order_as_of_a_partitioned_queue() -> None:
    work = Work(3)
    work.queue.messages[:] = [work.queue.messages[each] for each in (1, 2, 0)]
    await work.steps(1)
    assert work.worker.highest_sequence_number == 3


@pytest.mark.parametrize(
    ("count", "silent", "few"), [(7, False, True), (8, False, False), (8, True, True), (16, False, False)]
)
async def test_section_6_less_than_half_a_batch_or_silence_suggests_that_the_queue_is_nearly_empty(
    count: int, silent: bool, few: bool
) -> None:
    work = Work(count)
    work.queue.fell_silent = silent
    assert (work.worker.received_few, work.worker.highest_sequence_number) == (False, 0)
    await work.steps()
    assert work.worker.received_few is few
    assert work.worker.batch_size == (100 if count == 16 else 16)


async def test_section_6_large_messages_reduce_the_batch_size_until_smaller_ones_come() -> None:
    work = Work(max_batch_bytes=200_000)
    work.put(16, body="x" * 50_000)
    work.put(50)
    assert await work.steps(4) == [16, 3, 5, 7]


async def test_section_6_at_least_one_message_is_received_however_large() -> None:
    work = Work(max_batch_bytes=10)
    work.put(18)
    assert await work.steps(3) == [16, 1, 1]


@pytest.mark.parametrize(
    ("seconds", "sizes"), [(0.9, [16, 100, 100, 84]), (15.0, [16, 64, 100, 100]), (15.5, [16, 16, 16, 16])]
)
async def test_section_6_after_a_slow_batch_the_next_one_is_not_larger_and_after_a_quick_one_much_larger(
    seconds: float, sizes: list[int]
) -> None:
    work = Work(300)

    def slow(_: object) -> None:
        work.clock.time += seconds

    work.flights.refuse = slow
    assert await work.steps(4) == sizes


async def test_section_6_slow_batches_are_halved_down_to_the_first_size_and_further_if_sends_time_out() -> None:
    work, seconds = Work(800), 0.0

    def slow(_: object) -> TimedOutError | None:
        work.clock.time += seconds
        return TimedOutError("slow") if seconds > 30 else None

    work.flights.refuse = slow
    assert await work.steps(3) == [16, 100, 100]
    seconds = 20.0
    assert await work.steps(5) == [100, 50, 25, 16, 16]
    seconds = 31.0
    assert await work.steps(2) == [16, 8]


@pytest.mark.parametrize(("lock", "then"), [(60.0, [8, 32]), (5.0, [8, 32]), (1.7, [8, 32]), (1 / 0.6, [40, 0])])
async def test_section_6_messages_whose_locks_expire_are_abandoned_and_the_batch_shrinks_unless_locks_were_the_wait(
    monkeypatch: pytest.MonkeyPatch, lock: float, then: list[int]
) -> None:
    work = Work(40)
    work.queue.lock_seconds = lock

    async def slow_open(**_: object) -> int:
        work.clock.time += 0.6 * lock
        return 262_144

    with monkeypatch.context() as slow:
        slow.setattr(work.flights, "open", slow_open)
        assert await work.steps() == [16]
    assert work.queue.called("abandon") == [[f"m{n}" for n in range(16)]]
    assert (work.flights.attempts, work.waiting, work.context.backoff.errors()) == ([], 0, {})
    work.queue.lock_seconds = 60
    assert await work.steps(2) == then


async def test_section_6_entries_of_a_failing_destination_wait_locked_until_it_is_due() -> None:
    work = Work(3)
    work.flights.refuse = busy
    work.put(2, "delays")
    assert await work.steps() == [5]
    assert (work.waiting, work.worker.counters.moved, len(work.queue.locked)) == (3, {"delays": 2}, 5)
    assert work.context.backoff.errors() == {"flights": "busy"}
    assert work.context.backoff.next_retry(now=EPOCH) == EPOCH + 1
    assert await work.steps() == [0]
    assert (work.waiting, len(work.flights.attempts)) == (3, 1)
    work.clock.time = EPOCH + 30
    work.flights.refuse = lambda _: None
    received = len(work.queue.called("receive"))
    assert await work.steps() == [3]
    assert (work.waiting, work.flights.ids, len(work.queue.called("receive"))) == (0, ["m0", "m1", "m2"], received)
    assert (work.queue.messages, work.context.backoff.errors()) == ([], {})


async def test_section_6_waiting_entries_whose_locks_end_are_abandoned() -> None:
    work = Work(2)
    work.flights.refuse = busy
    await work.steps()
    work.clock.time = EPOCH + 36
    work.queue.errors["receive"] = ServerBusyError("busy")
    with pytest.raises(ServerBusyError):
        await work.steps()
    assert (work.queue.called("abandon"), work.waiting, work.worker.waiting_for_destination) == ([["m0", "m1"]], 0, {})


async def test_section_6_of_waiting_entries_only_those_whose_locks_end_are_abandoned() -> None:
    work = Work(2)
    for _ in range(9):
        work.context.backoff.record_failure("flights", "busy", now=EPOCH, started=EPOCH + 1)
    await work.steps()
    work.clock.time += 20
    work.put(2)
    await work.steps()
    work.clock.time = EPOCH + 36
    work.queue.errors["receive"] = ServerBusyError("busy")
    with pytest.raises(ServerBusyError):
        await work.steps()
    assert (work.queue.called("abandon"), work.waiting) == ([["m0", "m1"]], 2)


async def test_section_6_at_most_four_batches_wait_and_the_others_are_left_to_their_locks() -> None:
    work = Work(60, max_batch_messages=10)
    work.flights.refuse = busy
    assert await work.steps(5) == [10] * 5
    assert (work.waiting, len(work.queue.locked), len(work.flights.attempts)) == (40, 50, 1)
    await work.worker.release()
    assert (work.queue.called("abandon"), work.waiting) == ([[f"m{n}" for n in range(40)]], 0)
    assert ("drain_credit", 2.0) in work.queue.calls


@pytest.mark.parametrize(
    ("count", "unlike", "requested"),
    [(16, "", [16, 100]), (15, "", []), (16, "limited", []), (16, "paused", []), (16, "waiting", [16])],
)
async def test_section_6_a_full_batch_is_completed_with_a_request_for_more_and_release_takes_it_back(
    count: int, unlike: str, requested: list[int]
) -> None:
    work = Work(count, rate=1000 if unlike == "limited" else None)
    if unlike == "limited":
        work.clock.time += 1
        work.worker._received_full_batch = True
    elif unlike == "paused":
        work.context.paused = True
    elif unlike == "waiting":
        work.queue.messages.pop()
        work.put(1, "delays")
        work.context.backoff.record_failure("delays", "busy", now=EPOCH, started=EPOCH)
    await work.steps()
    assert (work.flights.ids[:15], work.queue.called("request")) == ([f"m{n}" for n in range(15)], requested)
    work.worker.waiting_for_destination.clear()
    work.worker._locked.clear()
    work.queue.calls.clear()
    await work.worker.release()
    assert work.queue.called("drain_credit") == [2.0] * bool(requested)
    await work.worker.release()
    assert work.queue.called("drain_credit") == [2.0] * bool(requested), "once"


async def test_section_6_what_a_lost_link_has_received_is_not_sent_as_it_comes_again() -> None:
    work = Work(16)
    work.queue.errors["request"] = ServerBusyError("lost")
    with pytest.raises(ServerBusyError, match="lost"):
        await work.steps()
    assert (work.flights.attempts, work.queue.called("abandon")) == ([], [[f"m{n}" for n in range(16)]])


async def test_section_6_release_without_locked_messages_calls_nothing_and_a_failed_one_is_no_error() -> None:
    work = Work(1)
    await work.steps()
    work.queue.calls.clear()
    await work.worker.detach()
    assert work.queue.calls == [("detach", None)]
    work.put(1)
    work.flights.refuse = busy
    await work.steps()
    work.queue.errors["drain_credit"] = ServerBusyError("busy")
    await work.worker.detach()
    assert (work.queue.called("abandon"), work.queue.calls[-1]) == ([], ("detach", None))


@pytest.mark.parametrize(
    ("locked", "moved", "abandoned"),
    [
        ({1}, ["b1", "c2", "b4", "-5"], ["a3"]),
        ({2}, ["a0", "c2", "a3", "-5"], ["b4"]),
        ({1, 2, 6}, ["c2"], ["a3", "b4"]),
        (set(), ["a0", "b1", "c2", "a3", "b4", "-5"], None),
    ],
)
async def test_section_6_in_the_old_form_no_message_overtakes_an_earlier_one_of_its_session(
    locked: set[int], moved: list[str], abandoned: list[str] | None
) -> None:
    work = Work(ordered=True, max_batch_messages=6)
    for number, session in enumerate("abcab-"):
        work.queue.put("flights", f"{session}{number}", session_id=None if session == "-" else session)
    work.queue.locked |= locked
    await work.steps()
    assert (work.flights.ids, work.queue.called("peek")) == (moved, [(1, 6)])
    assert work.queue.called("abandon") == ([] if abandoned is None else [abandoned])
    assert work.worker.held_back is (abandoned is not None)
    work.queue.locked.clear()
    await work.steps(2)
    for session in "abc":
        arrived = [name for name in work.flights.ids if name[0] == session]
        assert arrived == sorted(arrived)
    assert work.queue.messages == []


async def test_section_6_in_the_old_form_messages_wait_in_order_behind_a_failing_destination(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    work = Work(ordered=True)
    work.put(2, session_id="a")
    work.flights.refuse = busy
    await work.steps()
    work.put(1, session_id="a")
    work.put(1, "delays", session_id="a")
    receive = work.queue.receive

    async def receive_while_the_entity_recovers(**given: Any) -> list[Any]:
        work.context.backoff.record_success("flights")
        work.flights.refuse = lambda _: None
        return await receive(**given)

    monkeypatch.setattr(work.queue, "receive", receive_while_the_entity_recovers)
    delays: FakeDestination = work.context.transport.destination("delays")  # type: ignore[assignment]
    await work.steps()
    assert (work.flights.ids, delays.ids) == ([], ["m3"])
    await work.steps()
    assert work.flights.ids == ["m0", "m1", "m2"]


@pytest.mark.parametrize("ordered", [False, True])
async def test_section_6_what_waited_for_a_destination_is_sent_one_batch_at_a_time(ordered: bool) -> None:
    work = Work(30, max_batch_messages=10, ordered=ordered)
    work.flights.refuse = busy
    await work.steps(3)
    assert (work.waiting, work.flights.ids) == (30, [])
    work.context.backoff.record_success("flights")
    await work.steps()
    assert (work.waiting, work.flights.ids) == (30, [])
    assert [each.received.message_id for each in work.worker.waiting_for_destination["flights"]][:11] == [
        f"m{n}" for n in range(11)
    ]
    work.context.backoff.record_success("flights")
    work.flights.refuse = lambda _: None
    for sent in (10, 20, 30):
        await work.steps()
        assert (work.waiting, work.flights.ids) == (30 - sent, [f"m{n}" for n in range(sent)])
    assert work.queue.called("request") == [10, 10], "with the first batch, and once nothing waits any more"


async def test_section_6_in_the_old_form_nothing_is_sent_behind_a_message_whose_lock_ends() -> None:
    work = Work(ordered=True)
    work.flights.refuse = busy
    work.put(1, session_id="a")
    await work.steps()
    work.clock.time += 20
    work.put(1, session_id="a")
    work.context.backoff.record_failure("flights", "busy", now=work.clock.time + 5, started=work.clock.time + 5)
    await work.steps()
    assert work.waiting == 2
    work.clock.time += 20
    work.flights.refuse = lambda _: None
    await work.steps()
    assert work.queue.called("abandon") == [["m0", "m1"]]
    await work.steps()
    assert work.flights.ids == ["m0", "m1"]


async def test_section_6_in_the_old_form_a_failing_peek_releases_the_batch() -> None:
    work = Work(ordered=True)
    work.put(2, session_id="a")
    work.queue.errors["peek"] = ServerBusyError("busy")
    with pytest.raises(ServerBusyError):
        await work.steps()
    assert (work.queue.called("abandon"), work.queue.locked, work.flights.ids) == ([["m0", "m1"]], set(), [])


@pytest.mark.parametrize("opened", [False, True])
async def test_section_6_messages_to_a_missing_entity_are_dead_lettered(opened: bool) -> None:
    work = Work(2)
    work.queue.put(None, "lost sheep")
    gone = EntityNotFoundError("gone")
    if opened:
        work.flights.refuse = lambda _: gone
    else:
        work.flights.open_error = gone
    assert await work.steps() == [3]
    assert work.queue.dead == [("lost sheep", "NoPath"), ("m0", "EntityNotFound"), ("m1", "EntityNotFound")]
    assert work.worker.counters.dead_lettered == {"NoPath": 1, "EntityNotFound": 2}
    assert work.events == [DeadLettered("q", name, reason, EPOCH) for name, reason in work.queue.dead]
    assert (work.worker._locked, work.context.backoff.errors()) == ({}, {})


async def test_section_6_whatever_one_message_raises_dead_letters_it_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    work = Work(6)
    unreadable, unpackable = work.queue.messages[1], work.queue.messages[3]
    del unreadable.message_id

    def batch_key(message: Any) -> None:
        if message.properties.message_id == unpackable.message_id:
            raise KeyError("VALUE")

    monkeypatch.setattr(FakeQueue, "receive", _receive_without_locks)
    monkeypatch.setattr(work.flights, "batch_key", batch_key)
    assert await work.steps() == [6]
    assert work.flights.ids == ["m0", "m2", "m4", "m5"]
    assert work.worker.counters.dead_lettered == {"Unreadable": 2}
    assert sum("is dead-lettered reason=Unreadable" in message for message in caplog.messages) == 2


async def _receive_without_locks(queue: FakeQueue, **_: object) -> list[Any]:
    for each in queue.messages:
        each.locked_until = None
    del queue.messages[1].locked_until
    return list(queue.messages)


async def test_section_6_an_expired_message_is_dead_lettered_if_its_time_to_live_elapses() -> None:
    work = Work(time_to_live=TimeToLive.ELAPSE)
    for seconds in (1, 100):
        work.put(1, time_to_live=timedelta(seconds=seconds))
    work.clock.time += 2
    await work.steps()
    assert (work.queue.dead, work.flights.ids) == ([("m0", "Expired")], ["m1"])


@pytest.mark.parametrize("reason", ["redrive", "failure"])
async def test_section_6_messages_that_cannot_be_dead_lettered_stay(reason: str) -> None:
    work = Work(1, redrive=reason == "redrive")
    work.flights.open_error = EntityNotFoundError("gone")
    work.queue.errors["dead_letter"] = LockLostError("lost")
    await work.steps()
    assert (work.queue.dead, work.worker.counters.dead_lettered, len(work.queue.messages)) == ([], {}, 1)
    assert work.worker.skipped == ({1} if reason == "redrive" else set())
    assert work.worker.counters.failures == ({} if reason == "redrive" else {"q": "lost"})
    assert len(work.worker._locked) == 1


@pytest.mark.parametrize(
    ("continuous", "worked", "permanent"), [(False, False, True), (False, True, False), (True, False, False)]
)
async def test_section_6_a_destination_that_never_accepted_the_credential_is_abandoned(
    continuous: bool, worked: bool, permanent: bool
) -> None:
    work = Work(1, continuous=continuous)
    if worked:
        await work.steps()
        work.put(1)
    work.flights.refuse = lambda _: AuthorizationError("no")
    await work.steps()
    assert "the right Send on flights is needed" in work.context.backoff.errors()["flights"]
    assert work.context.backoff.is_abandoned("flights") is permanent
    assert work.context.backoff.next_retry(now=EPOCH) == (None if permanent else EPOCH + 1)
    assert set(work.context.permanent_failures.errors) == (set() if worked else {"flights"})


@pytest.mark.parametrize(("paused", "timeout"), [(False, 10.0), (True, 2.0)])
async def test_section_6_unconfirmed_completions_are_possible_duplicates(paused: bool, timeout: float) -> None:
    work = Work(3, paused=paused)
    work.queue.errors["complete"] = LockLostError("lost")
    await work.steps()
    assert (work.worker.counters.duplicates_possible, work.queue.called("complete")) == (3, [timeout])
    assert (work.worker._locked, work.worker._sender.confirmed) == ({}, [])


async def test_section_6_a_cancelled_completion_counts_possible_duplicates(monkeypatch: pytest.MonkeyPatch) -> None:
    work = Work(3)
    started = asyncio.Event()

    async def hang(*_: object, **__: object) -> None:
        started.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(work.queue, "complete", hang)
    step = asyncio.create_task(work.worker.step(wait=1))
    await started.wait()
    step.cancel()
    with pytest.raises(asyncio.CancelledError):
        await step
    assert work.worker.counters.duplicates_possible == 3


async def test_section_6_unselected_messages_are_skipped_and_few_stay_locked() -> None:
    work = Work(max_batch_messages=2, selection=Selection.of(["flights"]))
    work.put(12, "delays")
    work.put(1)
    await work.steps(7)
    assert (work.worker.skipped, work.flights.ids) == (set(range(1, 13)), ["m12"])
    assert len(work.worker._locked) == 8
    work.queue.locked.clear()
    work.worker._locked.clear()
    await work.steps()
    assert (len(work.worker._locked), work.worker.clone().skipped is work.worker.skipped) == (2, True)


async def test_section_6_without_a_permit_for_ten_seconds_all_locks_are_released() -> None:
    work = Work(1, rate=0.05)
    await work.steps()
    assert work.clock.sleeps == pytest.approx([10, 10])
    assert [call[0] for call in work.queue.calls] == ["detach", "receive", "complete"]
    assert work.queue.called("receive") == [1]


async def test_section_6_waiting_entries_need_no_further_permit() -> None:
    work = Work(2, rate=0.05)
    work.flights.refuse = busy
    await work.steps()
    work.context.backoff.record_failure("flights", "busy", now=work.clock.time + 5, started=work.clock.time + 5)
    started = work.clock.time
    assert await work.steps() == [0]
    assert (work.clock.time, len(work.queue.called("receive"))) == (pytest.approx(started + 1), 1)


async def test_section_6_unused_permits_are_returned_and_a_full_batch_takes_more() -> None:
    work = Work(rate=50, max_batch_messages=16)
    work.clock.time += 1
    work.queue.errors["receive"] = ServerBusyError("busy")
    with pytest.raises(ServerBusyError):
        await work.steps()
    assert work.context.rate_limiter._tokens == 50
    del work.queue.errors["receive"]
    await work.steps()
    assert work.context.rate_limiter._tokens == pytest.approx(50)
    work.put(40)
    work.clock.time += 1
    await work.steps(3)
    assert work.queue.called("receive") == [1, 1, 1, 16, 16]
    assert work.context.rate_limiter._tokens == pytest.approx(50 - 33)


async def test_a_clone_starts_with_the_batch_size_and_counters_of_its_worker() -> None:
    work = Work(16)
    await work.steps()
    clone = work.worker.clone()
    assert (clone.batch_size, clone.counters) == (100, work.worker.counters)
    assert clone._sender.recent_max_bytes == work.worker._sender.recent_max_bytes > 1


async def test_a_failure_of_the_queue_itself_is_raised() -> None:
    work = Work(1)
    work.flights.refuse = lambda _: RuntimeError("a bug")
    with pytest.raises(RuntimeError):
        await work.steps()
    work.queue.errors |= {"receive": ServerBusyError("r"), "peek": ServerBusyError("p")}
    with pytest.raises(ServiceError, match="r"):
        await work.steps()
    with pytest.raises(ServiceError, match="p"):
        await work.worker.peek(7, max_messages=5)
    assert work.queue.called("peek") == [(7, 5)]
