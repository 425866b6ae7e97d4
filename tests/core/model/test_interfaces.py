"""The system clock and the health store of one process (SPEC section 4)."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from servicebus_pair.core.model import interfaces
from servicebus_pair.core.model.health_state import HEALTHY
from servicebus_pair.core.model.interfaces import InMemoryHealthStore, SystemClock, sleep_until_set


async def test_setting_the_system_clock_does_not_change_what_an_outage_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    system = SimpleNamespace(time=lambda: 1000.0, monotonic=lambda: 400.0)
    monkeypatch.setattr(interfaces, "time", system)
    clock = SystemClock()
    assert clock.now() == 1000.0
    system.time, system.monotonic = lambda: 0.0, lambda: 405.0
    assert clock.now() == 1005.0
    await clock.sleep(0)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(clock.sleep(60), 0.01)


@pytest.mark.simulated
@pytest.mark.parametrize(("sets", "slept"), [(None, 3.0), (0, 1.0), (1, 1.0)])
async def test_a_sleep_ends_in_time_or_with_one_of_its_events_and_leaves_no_task(
    sets: int | None, slept: float
) -> None:
    loop, events = asyncio.get_running_loop(), [asyncio.Event(), asyncio.Event()]
    if sets is not None:
        loop.call_later(1.0, events[sets].set)
    began = loop.time()
    await sleep_until_set(SystemClock(), 3.0, *events)
    assert loop.time() - began == pytest.approx(slept, abs=0.01)
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_health_is_stored_by_path_in_any_case() -> None:
    store = InMemoryHealthStore({"Flights": HEALTHY})
    assert (await store.load("FLIGHTS"), await store.load("delays")) == (HEALTHY, None)
    await store.save("Delays", HEALTHY)
    assert set(store.known) == {"flights", "delays"}
