"""The rate limit of a drain, which can be changed while it is in use (SPEC section 6)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from servicebus_pair.core.model.errors import ConfigurationError
from servicebus_pair.core.syphon.policies.rate_limiter import RateLimiter
from tests.core.support.manual_clock import START, ManualClock


async def test_without_a_rate_all_permits_are_granted_at_once():
    clock = ManualClock()
    assert await RateLimiter(None, clock=clock).acquire(4500) == 4500
    assert clock.time == START


@pytest.mark.parametrize("rate", [0.5, 7, 1000])
async def test_permits_are_granted_at_the_rate(rate: float):
    clock = ManualClock()
    limiter = RateLimiter(rate, clock=clock)
    granted = 0
    while clock.time < START + 20:
        granted += await limiter.acquire(100)
    seconds = clock.time - START
    assert rate * seconds * 0.9 - 1 <= granted <= rate * seconds + 1


@pytest.mark.parametrize(("rate", "permits"), [(10, 10), (1.5, 1), (0.5, 1)])
async def test_unused_permits_add_up_to_one_second(rate: float, permits: int):
    clock = ManualClock(0.0)
    limiter = RateLimiter(rate, clock=clock)
    assert (await limiter.acquire(100), clock.time) == (1, pytest.approx(1 / rate))
    await clock.sleep(3600)
    assert await limiter.acquire(100) == permits
    limiter.release(permits)
    assert await limiter.acquire(100) == permits


@pytest.mark.parametrize("rate", [0.5, 3.0, 100.0, 1500.0])
async def test_min_permits_are_granted_together_at_the_rate(rate: float):
    clock = ManualClock()
    batch = max(1, int(rate / 2))
    limiter = RateLimiter(rate, clock=clock, burst=batch)
    for _ in range(40):
        assert await limiter.acquire(batch, min_permits=batch) == batch
    assert (clock.time - START) * rate == pytest.approx(40 * batch)


async def test_after_a_stall_no_more_than_the_burst_is_granted_at_once():
    clock = ManualClock()
    limiter = RateLimiter(100, clock=clock, burst=50)
    await clock.sleep(60)
    await limiter.acquire(50, min_permits=50)
    resumed = clock.time
    await limiter.acquire(50, min_permits=50)
    assert clock.time - resumed == pytest.approx(0.5)


async def test_removing_the_rate_wakes_a_waiting_acquire():
    class StuckClock(ManualClock):
        async def sleep(self, seconds: float) -> None:
            assert seconds > 1
            await asyncio.Event().wait()

    limiter = RateLimiter(0.001, clock=StuckClock())
    waiting = asyncio.create_task(limiter.acquire(5))
    await asyncio.sleep(0)
    limiter.rate = None
    assert await waiting == 5


async def test_acquire_returns_zero_after_its_timeout():
    clock = ManualClock()
    assert await RateLimiter(0.1, clock=clock).acquire(5, timeout=2) == 0
    assert clock.time - START == pytest.approx(2)
    assert await RateLimiter(2, clock=clock).acquire(1, timeout=0.75) == 1


@pytest.mark.parametrize("rate", [0, -1, float("inf"), float("nan")])
def test_an_invalid_rate_is_refused(rate: Any):
    with pytest.raises(ConfigurationError, match=r"rate is .*above 0"):
        RateLimiter(rate, clock=ManualClock())
