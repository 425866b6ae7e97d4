"""The syphon's rate limit, which can be changed while it runs (SPEC section 6)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.core.throttle import Throttle


class SleptClock:
    """Time goes on by sleeping only."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.seconds += seconds
        await asyncio.sleep(0)


async def test_without_a_limit_everything_asked_for_is_given_at_once():
    clock = SleptClock()
    assert await Throttle(None, clock=clock).take(4500) == 4500
    assert clock.seconds == 0


@pytest.mark.parametrize("rate", [0.5, 7, 1000])
async def test_a_limit_holds_over_time(rate: float):
    clock = SleptClock()
    throttle = Throttle(rate, clock=clock)
    taken = 0
    while clock.seconds < 20:
        taken += await throttle.take(100)
    assert taken <= rate * clock.seconds + 1
    assert taken >= rate * clock.seconds * 0.9 - 1


async def test_what_was_not_used_can_be_used_later_but_adds_up_to_a_second_at_most():
    clock = SleptClock()
    throttle = Throttle(10, clock=clock)
    await clock.sleep(3600)
    assert await throttle.take(100) == 10
    throttle.give_back(10)
    assert await throttle.take(100) == 10


async def test_a_limit_that_is_lifted_frees_who_waits_for_it():
    class StuckClock(SleptClock):
        async def sleep(self, seconds: float) -> None:
            assert seconds > 1
            await asyncio.Event().wait()

    throttle = Throttle(0.001, clock=StuckClock())
    waiting = asyncio.create_task(throttle.take(5))
    await asyncio.sleep(0)
    throttle.rate = None
    assert await waiting == 5


@pytest.mark.parametrize("rate", [0, -1, float("inf"), float("nan")])
def test_a_rate_that_is_none_is_refused_by_name(rate: Any):
    with pytest.raises(ConfigurationError, match=r"rate is .*above 0"):
        Throttle(rate, clock=SleptClock())
