"""One session: its order, its lock, and what stops it (SPEC section 6)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from servicebus_pair.core.model.errors import LockLostError, ServerBusyError, TimedOutError
from servicebus_pair.core.syphon.backlog_entry import Selection
from servicebus_pair.core.syphon.batch_sender import DrainCounters
from servicebus_pair.core.syphon.session_worker import SessionWorker
from tests.core.support.fake_transport import FakeDestination, FakeQueue, drain_context
from tests.core.support.manual_clock import ManualClock


class FakeSession(FakeQueue):
    """A session of a backlog queue and the link that has accepted it."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.locked_until: float | None = clock.now() + 60
        self.renewed_for = 60.0

    async def renew(self, *, timeout: float) -> None:
        self._call("renew", timeout)
        self.locked_until = self.clock.now() + self.renewed_for


class Work:
    """A worker of a session for ``flights``."""

    def __init__(self, count: int = 0, **more: Any) -> None:
        self.context, transport, self.events = drain_context(**more)
        self.clock: ManualClock = transport.clock
        self.session = FakeSession(self.clock)
        self.flights: FakeDestination = transport.entities["flights"]
        self.counters, self.accepted = DrainCounters(), set[tuple[int, str]]()
        source: Any = self.session
        self.worker = SessionWorker(self.context, "q", source, counters=self.counters, accepted=self.accepted)
        self.session.put("flights", *(f"m{n}" for n in range(count)))

    async def steps(self, count: int = 1) -> list[bool]:
        return [await self.worker.step(wait=0.3) for _ in range(count)]

    @property
    def waiting(self) -> list[str]:
        return [entry.received.message_id or "" for entry in self.worker.waiting]


def numbered(count: int) -> list[str]:
    return [f"m{n}" for n in range(count)]


async def test_section_6_a_session_is_moved_in_growing_batches_until_it_is_empty() -> None:
    work = Work(150)
    assert await work.steps(4) == [True, True, True, False]
    assert [len(ids) for ids, _ in work.flights.attempts] == [16, 100, 34]
    assert (work.flights.ids, work.session.messages, work.counters.moved) == (numbered(150), [], {"flights": 150})
    assert work.worker.has_completed
    called = [name for name, _ in work.session.calls]
    assert called[:5] == ["receive", "request", "complete", "request", "receive"], "while a full batch is stored"
    assert work.session.called("request") == [16, 100, 100, 100]


@pytest.mark.parametrize(("continuous", "waits"), [(False, [0.3]), (True, [0.3, 0.3])])
async def test_section_6_a_drain_that_received_few_peeks_for_more_and_a_continuous_syphon_waits(
    continuous: bool, waits: list[float]
) -> None:
    work = Work(3, continuous=continuous)
    assert await work.steps(2) == [True, False]
    assert (work.session.waits, work.session.called("peek")) == (waits, [] if continuous else [(4, 1)])


async def test_section_6_silence_is_not_emptiness() -> None:
    work = Work(3)
    await work.steps()
    work.session.put("flights", "m3")
    assert await work.steps(2) == [True, False]
    assert work.flights.ids == numbered(4)


@pytest.mark.parametrize(
    ("error", "sizes"), [(TimedOutError("late"), [84, 50, 25]), (ServerBusyError("busy"), [84, 84, 84])]
)
async def test_section_6_what_was_not_sent_goes_first_and_nothing_overtakes_it(
    error: Exception, sizes: list[int]
) -> None:
    work = Work(100)
    await work.steps()
    work.flights.refuse = lambda _: error
    for _ in range(3):
        assert await work.steps() == [True]
        assert (work.worker.blocked_by, work.waiting) == ("flights", numbered(100)[16:])
        assert work.session.called("receive") == [16, 100], "nothing is received behind what waits"
        work.clock.time += 20
    assert [len(ids) for ids, _ in work.flights.attempts[1:]] == sizes
    work.flights.refuse = lambda _: None
    await work.steps(5)
    assert work.flights.ids == numbered(100)
    assert (work.worker.blocked_by, work.session.messages) == (None, [])


async def test_section_6_a_destination_in_backoff_is_not_tried() -> None:
    work = Work(3)
    work.context.backoff.record_failure("Flights", "busy", now=work.clock.now(), started=work.clock.now() - 1)
    assert await work.steps() == [True]
    assert (work.worker.blocked_by, work.flights.attempts) == ("flights", [])


@pytest.mark.parametrize(
    ("seconds", "sending", "renewals"),
    # A send may take 0.6 of what is left.
    [(30, 0, 0), (30.5, 0, 1), (59, 0, 1), (26.5, 20, 0), (26.8, 20, 1), (30, 18, 0), (30.5, 10, 1)],
)
async def test_section_6_a_lock_is_renewed_when_half_of_it_or_what_a_send_needs_is_over(
    seconds: float, sending: float, renewals: int
) -> None:
    work = Work(1)
    work.clock.time += seconds
    await work.worker.keep_lock(for_seconds=sending)
    assert len(work.session.called("renew")) == renewals


async def test_section_2_a_lock_is_renewed_for_a_send_that_may_take_longer_than_it_lasts() -> None:
    work = Work(1)
    work.context.attempts.record_timeout("flights", 10)
    work.context.attempts.record_timeout("flights", 20)
    work.clock.time += 15
    await work.steps()
    assert len(work.session.called("renew")) == 1
    assert work.flights.attempts == [(["m0"], 30.0)]


@pytest.mark.parametrize(("seconds", "sent"), [(35.0, True), (36.5, False)])
async def test_section_6_what_could_not_be_settled_within_the_lock_waits_and_is_sent_first(
    monkeypatch: pytest.MonkeyPatch, seconds: float, sent: bool
) -> None:
    work = Work(3)

    async def slow_open(**_: object) -> int:
        work.clock.time += seconds
        return 262_144

    with monkeypatch.context() as slow:
        slow.setattr(work.flights, "open", slow_open)
        assert await work.steps() == [True]
    assert (work.flights.ids, work.waiting) == ((numbered(3), []) if sent else ([], numbered(3)))
    assert (work.worker.blocked_by, work.context.backoff.errors()) == (None, {})
    await work.steps()
    assert (work.flights.ids, len(work.session.called("renew"))) == (numbered(3), 0 if sent else 1)


@given(
    timeouts=st.sampled_from([(), (10,), (10, 20)]),
    turns=st.lists(st.tuples(st.floats(0, 59), st.floats(1, 60)), min_size=1, max_size=5),
)
@example(timeouts=(10, 20), turns=[(0, 60), (40, 52), (4, 60)])
async def test_section_6_a_session_whose_renewals_are_answered_late_does_not_stand_still(
    timeouts: tuple[float, ...], turns: list[tuple[float, float]]
) -> None:
    work = Work()
    for seconds in timeouts:
        work.context.attempts.record_timeout("flights", seconds)
    for number, (later, renewed_for) in enumerate(turns):
        work.clock.time += later
        work.session.renewed_for = renewed_for
        work.session.put("flights", f"m{number}")
        await work.steps(2)
        assert work.flights.ids == numbered(number + 1)


async def test_section_6_a_lock_too_short_for_a_send_is_renewed_before_each_try() -> None:
    work = Work(1)
    work.session.renewed_for = 0.7
    work.clock.time += 31
    for renewals in (1, 2, 3):
        await work.steps()
        assert (work.waiting, len(work.session.called("renew"))) == (["m0"], renewals)
    work.session.renewed_for = 60
    await work.steps()
    assert work.flights.ids == ["m0"]


async def test_section_6_a_lock_that_seems_longer_than_a_minute_is_not_believed() -> None:
    context, transport, _ = drain_context()
    session: Any = FakeSession(transport.clock)
    session.locked_until = transport.clock.now() + 3600
    worker = SessionWorker(context, "q", session, counters=DrainCounters(), accepted=set())
    transport.clock.time += 31
    await worker.keep_lock()
    assert len(session.called("renew")) == 1


async def test_section_6_messages_that_were_sent_and_not_completed_are_completed_when_they_come_again() -> None:
    work = Work(3)
    work.session.errors["complete"] = LockLostError("lost")
    with pytest.raises(LockLostError):
        await work.steps()
    assert (work.accepted, work.flights.ids, work.worker.has_completed) == (
        {(1, "m0"), (2, "m1"), (3, "m2")},
        numbered(3),
        False,
    )
    assert work.counters.duplicates_possible == 3
    work.session.errors.clear()
    work.session.locked.clear()
    work.session.put("flights", "m3")
    assert await work.steps(2) == [True, False]
    assert (work.flights.ids, work.session.messages, work.accepted) == (numbered(4), [], set())


async def test_section_6_another_message_with_the_number_of_one_that_was_sent_is_sent() -> None:
    """A queue that was deleted and made again numbers its messages from the start."""
    work = Work(2)
    work.accepted.add((1, "of the old queue"))
    await work.steps(2)
    assert (work.flights.ids, work.session.messages) == (numbered(2), [])


async def test_section_6_a_message_for_another_destination_than_selected_stops_the_session() -> None:
    work = Work(2, selection=Selection.of(["delays"]))
    assert await work.steps() == [True]
    assert (work.worker.not_selected, work.flights.attempts, work.waiting) == (True, [], ["m0", "m1"])


async def test_section_6_messages_of_several_destinations_are_sent_in_turn() -> None:
    work = Work(2)
    work.session.put("delays", "d0")
    work.session.put("flights", "m2")
    await work.steps()
    assert [ids for ids, _ in work.flights.attempts] == [["m0", "m1"], ["m2"]]
    assert work.counters.moved == {"flights": 3, "delays": 1}


async def test_section_6_without_a_permit_the_lock_is_kept_and_the_session_is_not_over() -> None:
    work = Work(1, rate=0.02)
    assert await work.steps(4) == [True] * 4
    assert (len(work.session.called("renew")), work.session.called("receive")) == (1, [])
    assert await work.steps(2) == [True, True]
    assert work.flights.ids == ["m0"]


class Reports:
    """What a worker says of its session."""

    def __init__(self) -> None:
        self.watched: list[str] = []
        self.wanted = True
        self.said: list[tuple[str, str]] = []

    def watch(self, entity: str) -> None:
        self.watched.append(entity)

    def unwatch(self, entity: str) -> None:
        self.watched.remove(entity)

    def is_wanted(self, entity: str, queue: str) -> bool:
        return self.wanted and (entity, queue) not in self.said

    def caught_up(self, entity: str, queue: str) -> None:
        self.said.append((entity, queue))


async def test_section_6_a_worker_says_when_what_is_left_can_be_moved_in_five_seconds() -> None:
    reports = Reports()
    work = Work(300, rate=20.0, reports=reports)
    while not reports.said:
        assert await work.steps() == [True]
        assert bool(reports.said) is (len(work.session.messages) <= 100)
    assert (reports.said, reports.watched) == ([("flights", "q")], ["flights"])
    # Nobody asks, so nothing is peeked.
    peeks, reports.wanted = len(work.session.called("peek")), False
    assert await work.steps() == [True]
    assert len(work.session.called("peek")) == peeks
    work.worker.close()
    assert reports.watched == []


async def test_section_6_a_worker_whose_destination_takes_long_counts_on_no_more_than_that() -> None:
    reports = Reports()
    work = Work(40, reports=reports)

    def take_long(_: list[str]) -> None:
        work.clock.time += 8

    work.flights.refuse = take_long
    assert await work.steps() == [True]
    # 16 messages in 8 s, so that 10 can be moved in 5 s; 24 are left.
    assert (len(work.session.messages), reports.said) == (24, [])
    assert work.session.called("peek")[-1] == (16 + 10 + 1, 1)


async def test_section_6_a_worker_whose_destination_takes_no_time_counts_on_any_number() -> None:
    reports = Reports()
    work = Work(1_000, reports=reports)
    await work.steps()
    assert (len(work.session.messages), reports.said) == (984, [("flights", "q")])


async def test_section_6_permits_for_what_could_not_be_received_are_returned() -> None:
    work = Work(1, rate=50)
    work.clock.time += 1
    work.session.errors["receive"] = ServerBusyError("busy")
    with pytest.raises(ServerBusyError):
        await work.steps()
    assert work.context.rate_limiter._tokens == 50
