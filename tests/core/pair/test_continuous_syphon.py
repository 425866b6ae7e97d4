"""The syphon of ``enable_syphon`` runs as long as its pair is open (SPEC section 6)."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from servicebus_pair.core.model.errors import PairClosedError
from servicebus_pair.core.model.events import Event, MessagesSyphoned, SyphonFailed
from servicebus_pair.core.pair.continuous_syphon import run_continuously
from servicebus_pair.core.sdk._private.capabilities import fast_path
from tests.core.support.local_pair import LocalPair, numbered, open_quick_pair
from tests.core.support.manual_clock import START, ManualClock

pytestmark = pytest.mark.simulated
# Seconds in which a syphon opens its links and moves a message: the public interface of the SDK sleeps meanwhile.
SLACK = 0.7 if fast_path() else 2.6


class Raising:
    """An observer that fails when a message was moved, which ends a syphon."""

    def __init__(self, times: int) -> None:
        self.times = times

    def observe(self, event: Event) -> None:
        if isinstance(event, MessagesSyphoned) and self.times:
            self.times -= 1
            raise RuntimeError("planted")


async def put_and_move(both: LocalPair, number: int) -> float:
    """Put a message into the backlog; return after how many seconds the primary has it."""
    began = asyncio.get_running_loop().time()
    await both.put_into_backlog("flights", numbered(1, start=number))
    for _ in range(600):
        if sum(len(each.messages) for each in both.recorder.of(MessagesSyphoned)) > number:
            assert f"m{number}" in await both.primary_ids()
            return asyncio.get_running_loop().time() - began
        await asyncio.sleep(0.1)
    raise AssertionError(f"message {number} was not moved in a minute")


async def test_section_6_a_syphon_that_fails_unexpectedly_is_started_again() -> None:
    async with open_quick_pair(observers=[Raising(4)], enable_syphon=True) as both:
        # Each of the first four is moved by another syphon, which fails then.
        taken = [await put_and_move(both, number) for number in range(6)]
        assert taken == pytest.approx([0, 1, 2, 4, 8, 0], abs=SLACK)
        failed = both.recorder.of(SyphonFailed)
        assert [(each.error, each.failures, each.restart_in) for each in failed] == [
            ("ObserverError", number, 2 ** (number - 1)) for number in (1, 2, 3, 4)
        ]


async def test_section_6_a_failure_long_after_the_last_one_is_the_first_again() -> None:
    raising = Raising(2)
    async with open_quick_pair(observers=[raising], enable_syphon=True) as both:
        for number in range(3):
            await put_and_move(both, number)
        await asyncio.sleep(200)
        raising.times = 1
        await put_and_move(both, 3)
        assert await put_and_move(both, 4) == pytest.approx(1, abs=SLACK)
        assert [each.failures for each in both.recorder.of(SyphonFailed)] == [1, 2, 1]


async def test_section_6_a_syphon_that_ran_for_more_than_two_minutes_is_started_again_after_a_second() -> None:
    clock, events = ManualClock(), list[Any]()
    runs: list[tuple[float, Exception | None]] = [(ran, RuntimeError("x")) for ran in (0.0, 120.0, 120.5, 5.0)]

    async def run(*, wait_for_permissions: bool) -> None:
        assert wait_for_permissions
        seconds, error = runs.pop(0)
        clock.time += seconds
        if error is not None:
            raise error

    syphon: Any = SimpleNamespace(run=run)
    for last in (PairClosedError("closing"), None):
        runs.append((1.0, last))
        await run_continuously(lambda: syphon, clock=clock, emit=events.append)
        assert runs == []
    assert [(each.failures, each.restart_in) for each in events] == [(1, 1), (2, 2), (1, 1), (2, 2)]
    assert (clock.sleeps, events[-1].at) == ([1, 2, 1, 2], START + 245.5 + 4)


async def test_section_7_a_pair_closes_while_its_syphon_waits_to_start_again() -> None:
    loop = asyncio.get_running_loop()
    async with open_quick_pair(observers=[Raising(10**6)], enable_syphon=True) as both:
        for number in range(5):
            await put_and_move(both, number)
        began = loop.time()
        await both.pair.close()
        assert loop.time() - began < 3
