"""Health is shared through the store, and a store that fails stops nothing (SPEC sections 4 and 5)."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from typing import Any

import pytest

from servicebus_emulator import Fault, FaultKind
from servicebus_pair.core import EntityHealth, HealthState, PairOptions
from servicebus_pair.core.health.registry import HealthRegistry
from servicebus_pair.core.model.errors import ObserverError
from servicebus_pair.core.model.events import QueuePulled
from servicebus_pair.core.model.health_transitions import FailOver
from servicebus_pair.core.model.interfaces import InMemoryHealthStore, SystemClock
from tests.core.support.local_pair import FAILOVER_INTERVAL, FAILOVER_MARGIN, PING_INTERVAL, numbered, open_quick_pair

pytestmark = pytest.mark.simulated

BROKEN = Fault(kind=FaultKind.INTERNAL_ERROR, entity="flights")
# Refused at once, so that a ping takes no time, and counted by the namespace.
FULL = Fault(kind=FaultKind.QUOTA_EXCEEDED, entity="flights")


class RaisingStore:
    """A store whose server is down."""

    async def load(self, entity: str) -> EntityHealth | None:
        raise ConnectionError(f"the store is down: {entity}")

    async def save(self, entity: str, health: EntityHealth) -> None:
        raise ConnectionError(f"the store is down: {entity} is {health.state}")


class HangingStore:
    """A store whose server is frozen."""

    async def load(self, entity: str) -> EntityHealth | None:
        await asyncio.Event().wait()
        raise AssertionError(entity)

    async def save(self, entity: str, health: EntityHealth) -> None:
        await asyncio.Event().wait()
        raise AssertionError((entity, health))


class SlowStore(InMemoryHealthStore):
    """A store that saves only once it may."""

    def __init__(self) -> None:
        super().__init__()
        self.saved: list[str] = []
        self.may_save = asyncio.Event()

    async def save(self, entity: str, health: EntityHealth) -> None:
        await self.may_save.wait()
        self.saved.append(health.reason)
        await super().save(entity, health)


@pytest.mark.parametrize("store", [RaisingStore(), HangingStore()], ids=["raises", "hangs"])
async def test_section_4_a_failing_store_is_logged_and_does_not_stop_sends_failover_or_pings(
    store: RaisingStore | HangingStore, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_quick_pair(store=store) as local_pair, local_pair.pair.sender("flights") as sender:
        assert (await sender.send(numbered(1))).primary == 1
        local_pair.primary.set_fault(BROKEN)
        loop = asyncio.get_running_loop()
        began = loop.time()
        assert (await sender.send(numbered(1, start=1))).diverted == 1
        assert loop.time() - began < FAILOVER_INTERVAL + FAILOVER_MARGIN
        local_pair.primary.clear_faults()
        repaired = loop.time()
        await asyncio.wait_for(local_pair.recorder.recovered.wait(), 10)
        assert (await sender.send(numbered(1, start=2))).primary == 1
        assert loop.time() - repaired < PING_INTERVAL + FAILOVER_MARGIN
    # A raising store gives the first line; with a hanging one, the pair closes before the save times out.
    logged = {record.getMessage() for record in caplog.records if record.name == "servicebus_pair.core.health.registry"}
    assert any("entity=flights: shared health could not be read" in line for line in logged)
    assert any("was not shared before closing" in line for line in logged)


async def test_a_store_that_fails_and_answers_again_is_logged_each_time(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    registry = new_registry(InMemoryHealthStore())
    for fails in (False, True, True, False, True):
        registry._store._store = RaisingStore() if fails else InMemoryHealthStore()
        await registry.refresh("flights")
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO", "WARNING"]


@pytest.mark.parametrize(
    ("store", "stored"), [(InMemoryHealthStore(), True), (RaisingStore(), False), (HangingStore(), False)]
)
async def test_a_manual_failover_says_whether_the_store_holds_it(
    store: InMemoryHealthStore | RaisingStore | HangingStore, stored: bool
) -> None:
    async with open_quick_pair(store=store) as local_pair:
        assert await local_pair.pair.fail_over("flights", reason="test", hold=timedelta(minutes=1)) is stored
        assert local_pair.pair.health("flights").failed_over
        assert await local_pair.pair.mark_healthy("flights") is stored


async def test_section_4_a_slow_store_receives_only_the_newest_health() -> None:
    store = SlowStore()
    async with open_quick_pair(store=store) as local_pair:
        changes: list[asyncio.Task[bool]] = []
        for number in range(50):
            changes.append(asyncio.create_task(local_pair.pair.fail_over("flights", reason=f"down {number}")))
            changes.append(asyncio.create_task(local_pair.pair.mark_healthy("flights", reason=f"up {number}")))
            await asyncio.sleep(0)
        store.may_save.set()
        await asyncio.gather(*changes)
        await local_pair.pair._registry.flush()
        assert store.saved[-1] == "up 49"
        assert len(store.saved) <= 2
        assert store.known["flights"].state is HealthState.HEALTHY


@pytest.mark.parametrize(("age", "adopted"), [(19, True), (21, False)])
async def test_section_5_a_suspect_entity_adopts_a_failover_for_two_ping_intervals(age: int, adopted: bool) -> None:
    now = SystemClock().now()
    store = InMemoryHealthStore({"flights": EntityHealth(HealthState.FAILED_OVER, since=now - 60, last_ping=now - age)})
    options = PairOptions(ping_primary_interval=timedelta(seconds=10))
    registry = HealthRegistry(options, store=store, observers=[], clock=SystemClock())
    registry._health["flights"] = EntityHealth(HealthState.SUSPECT, since=now - 1)
    assert (await registry.refresh("flights")).failed_over is adopted


async def test_section_1_the_in_memory_store_is_case_insensitive() -> None:
    store = InMemoryHealthStore({"Flights": EntityHealth(HealthState.FAILED_OVER, since=5.0)})
    assert (await store.load("fLIGHTS")) == EntityHealth(HealthState.FAILED_OVER, since=5.0)


def new_registry(store: Any, **options: Any) -> HealthRegistry:
    return HealthRegistry(PairOptions(**options), store=store, observers=[], clock=SystemClock())


async def test_section_4_a_hanging_store_is_waited_for_once_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    registry = new_registry(HangingStore())
    loop, took = asyncio.get_running_loop(), list[float]()
    for timeout in (2.0, 5.0, 5.0, 0.2):
        started = loop.time()
        assert await registry.refresh("flights", timeout=timeout) == EntityHealth()
        took.append(loop.time() - started)
    assert took == pytest.approx([2.0, 3.0, 0.0, 0.0], abs=0.05)
    registry.watch("flights")
    await asyncio.sleep(60)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "entity=flights: shared health could not be read" in caplog.text
    await registry.close()


@pytest.mark.parametrize("hangs_before", [False, True])
async def test_section_4_closing_waits_for_the_store_up_to_five_seconds(hangs_before: bool) -> None:
    registry = new_registry(HangingStore())
    loop = asyncio.get_running_loop()
    if hangs_before:
        await registry.refresh("flights")
    registry.apply("flights", FailOver("test", "ann"))
    started = loop.time()
    await registry.close()
    assert loop.time() - started == pytest.approx(0.0 if hangs_before else 5.0, abs=0.05)
    assert await registry.saved("delays"), "this process wrote nothing"


class CountingStore(InMemoryHealthStore):
    """A store that another process writes to, that counts reads, and that can fail."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.fails = False

    async def load(self, entity: str) -> EntityHealth | None:
        self.loads.append(entity)
        if self.fails:
            raise ConnectionError("the store is down")
        return await super().load(entity)

    async def save(self, entity: str, health: EntityHealth) -> None:
        if self.fails:
            raise ConnectionError("the store is down")
        await super().save(entity, health)


async def test_section_4_a_failover_by_hand_elsewhere_reaches_an_open_sender_within_health_refresh() -> None:
    store = CountingStore()
    async with (
        open_quick_pair(store=store, ping_primary_interval=timedelta(minutes=1)) as local_pair,
        local_pair.pair.sender("Flights") as sender,
    ):
        for after in (0.0, 1.3, 3.9):
            await asyncio.sleep(7.0 + after)
            await store.save("flights", EntityHealth(HealthState.FAILED_OVER, SystemClock().now(), by="ann"))
            await asyncio.sleep(5.0)
            assert (await sender.send(numbered(1))).diverted == 1
            await store.save("flights", EntityHealth(HealthState.HEALTHY, SystemClock().now(), by="ann"))
            await asyncio.sleep(5.0)
            assert (await sender.send(numbered(1))).primary == 1
    assert set(store.loads) == {"Flights"}


async def test_section_4_only_what_is_in_use_is_read_again() -> None:
    store = CountingStore()
    async with open_quick_pair(store=store) as local_pair:
        async with local_pair.pair.sender("flights"), local_pair.pair.sender("FLIGHTS"):
            await asyncio.sleep(41)
        # One or two reads on entry, and one each 4 s: both senders share them.
        assert 11 <= len(store.loads) <= 12
        async with local_pair.pair.sender("flights"):
            pass
        before = len(store.loads)
        await asyncio.sleep(60)
        assert len(store.loads) == before
        store.loads.clear()
        async with local_pair.pair.sender("flights"):
            await asyncio.sleep(10)
        assert len(store.loads) == 3


async def test_section_4_health_that_could_not_be_shared_is_shared_when_the_store_answers_again() -> None:
    store = CountingStore()
    async with open_quick_pair(store=store) as local_pair:
        store.fails = True
        assert not await local_pair.pair.fail_over("flights", reason="test", hold=timedelta(hours=1))
        await asyncio.sleep(30)
        assert not store.known
        store.fails = False
        await asyncio.sleep(5)
        assert store.known["flights"].failed_over
        store.fails = True
        assert not await local_pair.pair.mark_healthy("flights")
        newer = EntityHealth(HealthState.FAILED_OVER, SystemClock().now() + 1, by="bob", held_until=1e12)
        store.known["flights"] = newer
        store.fails = False
        await asyncio.sleep(5)
        assert store.known["flights"] == newer
        assert local_pair.pair.health("flights").by == "bob"


async def test_section_4_health_is_read_again_until_the_last_sender_of_an_entity_is_closed() -> None:
    class Counting(InMemoryHealthStore):
        loads = 0

        async def load(self, entity: str) -> EntityHealth | None:
            self.loads += 1
            return await super().load(entity)

    store = Counting()
    registry = new_registry(store, health_refresh=timedelta(seconds=1))
    loads = []
    for change in (registry.watch, registry.watch, registry.unwatch, registry.unwatch):
        change("flights")
        await asyncio.sleep(0.5)
        store.loads = 0
        await asyncio.sleep(10)
        loads.append(store.loads)
    await registry.close()
    assert [each > 5 for each in loads] == [True, True, True, False]
    assert loads[3] == 0


async def test_section_4_a_pair_without_a_shared_store_reads_nothing_again() -> None:
    registry = new_registry(None)
    registry.watch("flights")
    registry.apply("flights", FailOver("test", "ann"))
    await asyncio.sleep(0)
    assert registry._refreshing is None
    assert (await registry.lease("flights", timeout=1)).failed_over
    await registry.close()


async def test_section_4_every_observer_gets_every_event_and_the_first_failure_is_reported() -> None:
    class Observer:
        def __init__(self, error: Exception | None = None) -> None:
            self.events: list[object] = []
            self.error = error

        def observe(self, event: object) -> None:
            self.events.append(event)
            if self.error is not None:
                raise self.error

    observers = [Observer(OSError("full")), Observer(), Observer(ValueError("bad"))]
    registry = HealthRegistry(PairOptions(), store=InMemoryHealthStore(), observers=observers, clock=SystemClock())
    event, later, extra = QueuePulled("q", "lost", 1.0), QueuePulled("q", "lost", 2.0), Observer()
    with registry.observing(extra), pytest.raises(ObserverError, match=r"2 of 4 .* QueuePulled, first OSError: full"):
        registry.emit(event)
    registry.emit_best_effort(later)
    assert [each.events for each in (*observers, extra)] == [*[[event, later]] * 3, [event]]


async def test_section_4_a_shared_failover_and_recovery_are_adopted(caplog: pytest.LogCaptureFixture) -> None:
    store = InMemoryHealthStore()
    registry = new_registry(store)
    started, stopped = list[str](), list[str]()
    registry.on_failed_over, registry.on_recovered = started.append, stopped.append
    now = SystemClock().now()
    for after, state, spool in (
        (1, HealthState.FAILED_OVER, ""),
        (2, HealthState.FAILED_OVER, "s"),
        (3, HealthState.HEALTHY, ""),
    ):
        await store.save("flights", EntityHealth(state, since=now + after, spool=spool))
        await registry.refresh("Flights")
    assert not registry.current("FLIGHTS").failed_over
    assert (started, stopped, list(registry.entities())) == (["Flights"], ["Flights"], ["flights"])
    assert [record.getMessage() for record in caplog.records] == [
        "entity=Flights health=failed_over before=healthy by= reason=",
        "entity=Flights spool=s before= reason=",
        "entity=Flights spool= before=s reason=",
        "entity=Flights health=healthy before=failed_over by= reason=",
    ]
    await registry.close()


@pytest.mark.parametrize(("changes", "seconds"), [(False, 3.0), (True, 1.0)])
async def test_section_4_waiting_for_a_change_ends_with_it_or_in_time(changes: bool, seconds: float) -> None:
    registry = HealthRegistry(PairOptions(), store=InMemoryHealthStore(), observers=[], clock=SystemClock())
    loop = asyncio.get_running_loop()
    started = loop.time()
    loop.call_later(1, registry.apply, "FLIGHTS" if changes else "delays", FailOver("test", "ann"))
    await registry.wait_for_change("flights", timeout=3)
    assert loop.time() - started == pytest.approx(seconds, abs=0.05)
    await registry.close()
