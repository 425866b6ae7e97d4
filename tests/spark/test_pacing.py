"""A rate is kept over time; a stall is not made up for by a burst."""

from __future__ import annotations

import pytest

from servicebus_pair.spark.pacing import UNPACED_WINDOW, Pace


class VirtualClock:
    def __init__(self) -> None:
        self.time = 1000.0

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.time += seconds


@pytest.mark.parametrize("rate", [0.5, 3.0, 100.0, 1500.0])
async def test_messages_go_at_the_rate(rate: float):
    clock = VirtualClock()
    pace = Pace(rate, clock=clock)
    for _ in range(40):
        await pace.take(pace.window)
    assert (clock.time - 1000.0) * rate == pytest.approx(40 * pace.window)


async def test_after_a_stall_no_more_than_one_window_goes_at_once():
    clock = VirtualClock()
    pace = Pace(100.0, clock=clock)
    clock.time += 60
    await pace.take(pace.window)
    resumed = clock.time
    await pace.take(pace.window)
    assert clock.time - resumed == pytest.approx(pace.window / 100.0)


async def test_without_a_rate_nothing_waits():
    clock = VirtualClock()
    pace = Pace(None, clock=clock)
    await pace.take(UNPACED_WINDOW)
    assert clock.time == 1000.0


def test_a_window_is_half_a_second_of_messages_and_at_least_one():
    assert [Pace(rate, clock=VirtualClock()).window for rate in (0.1, 1.0, 200.0, 1e6)] == [1, 1, 100, UNPACED_WINDOW]
