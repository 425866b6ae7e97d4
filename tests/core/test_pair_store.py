"""Health shared with other processes: who pings, who takes over, and a store that fails (SPEC sections 4 and 5)."""

from __future__ import annotations

import asyncio

import pytest

from servicebus_emulator import Fault, FaultKind
from servicebus_pair.core import EntityHealth, State
from servicebus_pair.core.ports import InMemoryHealthStore
from tests.core.breakable import GRACE, INTERVAL, PING, breakable_pair, numbered

pytestmark = pytest.mark.simulated

BROKEN = Fault(kind=FaultKind.INTERNAL_ERROR, entity="flights")
# Refused at once, so that a ping takes no time, and counted by the namespace.
FULL = Fault(kind=FaultKind.QUOTA_EXCEEDED, entity="flights")


class Raising:
    """A store whose server is down."""

    async def load(self, entity: str) -> EntityHealth | None:
        raise ConnectionError(f"the store is down: nothing is known of {entity}")

    async def save(self, entity: str, health: EntityHealth) -> None:
        raise ConnectionError(f"the store is down: {entity} is {health.state}")


class Hanging:
    """A store whose server is frozen."""

    async def load(self, entity: str) -> EntityHealth | None:
        await asyncio.Event().wait()
        raise AssertionError(entity)

    async def save(self, entity: str, health: EntityHealth) -> None:
        await asyncio.Event().wait()
        raise AssertionError((entity, health))


class Slow(InMemoryHealthStore):
    """A store that takes longer to save than the entity to change."""

    def __init__(self) -> None:
        super().__init__()
        self.saved: list[str] = []
        self.may_go_on = asyncio.Event()

    async def save(self, entity: str, health: EntityHealth) -> None:
        await self.may_go_on.wait()
        self.saved.append(health.reason)
        await super().save(entity, health)


@pytest.mark.parametrize("store", [Raising(), Hanging()], ids=["raises", "hangs"])
async def test_section_4_a_store_that_fails_stops_no_send_no_failover_and_no_ping_and_is_logged(
    store: Raising | Hanging, caplog: pytest.LogCaptureFixture
) -> None:
    async with breakable_pair(store=store) as breakable, breakable.pair.sender("flights") as sender:
        assert (await sender.send(numbered(1))).primary == 1
        breakable.primary.set_fault(BROKEN)
        loop = asyncio.get_running_loop()
        began = loop.time()
        assert (await sender.send(numbered(1, start=1))).diverted == 1
        assert loop.time() - began < INTERVAL + GRACE
        breakable.primary.clear_faults()
        mended = loop.time()
        await asyncio.wait_for(breakable.recorder.healthy_again.wait(), 10)
        assert (await sender.send(numbered(1, start=2))).primary == 1
        assert loop.time() - mended < PING + GRACE
    # The first of them when the store raises; when it hangs, the pair is closed before it is given up.
    told = {record.getMessage() for record in caplog.records if record.name == "servicebus_pair.core.board"}
    assert "entity=flights: shared health could not be read" in told
    assert any("sharing its health failed" in line or "was not shared before closing" in line for line in told)


async def test_section_4_a_slow_store_is_given_the_newest_health_and_no_queue_of_old_ones() -> None:
    store = Slow()
    async with breakable_pair(store=store) as breakable:
        for turn in range(50):
            breakable.pair.fail_over("flights", reason=f"down {turn}")
            breakable.pair.mark_healthy("flights", reason=f"up {turn}")
            await asyncio.sleep(0)
        store.may_go_on.set()
        await breakable.pair._board.flush()
        assert store.saved[-1] == "up 49"
        assert len(store.saved) <= 2
        assert store.known["flights"].state is State.HEALTHY


async def test_section_1_a_store_in_memory_knows_entities_in_any_case() -> None:
    store = InMemoryHealthStore({"Flights": EntityHealth(State.FAILED_OVER, since=5.0)})
    assert (await store.load("fLIGHTS")) == EntityHealth(State.FAILED_OVER, since=5.0)
