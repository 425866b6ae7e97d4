"""Single decisions of the drain of a session queue, on a manual clock (SPEC section 6)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Any

import pytest

from servicebus_pair.core.model.errors import (
    AuthorizationError,
    ServerBusyError,
    ServiceError,
    SessionLockedError,
    UnreachableError,
)
from servicebus_pair.core.syphon.backlog_entry import Selection
from servicebus_pair.core.syphon.batch_sender import DrainCounters
from servicebus_pair.core.syphon.drain_run import DrainRun
from servicebus_pair.core.syphon.policies.destination_backoff import MAX_CONSECUTIVE_FAILURES
from servicebus_pair.core.syphon.session_drain import SessionQueueDrain
from tests.core.support.fake_transport import EPOCH, FakeQueue, drain_context
from tests.core.support.manual_clock import ManualClock


class Link(FakeQueue):
    """A link that accepts a session, or does not."""

    def __init__(self, clock: ManualClock, session: str | ServiceError | None) -> None:
        super().__init__(clock)
        self.session = session
        self.locked_until = clock.now() + 60

    async def accept(self, *, timeout: float) -> str | None:
        assert timeout == 10.0
        if isinstance(self.session, ServiceError):
            raise self.session
        return self.session

    async def renew(self, *, timeout: float) -> None:
        self._call("renew", timeout)
        self.locked_until = self.clock.now() + 60


class Worker:
    """A worker of a session that is blocked by the entity ``flights``."""

    def __init__(self, waiting: int = 3, blocked_by: str = "flights") -> None:
        self.waiting = [None] * waiting
        self.blocked_by = blocked_by
        self.kept = 0
        self.on_keep: Callable[[], object] = lambda: None

    async def keep_lock(self) -> None:
        self.kept += 1
        self.on_keep()


class Drain:
    """A drain of the session queue ``q``.

    :ivar sessions: what can be accepted next; then none is available.
    :ivar listed: the ids of the sessions with messages, at each listing; the last one is repeated.
    :ivar counts: how many messages the queue has, in the same way.
    """

    def __init__(self, *, continuous: bool = False, count: bool = True, **more: Any) -> None:
        self.context, self.transport, _ = drain_context(continuous=continuous, **more)
        self.clock = self.transport.clock
        self.sessions: list[str | ServiceError | None] = []
        self.links: list[Link] = []
        self.asked: list[tuple[float, str | None]] = []
        self.listed: list[list[str] | ServiceError] = [[]]
        self.counts: list[int | ServiceError] = [0]
        self.counters = DrainCounters()
        transport: Any = self.transport
        transport.session, transport.list_sessions = self._session, self._list
        resumed = asyncio.Event()
        resumed.set()
        counting: dict[str, Any] = {"count_messages": self._count} if count else {}
        self.run = DrainRun(
            queue_count=1,
            continuous=continuous,
            wait_for_permissions=False,
            initial_delay=1.0,
            long_poll=900.0,
            max_links=1,
            resumed=resumed,
            stopped=asyncio.Event(),
            report_progress=lambda: None,
            **counting,
        )
        self.drain = SessionQueueDrain(self.context, self.run, "q", counters=self.counters)

    def _session(self, queue: str, *, wait: float, session_id: str | None, should_stop: Callable[[], bool]) -> Link:
        assert (queue, should_stop()) == ("q", False)
        self.asked.append((wait, session_id))
        self.links.append(Link(self.clock, self.sessions.pop(0) if self.sessions else None))
        return self.links[-1]

    async def _list(self, queue: str, *, timeout: float) -> list[str]:
        assert (queue, timeout) == ("q", 10.0)
        found = self.listed.pop(0) if len(self.listed) > 1 else self.listed[0]
        if isinstance(found, ServiceError):
            raise found
        return found

    async def _count(self, queues: Collection[str]) -> int:
        assert [*queues] == ["q"]
        found = self.counts.pop(0) if len(self.counts) > 1 else self.counts[0]
        if isinstance(found, ServiceError):
            raise found
        return found

    def fail(self, entity: str = "flights", times: int = 1) -> None:
        for _ in range(times):
            now = self.clock.now()
            self.clock.time += 1
            self.context.backoff.record_failure(entity, "busy", now=now, started=now + 0.5)

    async def work(self) -> float:
        """Return how many seconds the drain took."""
        async with asyncio.timeout(10):
            await self.drain.work()
        return self.clock.now() - EPOCH


async def test_an_empty_queue_is_drained_by_one_look() -> None:
    drain = Drain()
    assert await drain.work() == 0
    assert (drain.asked, drain.counters.left) == ([(0.3, None)], 0)
    assert drain.links[0].called("close") == [None]


@pytest.mark.parametrize("count", [True, False])
async def test_a_session_that_stays_locked_is_waited_for_as_long_as_a_lock_lasts(count: bool) -> None:
    drain = Drain(count=count)
    drain.listed, drain.counts = [["flights", "delays"]], [7]
    assert 65 < await drain.work() <= 65 + 5
    assert drain.counters.left == (7 if count else 2)
    assert drain.clock.sleeps[:5] == [2, 4, 5, 5, 5]
    assert [wait for wait, _ in drain.asked[:3]] == [0.3, 1.0, 1.0], "there are some: perhaps they take long to find"


@pytest.mark.parametrize("progress", ["sessions", "messages"])
async def test_progress_of_another_syphon_is_waited_for(progress: str) -> None:
    drain = Drain()
    drain.listed, drain.counts = [["flights"]], [7]
    looks = 20
    if progress == "sessions":
        drain.listed = [*(["flights"] if n % 2 else ["delays"] for n in range(looks)), ["flights"]]
    else:
        drain.counts = [*range(100, 100 - looks, -1), 99]
    assert 65 < await drain.work() - (2 + 4 + 5 * (looks - 3)) <= 65 + 10


async def test_messages_that_arrive_are_no_progress() -> None:
    drain = Drain()
    drain.listed, drain.counts = [["flights"]], [*range(100, 200)]
    assert 65 < await drain.work() <= 65 + 5


async def test_what_cannot_be_counted_is_at_least_a_message_for_each_session() -> None:
    drain = Drain()
    drain.listed, drain.counts = [["flights"]], [ServerBusyError("busy"), 5, AuthorizationError("no"), 99]
    await drain.work()
    assert drain.counters.left == 1


async def test_sessions_that_cannot_be_listed_end_nothing() -> None:
    drain = Drain()
    drain.listed = [UnreachableError("lost"), UnreachableError("lost"), []]
    assert await drain.work() == 2 + 4


async def test_a_queue_that_cannot_be_read_is_given_up_after_five_failures() -> None:
    drain = Drain()
    drain.sessions, drain.listed = [UnreachableError("lost") for _ in range(20)], [UnreachableError("lost")]
    await drain.work()
    # In between, it is found out whether the queue is empty.
    assert drain.clock.sleeps == [1, 2, 2, 4, 4, 5, 8, 5, 0]
    assert (len(drain.links), drain.counters.failures) == (5, {"q": "lost"})
    assert [link.called("close") for link in drain.links] == [[None]] * 5


async def test_with_a_selection_its_sessions_are_accepted_by_id_and_locked_ones_passed_over() -> None:
    drain = Drain(selection=Selection.of(["flights", "delays"]))
    drain.listed, drain.sessions = [["flights", "gates", "delays"], []], [SessionLockedError("held"), "flights"]
    await drain.work()
    assert drain.asked == [(1.0, "delays"), (1.0, "flights")]


async def test_a_continuous_drain_asks_for_any_session_for_long_and_for_selected_ones_after_pauses() -> None:
    drain = Drain(continuous=True)

    async def stop(seconds: float) -> None:
        drain.clock.time += seconds
        drain.clock.sleeps.append(seconds)
        if len(drain.clock.sleeps) == 7:
            drain.run.stopped.set()
        await asyncio.sleep(0)

    drain.clock.sleep = stop  # type: ignore[method-assign]
    drain.sessions = [None, None, *[UnreachableError("lost")] * 7]
    await drain.work()
    assert [wait for wait, _ in drain.asked] == [900.0] * 9
    assert drain.clock.sleeps == [1, 2, 4, 8, 16, 32, 64]


async def test_a_session_of_a_failing_destination_is_held_until_its_backoff_ends() -> None:
    drain, worker = Drain(), Worker()
    drain.run.active_sessions = 1
    drain.fail(times=4)  # eight seconds, of which one has passed
    counted = list[tuple[int, int]]()
    worker.on_keep = lambda: counted.append((drain.run.active_sessions, drain.run.held_sessions))
    held: Any = worker
    assert await drain.drain._hold(held, "flights")
    assert (drain.clock.sleeps, worker.kept, counted) == ([7], 1, [(0, 1)])
    assert (drain.run.active_sessions, drain.run.held_sessions) == (1, 0)


async def test_a_long_backoff_is_waited_for_in_steps_that_keep_the_lock() -> None:
    drain, worker = Drain(continuous=True), Worker()
    drain.fail(times=6)  # 32 seconds, of which one has passed
    held: Any = worker
    assert await drain.drain._hold(held, "flights")
    assert (drain.clock.sleeps, worker.kept) == ([10, 10, 10, 1], 4)


@pytest.mark.parametrize("reason", ["paused", "ended"])
async def test_a_held_session_is_given_back_when_the_drain_is_paused_or_ends(reason: str) -> None:
    drain, worker = Drain(), Worker(waiting=4)
    drain.fail(times=MAX_CONSECUTIVE_FAILURES)
    seen = list[dict[str, int]]()

    def end() -> None:
        seen.append(dict(drain.drain._abandoned))
        if len(seen) == 3:
            if reason == "paused":
                drain.context.paused = True
            else:
                drain.drain._ended.set()

    worker.on_keep = end
    held: Any = worker
    assert not await drain.drain._hold(held, "flights")
    assert (seen, drain.drain._abandoned) == ([{"flights": 4}] * 3, {})
    assert drain.clock.sleeps == [10, 10, 10]


@pytest.mark.parametrize(("held", "kept"), [(99, True), (100, False)])
@pytest.mark.parametrize("abandoned", [False, True])
async def test_beyond_a_hundred_held_sessions_others_are_given_back(held: int, kept: bool, abandoned: bool) -> None:
    drain, worker = Drain(count=False), Worker(waiting=4)
    drain.run.held_sessions = held
    drain.fail(times=MAX_CONSECUTIVE_FAILURES if abandoned else 2)
    worker.on_keep = drain.drain._ended.set
    holding: Any = worker
    await drain.drain._hold(holding, "flights")
    assert worker.kept == kept
    assert drain.drain._given_up == ({"flights": 4} if abandoned and not kept else {})
    assert drain.run.held_sessions == held
    if not kept:
        assert drain.clock.sleeps == [1]
        # What was given up is counted, and not served when the broker offers it again.
        drain.sessions, drain.listed = ["flights"], [["flights"]]
        assert await drain.drain._visit_session() is not abandoned
        assert await drain.drain._is_empty() is abandoned
        assert drain.counters.left == (4 if abandoned else 1)


@pytest.mark.simulated
async def test_a_session_that_waits_for_its_turn_keeps_its_lock() -> None:
    drain = Drain()
    drain.run.session_turns = asyncio.Semaphore(0)

    class Stepping(Worker):
        async def step(self, *, wait: float) -> bool:
            assert wait == 0.3
            return True

    worker: Any = Stepping()
    step = asyncio.create_task(drain.drain._step(worker))
    await asyncio.sleep(25)
    assert (worker.kept, step.done()) == (2, False)
    drain.run.session_turns.release()
    assert await step
    assert not drain.run.session_turns.locked()


@pytest.mark.parametrize("continuous", [False, True])
async def test_a_session_that_fails_is_given_back_after_growing_pauses_of_at_most_30_seconds(continuous: bool) -> None:
    drain, given_up = Drain(continuous=continuous), list[dict[str, int]]()
    for _ in range(7):
        link: Any = Link(drain.clock, "flights")
        link.errors["receive"] = UnreachableError("lost")
        await drain.drain._serve(link, "flights")
        assert link.called("close") == [None]
        given_up.append(dict(drain.drain._given_up))
    assert given_up == [*[{}] * 4, *[{} if continuous else {"flights": 1}] * 3]
    assert drain.clock.sleeps == [1, 2, 4, 8, 16, 30, 30]
    assert drain.run.active_sessions == 0
    link = Link(drain.clock, "flights")
    link.put("flights", "m0")
    await drain.drain._serve(link, "flights")
    assert (drain.drain._losses, drain.counters.moved) == ({}, {"flights": 1})


@pytest.mark.parametrize(("others", "moved"), [(14, 80), (15, 48)])
async def test_a_session_is_given_back_after_a_minute_if_no_more_can_be_served_at_a_time(
    others: int, moved: int
) -> None:
    drain = Drain(max_batch_messages=16)
    drain.run.active_sessions = others
    link: Any = Link(drain.clock, "flights")
    link.put("flights", *(f"m{n}" for n in range(80)))

    def take_long(_: list[str]) -> None:
        drain.clock.time += 30

    drain.transport.entities["flights"].refuse = take_long
    await drain.drain._serve(link, "flights")
    assert (drain.counters.moved, drain.run.active_sessions) == ({"flights": moved}, others)


async def test_a_session_of_another_entity_than_selected_is_given_back() -> None:
    drain = Drain(selection=Selection.of(["delays"]))
    link: Any = Link(drain.clock, "flights")
    link.put("flights", "m0")
    await drain.drain._serve(link, "flights")
    assert (drain.counters.moved, link.called("receive"), link.called("close")) == ({}, [16], [None])


async def test_pauses_grow_up_to_their_limit_and_begin_anew_after_progress() -> None:
    drain = Drain()
    for reset in (False, False, False, True, False):
        await drain.drain._pause(5, reset=reset)
    assert drain.clock.sleeps == [2, 4, 5, 1, 2]
    assert not drain.drain._note_progress()
    drain.counters.moved["flights"] += 1
    assert drain.drain._note_progress()
    assert drain.drain._last_progress_at == drain.clock.now() > EPOCH
    assert not drain.drain._note_progress()


async def test_an_unexpected_error_ends_the_whole_drain() -> None:
    drain = Drain()
    link: Any = Link(drain.clock, "flights")

    async def receive(**_: Any) -> None:
        raise RuntimeError("a bug")

    link.receive = receive
    await drain.drain._serve(link, "flights")
    drain.run.fail(RuntimeError("another"))
    with pytest.raises(RuntimeError, match="a bug"):
        await drain.run.failed
