"""Health is shared through the store, and a store that fails stops nothing (SPEC sections 4 and 5)."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from servicebus_emulator import Fault, FaultKind
from servicebus_pair.core import EntityHealth, HealthState, PairOptions
from servicebus_pair.core.health.registry import HealthRegistry
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
    assert "entity=flights: shared health could not be read" in logged
    assert any("sharing its health failed" in line or "was not shared before closing" in line for line in logged)


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
