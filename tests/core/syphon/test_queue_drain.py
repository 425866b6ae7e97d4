"""When the drain of one queue receives, peeks, pauses and ends (SPEC section 6)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from servicebus_pair.core.model.errors import AuthorizationError, ServerBusyError, ServiceError, UnreachableError
from servicebus_pair.core.syphon.backlog_entry import Selection
from servicebus_pair.core.syphon.batch_sender import DrainCounters
from servicebus_pair.core.syphon.drain_run import DrainRun
from servicebus_pair.core.syphon.queue_drain import QueueDrain
from tests.core.support.fake_transport import EPOCH, FakeDestination, FakeQueue, drain_context

BUSY = ServerBusyError("busy")
DENIED = AuthorizationError("no")
LOST = UnreachableError("lost")


class Drain:
    """A drain of the queue ``q``, which holds messages for ``flights``.

    :ivar on_progress: called after each step.
    """

    def __init__(
        self, count: int = 0, *, continuous: bool = False, run: dict[str, Any] | None = None, **more: Any
    ) -> None:
        self.context, transport, _ = drain_context(continuous=continuous, **more)
        self.transport, self.clock = transport, transport.clock
        self.queue: FakeQueue = transport.queues["q"]
        self.flights: FakeDestination = transport.entities["flights"]
        self.counters = DrainCounters()
        self.on_progress: Callable[[], object] = lambda: None
        resumed = asyncio.Event()
        resumed.set()
        given: dict[str, Any] = {"queue_count": 1, "wait_for_permissions": False, "max_links": 1, **(run or {})}
        self.run = DrainRun(
            continuous=continuous,
            initial_delay=1.0,
            long_poll=900.0,
            resumed=resumed,
            stopped=asyncio.Event(),
            report_progress=self._report,
            **given,
        )
        self.drain = QueueDrain(self.context, self.run, "q", counters=self.counters)
        self.put(count)

    def _report(self) -> None:
        self.on_progress()

    def put(self, count: int, entity: str = "flights") -> None:
        start = self.queue._last
        self.queue.put(entity, *(f"m{n}" for n in range(start, start + count)))

    def stop_after(self, steps: int) -> None:
        """Stop the drain after so many steps."""
        remaining = iter(range(steps - 1))

        def stop() -> None:
            if next(remaining, None) is None:
                self.run.stopped.set()

        self.on_progress = stop

    async def work(self) -> None:
        async with asyncio.timeout(10):
            await self.drain.work()

    @property
    def pauses(self) -> list[float]:
        """The seconds of each pause between steps."""
        return [seconds for seconds in self.clock.sleeps if seconds not in (0.3, 900.0)]

    @property
    def operations(self) -> list[str]:
        return [call[0] for call in self.queue.calls]


@pytest.mark.parametrize(
    ("count", "operations"),
    [
        (0, ["receive", "peek", "detach"]),
        (7, ["receive", "complete", "peek", "detach"]),
        (8, ["receive", "complete", "receive", "peek", "detach"]),
        (16, ["receive", "request", "complete", "request", "receive", "peek", "detach"]),
    ],
)
async def test_section_6_a_drain_peeks_once_little_is_received_and_ends_when_nothing_is_found(
    count: int, operations: list[str]
) -> None:
    drain = Drain(count)
    await drain.work()
    assert (drain.operations, drain.queue.called("peek")) == (operations, [(1, 5)])
    assert (drain.counters.moved.total(), drain.counters.left, drain.pauses) == (count, 0, [])
    assert set(drain.queue.waits) == {0.3}
    assert (drain.run.busy_queues, drain.run.extra_links, len(drain.run.finishing)) == (set(), 0, 1)


async def test_section_6_messages_that_arrive_during_a_drain_are_moved() -> None:
    drain = Drain(8)
    drain.on_progress = lambda: drain.put(5 if drain.queue._last == 8 else 0)
    await drain.work()
    assert (drain.counters.moved, drain.queue.messages) == ({"flights": 13}, [])


async def test_section_6_messages_locked_elsewhere_are_waited_for_up_to_65_seconds() -> None:
    drain = Drain(2)
    drain.queue.locked |= {1, 2}
    await drain.work()
    assert drain.pauses[:4] == [2, 4, 5, 5]
    assert set(drain.pauses[4:]) == {5}
    assert 65 < drain.clock.time - EPOCH < 71
    for seconds in (65, 65.5):
        drain.clock.time = drain.drain._last_moved_at + seconds
        assert await drain.drain._is_finished() is (seconds > 65)
    assert (drain.counters.moved, drain.counters.left) == ({}, 2)


async def test_section_6_a_drain_does_not_give_up_while_another_syphon_moves_the_first_messages() -> None:
    drain = Drain(4)
    drain.queue.locked |= {1, 2, 3, 4}

    def move_one() -> None:
        if drain.clock.time - EPOCH > 50 * (5 - len(drain.queue.messages)) and len(drain.queue.messages) > 1:
            del drain.queue.messages[0]

    drain.on_progress = move_one
    await drain.work()
    assert (len(drain.queue.messages), drain.counters.left) == (1, 1)
    assert 150 + 65 < drain.clock.time - EPOCH < 150 + 65 + 20


async def test_section_6_a_queue_that_fails_five_times_in_a_row_is_given_up() -> None:
    drain = Drain(1)
    drain.queue.errors |= {"receive": LOST, "peek": LOST}
    await drain.work()
    assert (drain.pauses, len(drain.queue.waits)) == ([1, 2, 4, 8], 5)
    assert drain.counters.failures == {"q": "lost"}


async def test_section_6_a_success_resets_the_failures_of_a_queue() -> None:
    drain = Drain(1, continuous=True, run={"wait_for_permissions": True})
    drain.queue.errors["receive"] = DENIED
    steps = iter([None, drain.queue.errors.clear, lambda: drain.queue.errors.update(receive=LOST)])

    def change() -> None:
        step = next(steps, drain.run.stopped.set)
        if step is not None:
            step()

    drain.on_progress = change
    await drain.work()
    assert drain.pauses == [1, 2, 1]
    assert (drain.counters.failures, drain.run.queue_failures.errors) == ({"q": "lost"}, {})
    assert drain.run.queue_failures.any_succeeded


async def test_section_6_a_queue_that_refuses_from_the_start_is_given_up_at_once() -> None:
    drain = Drain(1)
    drain.queue.errors["receive"] = DENIED
    await drain.work()
    assert (drain.pauses, drain.operations) == ([], ["receive", "detach"])
    assert "the right Listen on q is needed" in drain.counters.failures["q"]


@pytest.mark.parametrize(
    ("run", "error"), [({}, DENIED), ({"queue_count": 2}, None), ({"wait_for_permissions": True}, None)]
)
async def test_section_6_a_continuous_syphon_fails_if_every_queue_refuses_from_the_start(
    run: dict[str, Any], error: ServiceError | None
) -> None:
    drain = Drain(1, continuous=True, run=run)
    drain.queue.errors["receive"] = DENIED
    drain.stop_after(2)
    if error is None:
        await drain.work()
        assert drain.pauses == [1, 2]
    else:
        with pytest.raises(AuthorizationError, match="the right Listen on q"):
            await drain.work()


@pytest.mark.parametrize("worked", [False, True])
async def test_section_6_a_continuous_syphon_fails_if_every_destination_refuses_from_the_start(worked: bool) -> None:
    drain = Drain(2, continuous=True)
    drain.flights.refuse = lambda _: DENIED
    drain.stop_after(2)
    if worked:
        drain.put(1, "delays")
        await drain.work()
        assert drain.counters.moved == {"delays": 1}
    else:
        with pytest.raises(AuthorizationError, match="the right Send on flights"):
            await drain.work()


async def test_section_6_after_an_empty_long_poll_the_link_is_replaced_without_a_pause() -> None:
    drain = Drain(continuous=True)
    drain.stop_after(3)
    await drain.work()
    assert drain.operations == ["receive", "detach"] * 3 + ["detach"]
    assert (drain.queue.waits, drain.pauses) == ([900.0] * 3, [])


@pytest.mark.parametrize(
    ("wait", "ended_after", "expired"),
    [(900.0, 900.0, True), (900.0, 440.0, False), (0.6, 0.6, False), (0.7, 0.7, True)],
)
async def test_section_6_only_a_long_poll_that_lasted_is_taken_for_an_expired_one(
    wait: float, ended_after: float, expired: bool
) -> None:
    drain = Drain()

    async def receive(**_: Any) -> list[Any]:
        drain.clock.time += ended_after
        return []

    drain.queue.receive = receive  # type: ignore[method-assign]
    await drain.drain._step(wait)
    assert drain.drain._long_poll_expired is expired


async def test_section_6_a_failing_destination_is_retried_after_each_delay_and_abandoned_after_five_failures() -> None:
    drain = Drain(1)
    drain.flights.refuse = lambda _: BUSY
    await drain.work()
    assert len(drain.flights.attempts) == 5
    # Each delay begins with a receive of 0.3 s.
    assert drain.pauses == pytest.approx([0.7, 1.7, 3.7, 7.7])
    assert (drain.context.backoff.is_abandoned("flights"), drain.counters.left) == (True, 1)
    assert drain.queue.called("abandon")[-1] == ["m0"]


async def test_section_6_a_retry_without_messages_does_not_shorten_the_pauses_for_other_destinations() -> None:
    drain = Drain(1)
    drain.context.backoff.record_failure("delays", "busy", now=EPOCH - 5, started=EPOCH - 6)
    drain.flights.refuse = lambda _: BUSY
    await drain.work()
    assert len(drain.flights.attempts) == 5
    assert drain.pauses == pytest.approx([0.7, 1.7, 3.7, 7.7])


async def test_section_6_an_idle_drain_pauses_until_the_retry_of_a_destination() -> None:
    drain = Drain()
    drain.context.backoff.record_failure("delays", "busy", now=EPOCH, started=EPOCH)
    await drain.work()
    assert drain.pauses == pytest.approx([0.7])


@pytest.mark.parametrize(("seconds", "operations"), [(10.0, []), (10.5, ["detach"])])
async def test_section_6_before_a_pause_of_more_than_ten_seconds_all_locks_are_released(
    seconds: float, operations: list[str]
) -> None:
    drain = Drain()
    await drain.drain._sleep(seconds)
    assert (drain.operations, drain.pauses) == (operations, [seconds])


@pytest.mark.parametrize(("idle_steps", "pause"), [(5, 16.0), (9, 30.0)])
async def test_section_6_while_a_destination_is_in_backoff_a_drain_pauses_30_seconds_at_most(
    idle_steps: int, pause: float
) -> None:
    drain = Drain()
    for n in range(9):
        drain.context.backoff.record_failure("delays", "busy", now=EPOCH, started=EPOCH + n)
    drain.drain._idle_steps = idle_steps
    await drain.drain._pause_if_idle()
    assert drain.pauses == [pause]


async def test_section_6_a_destination_that_recovers_is_served_at_its_next_retry() -> None:
    drain = Drain(3)
    drain.flights.refuse = lambda _: BUSY if len(drain.flights.attempts) < 3 else None
    await drain.work()
    assert (drain.counters.moved, drain.queue.messages) == ({"flights": 3}, [])
    assert [len(ids) for ids, _ in drain.flights.attempts] == [3, 3, 3]


@pytest.mark.parametrize(("batch", "skipped"), [(10, 1000), (27, 1026)])
async def test_section_6_a_thousand_messages_of_failing_destinations_are_skipped_without_a_pause(
    batch: int, skipped: int
) -> None:
    drain = Drain(1100, max_batch_messages=batch)
    drain.drain._worker._batch_size = batch
    drain.flights.refuse = lambda _: BUSY
    received: list[int] = []

    async def pause(seconds: float) -> None:
        del seconds
        received.append(len(drain.queue.locked))
        drain.run.stopped.set()

    drain.drain._sleep = pause  # type: ignore[method-assign]
    await drain.work()
    assert received == [skipped]


async def test_section_6_new_messages_are_found_while_all_others_wait_for_a_failing_destination() -> None:
    drain = Drain(1, continuous=True)
    drain.flights.refuse = lambda _: BUSY
    for _ in range(8):
        drain.context.backoff.record_failure("flights", "busy", now=drain.clock.now(), started=drain.clock.now() + 1)
    retry_at = drain.context.backoff.next_retry(now=EPOCH)
    drain.on_progress = lambda: drain.run.stopped.set() if drain.counters.moved else None
    sleep = drain.clock.sleep

    async def sleep_and_put(seconds: float) -> None:
        await sleep(seconds)
        if drain.drain._all_received and not drain.counters.moved and drain.queue._last == 1:
            drain.put(1, "delays")

    drain.clock.sleep = sleep_and_put  # type: ignore[method-assign]
    await drain.work()
    assert (drain.counters.moved, drain.flights.attempts) == ({"delays": 1}, [])
    assert retry_at is not None
    assert drain.clock.time < retry_at
    assert (2, 1) in drain.queue.called("peek")


async def test_section_6_a_failing_search_for_new_messages_ends_the_wait_so_that_the_next_receive_reports_it() -> None:
    drain = Drain(1, continuous=True)
    drain.queue.errors["peek"] = BUSY
    assert await drain.drain._has_new_message()


async def test_section_6_a_paused_drain_releases_its_locks_and_receives_nothing() -> None:
    drain = Drain(3)
    drain.run.resumed.clear()
    working = asyncio.create_task(drain.work())
    await asyncio.sleep(0.01)
    assert drain.operations == ["detach"]
    drain.run.resumed.set()
    await working
    assert drain.counters.moved == {"flights": 3}


@pytest.mark.parametrize(
    ("max_links", "batch", "helped"), [(2, 10, True), (2, 2, True), (1, 10, False), (0, 10, False), (2, 1, False)]
)
async def test_section_6_full_batches_open_another_link_while_one_is_free(
    max_links: int, batch: int, helped: bool
) -> None:
    drain = Drain(35, run={"max_links": max_links}, max_batch_messages=batch)
    await drain.work()
    assert (drain.transport.sources > 1) is helped
    assert (drain.counters.moved, drain.run.extra_links, drain.run.busy_queues) == ({"flights": 35}, 0, set())


@pytest.mark.parametrize(
    ("change", "receives"),
    [
        (lambda _: None, 3),
        (lambda drain: setattr(drain.context, "paused", True), 1),
        (lambda drain: setattr(drain.flights, "refuse", lambda _: BUSY), 1),
    ],
    ids=["not full", "paused", "destination fails"],
)
async def test_section_6_another_link_is_closed_once_it_is_not_needed(
    change: Callable[[Drain], None], receives: int
) -> None:
    drain = Drain(22, max_batch_messages=10)
    change(drain)
    await drain.drain._help(drain.drain._worker)
    assert len(drain.queue.called("receive")) == receives
    assert drain.run.extra_links == 0
    assert drain.queue.calls[-1] == ("detach", None)


async def test_section_6_the_next_search_starts_at_the_message_found_last() -> None:
    drain = Drain(selection=Selection.of(["flights"]))
    drain.put(8, "delays")
    drain.put(2)
    found = drain.drain._find_workable
    assert (await found(), drain.counters.left) == (True, 2)
    assert (await found(), drain.counters.left) == (True, 2)
    assert drain.queue.called("peek") == [(1, 5), (6, 100), (9, 5)]
    del drain.queue.messages[8:]
    drain.queue.calls.clear()
    assert (await found(), drain.counters.left) == (False, 0)
    assert drain.queue.called("peek") == [(9, 5), (1, 5), (6, 100), (9, 100)]
    drain.queue.errors["peek"] = BUSY
    drain.drain._expects_more = False
    assert not await drain.drain._is_finished(), "the next step reports a failing queue"
    drain.clock.time += 65.5
    for left in (0, 3):
        drain.counters.left = left
        assert (await drain.drain._is_finished(), drain.counters.left) == (True, left or 1)


async def test_section_6_the_search_starts_again_only_if_nothing_is_found_from_the_second_message_on() -> None:
    drain = Drain(selection=Selection.of(["flights"]))
    drain.put(1, "delays")
    drain.put(1)
    for peeks in ([(1, 5)], [(1, 5), (2, 5)]):
        assert await drain.drain._find_workable()
        assert drain.queue.called("peek") == peeks


@pytest.mark.simulated
@pytest.mark.parametrize(
    ("found", "moves_after", "receiving", "ended", "waited"),
    [
        (False, 5.0, False, True, 5.0),
        (False, 5.0, True, True, 0.0),
        (True, 0.2, False, True, 0.2),
        (True, 0.2, True, True, 0.2),
        (True, 5.0, False, False, 0.3),
    ],
    ids=["to its end", "not if it would receive", "what was found was moved", "by its next step", "not for long"],
)
async def test_section_6_once_little_is_left_a_link_waits_for_what_the_other_one_is_moving(
    found: bool, moves_after: float, receiving: bool, ended: bool, waited: float
) -> None:
    drain, loop = Drain(1 if found else 0), asyncio.get_running_loop()
    drain.drain._expects_more = False

    async def move() -> None:
        await asyncio.sleep(moves_after)
        drain.queue.messages.clear()

    worker: Any = SimpleNamespace(is_receiving=receiving)
    helpers = {asyncio.create_task(move()): worker}
    for helper in helpers:
        helper.add_done_callback(helpers.pop)
    began = loop.time()
    assert await drain.drain._has_ended(helpers) is ended
    assert loop.time() - began == pytest.approx(waited, abs=0.01)


async def test_section_6_a_destination_that_another_link_is_retrying_is_checked_again_soon() -> None:
    drain = Drain(1)
    drain.context.backoff.record_failure("flights", "busy", now=EPOCH - 5, started=EPOCH - 6)
    assert drain.context.backoff.try_acquire("flights", now=EPOCH)
    drain.stop_after(4)
    await drain.work()
    assert (drain.flights.attempts, set(drain.pauses)) == ([], {0.05})
