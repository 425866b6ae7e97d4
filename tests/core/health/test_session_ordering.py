"""Session order: queues and sessions of backlog copies, and failback once those sessions are empty (SPEC section 6)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from servicebus_emulator import Fault, FaultKind
from servicebus_pair.core import EntityHealth, HealthState
from servicebus_pair.core.health.backlog_reports import BacklogReports
from servicebus_pair.core.health.session_ordering import SessionOrdering
from servicebus_pair.core.model.errors import HealthStoreError
from servicebus_pair.core.model.events import HealthChanged
from servicebus_pair.core.model.health_transitions import BeginFailback, FailOver, PingFailed
from servicebus_pair.core.model.interfaces import InMemoryHealthStore, SystemClock
from servicebus_pair.core.protocol.amqp_message import AmqpMessage
from servicebus_pair.core.protocol.backlog_queues import backlog_session_id, session_queue_for, session_queue_paths
from servicebus_pair.core.sdk.messages import to_amqp_message
from tests.core.health.test_ordered_registry import OPTIONS, Backlog, new_registry
from tests.core.support.encoding import properties_of
from tests.core.support.local_pair import LocalPair, open_local_pair

pytestmark = pytest.mark.simulated

QUEUES = session_queue_paths("contoso", 3)
LONG = f"{'Orders/' * 20}x"


def order_of(both: LocalPair) -> SessionOrdering:
    order = both.pair._open().order
    assert order is not None
    return order


def session_message(session: str | None, number: int = 0) -> AmqpMessage:
    return to_amqp_message(ServiceBusMessage("x", message_id=f"m{number}", session_id=session))


@asynccontextmanager
async def open_ordered_pair(store: Any = None) -> AsyncIterator[LocalPair]:
    async with open_local_pair("flights", options=replace(OPTIONS, backlog_queue_count=3), store=store) as both:
        yield both


async def divert(both: LocalPair, entity: str, queue: str, *, session: str | None = None) -> None:
    """Put a message into a session queue, as a diverting sender does."""
    link = both.pair._open().secondary.send_link(queue)
    session_id = backlog_session_id(entity) if session is None else session
    await link.send_ping(to_amqp_message(ServiceBusMessage("x", session_id=session_id)), timeout=5)


def test_section_6_a_copy_goes_to_the_queue_of_its_session_in_the_session_of_its_entity() -> None:
    unused: Any = None
    order = SessionOrdering(unused, unused, session_queues=QUEUES, queues=["q0", "q1"], clock=SystemClock())
    messages = {number: session_message(f"s{number % 4}", number) for number in range(12)} | {12: session_message(None)}
    copies = {number: session_message("gone", number) for number in messages}
    groups = order.group_by_queue("Flights", copies, messages)
    assert sum(len(group) for group in groups.values()) == 13
    for queue, group in groups.items():
        assert list(group) == sorted(group)
        for number, copied in group.items():
            assert copied is copies[number]
            if number == 12:
                assert queue in ("q0", "q1")
                continue
            assert queue == order.queue_for("FLIGHTS", f"s{number % 4}")
            assert queue == session_queue_for("flights", f"s{number % 4}", QUEUES)
            assert properties_of(copied).group_id == "flights"


@pytest.mark.parametrize("entity", ["flights", LONG])
async def test_section_6_the_backlog_of_an_entity_is_empty_when_its_session_is_in_every_queue(entity: str) -> None:
    async with open_ordered_pair() as both:
        order = order_of(both)
        assert await order.is_empty(entity)
        await divert(both, "delays", QUEUES[0])
        for queue in QUEUES:
            await divert(both, entity, queue)
            assert await order.is_empty(entity.upper()) is False
            # A queue that does not exist holds nothing.
            both.secondary.namespace.delete_queue(queue)
            assert await order.is_empty(entity)


async def test_section_6_a_session_that_is_locked_is_not_empty() -> None:
    async with open_ordered_pair() as both:
        order, secondary = order_of(both), both.pair._open().secondary
        link = secondary.session_link(QUEUES[1], wait=1, session_id="flights")
        await link.accept(timeout=5)
        assert await order.is_empty("flights") is False
        assert await order.is_empty("delays")
        await link.close()
        assert await order.is_empty("flights")


async def test_section_6_a_backlog_that_cannot_be_read_is_not_empty() -> None:
    async with open_ordered_pair() as both:
        both.secondary.set_fault(Fault(kind=FaultKind.REFUSE))
        assert await order_of(both).is_empty("flights") is None
        assert not await order_of(both).fail_back("flights", reason="test", by="ann")


@pytest.mark.parametrize("unreadable", [False, True])
async def test_section_6_a_new_process_diverts_behind_the_backlog_of_an_earlier_one(unreadable: bool) -> None:
    async with open_ordered_pair() as both:
        await divert(both, "flights", QUEUES[2])
        if unreadable:
            both.secondary.set_fault(Fault(kind=FaultKind.REFUSE))
        async with both.pair.sender("delays"), both.pair.sender("flights"):
            health = both.pair.health("flights")
            assert health.failed_over
            assert health.reason == f"its backlog {'cannot be read' if unreadable else 'is not empty'}"
            assert both.pair.health("delays").failed_over is unreadable


@pytest.mark.fast_sdk  # without it, a link takes up to a second more to open and close
async def test_section_6_processes_that_look_at_the_same_time_do_not_take_each_other_for_a_backlog() -> None:
    async with open_ordered_pair() as both:

        async def enter() -> None:
            async with both.pair.sender("flights"):
                pass

        await asyncio.gather(*(enter() for _ in range(8)))
        assert not both.recorder.of(HealthChanged)


class Failback:
    """A failed-over entity of one or several processes, and its backlog."""

    def __init__(self, *, store: Any = None, messages: int = 0) -> None:
        self.registry = new_registry(store)
        self.order = Backlog(self.registry, [0] * messages)

    async def fail_over(self) -> None:
        await self.registry.change("flights", FailOver("test", "ann"))

    def start(self, **more: Any) -> asyncio.Task[bool]:
        return asyncio.create_task(self.order.fail_back("flights", reason="answered", by="ping", **more))

    @property
    def state(self) -> HealthState:
        return self.registry.current("flights").state


async def test_section_6_in_one_process_an_empty_backlog_fails_back_at_once() -> None:
    failback, loop = Failback(), asyncio.get_running_loop()
    await failback.fail_over()
    began = loop.time()
    assert await failback.start()
    assert (failback.state, failback.registry.current("flights").reason) == (HealthState.HEALTHY, "answered")
    assert loop.time() - began < 1


async def test_section_6_a_failback_waits_for_sends_in_flight_and_holds_new_ones() -> None:
    failback, loop = Failback(), asyncio.get_running_loop()
    await failback.fail_over()
    await failback.order.enter_send("flights", timeout=1)
    running = failback.start()
    await asyncio.sleep(3)
    assert failback.state is HealthState.FAILING_BACK
    with pytest.raises(TimeoutError):
        await failback.order.enter_send("flights", timeout=2)
    held = asyncio.create_task(failback.order.enter_send("Flights", timeout=60))
    # An attempt of the send in flight that waits for its lease sends nothing: it does not hold up the failback.
    next_attempt = asyncio.create_task(failback.registry.lease("flights", timeout=60))
    began = loop.time()
    assert await running
    await asyncio.gather(held, next_attempt)
    assert loop.time() - began < 1


async def test_section_6_a_failback_gives_up_after_ten_seconds_of_sends_in_flight() -> None:
    failback, loop = Failback(), asyncio.get_running_loop()
    await failback.fail_over()
    await failback.order.enter_send("flights", timeout=1)
    began = loop.time()
    assert not await failback.start()
    assert loop.time() - began == pytest.approx(10, abs=0.5)
    assert failback.state is HealthState.FAILED_OVER


async def test_section_6_sends_are_held_only_once_little_is_left() -> None:
    """A syphon that keeps up has the sessions locked all the time; without a hold nothing would ever fail back."""
    failback, loop = Failback(messages=1), asyncio.get_running_loop()
    reports = BacklogReports(failback.registry, failback.order._session_queues, clock=SystemClock())
    await failback.fail_over()
    states = [failback.state]
    failback.registry.observers.append(Recorder(states))
    assert not reports.is_wanted("flights", "a")  # nobody has pinged
    for _ in range(6):
        failback.registry.apply("flights", PingFailed(loop.time()))
        assert not await failback.start()
        reports.caught_up("flights", "a")
        assert not await failback.start()
        assert (reports.is_wanted("flights", "a"), reports.is_wanted("flights", "b")) == (False, True)
    assert states == [HealthState.FAILED_OVER]
    assert not reports.is_wanted("flights", "another queue")
    reports.caught_up("Flights", "b")
    running = failback.start()
    await asyncio.sleep(3)
    assert failback.state is HealthState.FAILING_BACK
    assert not reports.is_wanted("flights", "a")
    failback.order.messages.clear()
    assert await running


@pytest.mark.parametrize(("shared", "seconds"), [(False, 10), (True, 20)])
async def test_section_6_only_pings_in_the_background_wait_for_what_syphons_say(shared: bool, seconds: float) -> None:
    failback, loop = Failback(store=InMemoryHealthStore() if shared else None, messages=1), asyncio.get_running_loop()
    await failback.fail_over()
    for wait, expected in ((False, 0), (True, seconds)):
        began = loop.time()
        assert not await failback.start(wait_for_syphons=wait)
        assert loop.time() - began == pytest.approx(expected, abs=1.5)
    await failback.registry.close()


async def test_section_6_after_a_hold_that_was_in_vain_the_next_one_waits() -> None:
    failback, loop = Failback(messages=1), asyncio.get_running_loop()
    reports = BacklogReports(failback.registry, failback.order._session_queues, clock=SystemClock())
    await failback.fail_over()
    states = [failback.state]
    failback.registry.observers.append(Recorder(states))
    began = loop.time()
    while loop.time() - began < 600:
        failback.registry.apply("flights", PingFailed(SystemClock().now()))
        for queue in ("a", "b"):
            reports.caught_up("flights", queue)
        assert not await failback.start()
        await asyncio.sleep(2)
    # 10 s each, after pauses of 15, 30, 60, 120 and 240 s.
    assert states.count(HealthState.FAILING_BACK) == 6
    failback.order.messages.clear()
    assert await failback.start(look_first=False)


async def test_section_6_after_a_failback_the_pauses_of_holds_begin_anew() -> None:
    failback, pauses = Failback(), list[float]()
    for ends in (False, False, True, False):

        async def is_empty(ends: bool = ends) -> bool:
            return ends

        await failback.fail_over()
        begin = BeginFailback("test", "ann", "token")
        assert await failback.order._hold("flights", begin, is_empty) is ends
        pauses.append(failback.order._hold_again_at.get("flights", 0.0) - SystemClock().now())
    assert [round(max(0.0, pause)) for pause in pauses] == [15, 30, 0, 15]


async def test_section_6_what_syphons_of_several_processes_say_reaches_the_one_that_fails_back() -> None:
    store = InMemoryHealthStore()
    one, two, three = (Failback(store=store, messages=1) for _ in range(3))
    await one.fail_over()
    await one.registry.change("flights", PingFailed(SystemClock().now()))
    running = one.start(wait_for_syphons=True)
    for each, queue in ((two, "a"), (three, "b")):
        reports = BacklogReports(each.registry, each.order._session_queues, clock=SystemClock())
        reports.watch("flights")
        await asyncio.sleep(5)
        assert reports.is_wanted("flights", queue)
        assert one.state is HealthState.FAILED_OVER
        reports.caught_up("flights", queue)
    await asyncio.sleep(3)
    assert one.state is HealthState.FAILING_BACK
    one.order.messages.clear()
    assert await running
    for each in (one, two, three):
        await each.registry.close()


class Recorder:
    def __init__(self, states: list[HealthState]) -> None:
        self._states = states

    def observe(self, event: object) -> None:
        if isinstance(event, HealthChanged):
            self._states.append(event.after.state)


async def test_section_6_a_cancelled_failback_fails_over_again() -> None:
    failback = Failback(store=InMemoryHealthStore())
    await failback.fail_over()
    running = failback.start()
    await asyncio.sleep(2)
    assert failback.state is HealthState.FAILING_BACK
    running.cancel()
    await asyncio.wait({running})
    await failback.registry.close()
    assert failback.state is HealthState.FAILED_OVER


async def test_section_6_a_failback_that_would_end_too_late_fails_over_again() -> None:
    failback = Failback(store=InMemoryHealthStore())
    await failback.fail_over()

    async def is_empty() -> bool:
        await asyncio.sleep(failback.registry.leases.complete_within)
        return True

    assert not await failback.order._hold("flights", BeginFailback("test", "ann", "token"), is_empty)
    assert failback.state is HealthState.FAILED_OVER
    await failback.registry.close()


async def test_section_6_between_processes_a_failback_holds_all_sends_before_it_looks() -> None:
    store, loop = InMemoryHealthStore(), asyncio.get_running_loop()
    one, two = Failback(store=store), Failback(store=store)
    await one.fail_over()
    for health in await asyncio.gather(*(each.registry.lease("flights", timeout=20) for each in (one, two))):
        assert health.state is HealthState.FAILED_OVER
    # Fischer's rule: acted on only after health_refresh.
    assert loop.time() == pytest.approx(5, abs=0.1)
    running = one.start()
    await asyncio.sleep(3)
    with pytest.raises(TimeoutError, match="answered"):
        await two.registry.lease("flights", timeout=2)
    held = asyncio.create_task(two.registry.lease("flights", timeout=60))
    began = loop.time()
    assert await running
    assert (await held).state is HealthState.HEALTHY
    assert loop.time() - began < 3
    await one.registry.close()
    await two.registry.close()


async def test_section_6_of_two_failbacks_at_once_one_ends_and_the_other_leaves_it_alone() -> None:
    store = InMemoryHealthStore()
    processes = [Failback(store=store) for _ in range(2)]
    await processes[0].fail_over()
    await asyncio.sleep(6)
    for each in processes:
        await each.registry.refresh("flights")
    assert sorted(await asyncio.gather(*(each.start() for each in processes))) == [False, True]
    assert store.known["flights"].state is HealthState.HEALTHY
    for each in processes:
        assert (await each.registry.lease("flights", timeout=5)).state is HealthState.HEALTHY
        await each.registry.close()


async def test_section_6_whoever_needs_to_send_ends_the_failback_of_a_process_that_died() -> None:
    store, loop = InMemoryHealthStore(), asyncio.get_running_loop()
    now = SystemClock().now()
    dead = EntityHealth(HealthState.FAILING_BACK, now, epoch=7, effective_at=now + 5, token="dead")
    await store.save("flights", dead)
    registry = new_registry(store)
    health = await registry.lease("flights", timeout=60)
    assert (health.state, health.epoch) == (HealthState.FAILED_OVER, 8)
    assert loop.time() == pytest.approx(25, abs=2)
    await registry.close()


async def test_section_6_pings_do_not_prolong_the_failback_of_a_process_that_died() -> None:
    store, loop = InMemoryHealthStore(), asyncio.get_running_loop()
    now = SystemClock().now()
    dead = EntityHealth(HealthState.FAILING_BACK, now, epoch=7, effective_at=now + 5, token="dead")
    await store.save("flights", dead)
    registry = new_registry(store)

    async def ping() -> None:
        while True:
            await registry.change("flights", PingFailed(SystemClock().now()))
            await asyncio.sleep(7)

    pinging = asyncio.create_task(ping())
    health = await registry.lease("flights", timeout=60)
    assert (health.state, health.epoch) == (HealthState.FAILED_OVER, 8)
    assert loop.time() == pytest.approx(25, abs=2)
    pinging.cancel()
    await registry.close()


class FailingStore(InMemoryHealthStore):
    fails = False
    seconds = 0.0

    async def load(self, entity: str) -> EntityHealth | None:
        self._check()
        await asyncio.sleep(self.seconds)
        return await super().load(entity)

    async def save(self, entity: str, health: EntityHealth) -> None:
        self._check()
        await super().save(entity, health)

    def _check(self) -> None:
        if self.fails:
            raise ConnectionError("the store is down")


async def test_section_6_a_store_that_cannot_be_read_stops_sends_with_an_error() -> None:
    store = FailingStore()
    registry = new_registry(store)
    order = Backlog(registry, [])
    assert (await registry.lease("flights", timeout=5)).state is HealthState.HEALTHY
    store.fails = True
    await asyncio.sleep(3)
    with pytest.raises(HealthStoreError, match="cannot be read from the shared store"):
        await order.enter_send("flights", timeout=60)
    assert not order._is_sending("flights")
    with pytest.raises(HealthStoreError, match="cannot be changed"):
        await registry.change("flights", FailOver("test", "ann"))
    assert registry.current("flights").state is HealthState.HEALTHY
    store.fails, store.seconds = False, registry.leases.save_window * 1.5
    with pytest.raises(HealthStoreError, match="takes longer than"):
        await registry.change("flights", FailOver("test", "ann"))
    assert registry.current("flights").state is HealthState.HEALTHY
    store.seconds = 0.0
    assert (await registry.lease("flights", timeout=5)).state is HealthState.HEALTHY
    await registry.close()


async def test_section_6_a_manual_change_that_the_store_does_not_hold_changes_nothing() -> None:
    store = FailingStore()
    async with open_ordered_pair(store) as both:
        store.fails = True
        assert not await both.pair.fail_over("flights", reason="test")
        assert not both.pair.health("flights").failed_over
        store.fails = False
        assert await both.pair.fail_over("flights", reason="test")
        assert both.pair.health("flights").failed_over


async def test_section_6_a_lease_is_renewed_while_it_is_held_and_ends_with_a_change() -> None:
    store, loop = FailingStore(), asyncio.get_running_loop()
    registry, other = new_registry(store), new_registry(store)
    health = await registry.lease("flights", timeout=5)
    holding = asyncio.create_task(registry.hold_lease("flights", health))
    assert not (await asyncio.wait({holding}, timeout=60))[0]
    await other.change("flights", FailOver("test", "ann"))
    changed = loop.time()
    await asyncio.wait_for(holding, 2.6)
    assert (await other.lease("flights", timeout=10)).failed_over
    assert loop.time() - changed >= 5
    health = await registry.lease("flights", timeout=10)
    holding = asyncio.create_task(registry.hold_lease("flights", health))
    await asyncio.sleep(1)
    store.fails = True
    await asyncio.wait_for(holding, 2.6)
    store.fails = False
    await registry.close()
    await other.close()
