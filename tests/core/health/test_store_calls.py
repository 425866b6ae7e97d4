"""A health store is called once at a time, and one that hangs is not called again (SPEC section 4)."""

from __future__ import annotations

import asyncio
import threading

import pytest

from servicebus_pair.core import EntityHealth, HealthState
from servicebus_pair.core.health.store_calls import StoreCalls
from servicebus_pair.core.model.interfaces import InMemoryHealthStore

DOWN = EntityHealth(HealthState.FAILED_OVER, since=1.0)


class GatedStore(InMemoryHealthStore):
    """A store that answers only while it may, and counts its callers."""

    def __init__(self) -> None:
        super().__init__({"flights": DOWN})
        self.answers = asyncio.Event()
        self.calls = self.callers = self.most_callers = 0

    async def load(self, entity: str) -> EntityHealth | None:
        self.calls += 1
        self.callers += 1
        self.most_callers = max(self.most_callers, self.callers)
        try:
            await self.answers.wait()
            await asyncio.sleep(0.01)
            return await super().load(entity)
        finally:
            self.callers -= 1


class BlockingStore:
    """A store with plain methods."""

    def __init__(self) -> None:
        self.threads: set[threading.Thread] = set()
        self.saved: dict[str, EntityHealth] = {}

    def load(self, entity: str) -> EntityHealth | None:
        self.threads.add(threading.current_thread())
        return self.saved.get(entity)

    def save(self, entity: str, health: EntityHealth) -> None:
        self.threads.add(threading.current_thread())
        self.saved[entity] = health


@pytest.mark.simulated
async def test_section_4_a_store_has_one_outstanding_call_and_while_it_hangs_others_fail_at_once() -> None:
    store = GatedStore()
    calls, loop = StoreCalls(store), asyncio.get_running_loop()
    first = asyncio.create_task(calls.load("flights"))
    await asyncio.sleep(3)
    second = asyncio.create_task(calls.load("flights"))
    for call in (first, second):
        with pytest.raises(TimeoutError, match="has not answered for 5 s"):
            await call
    assert loop.time() == pytest.approx(5, abs=0.1)
    for _ in range(10):
        with pytest.raises(TimeoutError):
            await calls.load("flights")
    assert loop.time() == pytest.approx(5, abs=0.1)
    assert store.calls == 1
    store.answers.set()
    await asyncio.sleep(0.1)
    assert await asyncio.gather(*(calls.load("flights") for _ in range(5))) == [DOWN] * 5
    assert store.most_callers == 1


@pytest.mark.simulated
async def test_a_cancelled_caller_leaves_its_call_running_and_closing_ends_it() -> None:
    store = GatedStore()
    calls = StoreCalls(store)
    caller = asyncio.create_task(calls.load("flights"))
    await asyncio.sleep(1)
    caller.cancel()
    await asyncio.wait({caller})
    assert store.callers == 1
    await calls.close()
    assert store.callers == 0
    store.answers.set()
    assert await calls.load("flights") == DOWN


async def test_section_4_a_store_with_plain_methods_has_a_daemon_thread_of_its_own() -> None:
    store = BlockingStore()
    calls = StoreCalls(store)
    await calls.save("flights", DOWN)
    assert await calls.load("flights") == DOWN
    (thread,) = store.threads
    assert thread.daemon
    assert thread is not threading.current_thread()
