"""The loop of a history behaves as asyncio's, in simulated time, and in the same order on each run."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from tests.simulated_time import Process
from tests.simulation.clockwork import Clockwork


@pytest.fixture
def loop() -> Iterator[Clockwork]:
    loop = Clockwork()
    with loop.patched_clocks():
        yield loop
    loop.close()


def test_timers_run_in_order_of_time_and_then_of_setting(loop: Clockwork):
    ran: list[Any] = []
    for name, delay in [("b", 2.0), ("a", 1.0), ("c", 2.0), ("now", 0.0)]:
        loop.call_later(delay, lambda name=name: ran.append((name, loop.time())))
    loop.call_later(1.5, ran.append, "cancelled").cancel()
    loop.call_later(3.0, loop.stop)
    loop.run_forever()
    assert ran == [("now", 0.0), ("a", 1.0), ("b", 2.0), ("c", 2.0)]


def test_callbacks_that_call_each_other_do_not_hold_up_timers_that_are_due(loop: Clockwork):
    def again() -> None:
        loop.call_soon(again)

    loop.call_soon(again)
    loop.call_later(0.0, loop.stop)
    loop.run_forever()


def test_a_loop_in_which_nothing_will_ever_happen_is_a_deadlock(loop: Clockwork):
    with pytest.raises(RuntimeError, match="deadlock"):
        loop.run_until_complete(loop.create_future())


def test_an_error_of_a_callback_is_reported_and_the_loop_goes_on(loop: Clockwork):
    reported: list[Any] = []
    loop.set_exception_handler(lambda _, context: reported.append(context["exception"]))
    loop.call_soon(lambda: 1 / 0)
    loop.run_until_complete(asyncio.sleep(1))
    assert [type(each) for each in reported] == [ZeroDivisionError]


def test_a_killed_process_runs_nothing_any_more(loop: Clockwork):
    ran: list[float] = []

    async def work() -> None:
        while True:
            ran.append(loop.time())
            await asyncio.sleep(1)

    process = Process(loop, "p")
    task = process.start(work())
    loop.call_later(2.5, process.stop, context=loop.world)
    loop.call_later(9, loop.stop, context=loop.world)
    loop.run_forever()
    assert ran == [0.0, 1.0, 2.0]
    process.resume()
    task.cancel()
    loop.run_until_complete(asyncio.wait({task}))


@pytest.mark.parametrize("lean", [False, True])
def test_waiting_for_one_future_is_as_in_asyncio(loop: Clockwork, lean: bool):
    async def ended(seconds: float, *, timeout: float | None, fail: bool = False) -> tuple[int, int, float]:
        async def work() -> None:
            await asyncio.sleep(seconds)
            if fail:
                raise OSError

        began = loop.time()
        task = asyncio.ensure_future(work())
        others = set() if lean else {loop.create_future()}
        for other in others:
            other.set_result(None)
        try:
            done, pending = await asyncio.wait({task, *others}, timeout=timeout)
        finally:
            took = loop.time() - began
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        return len(done - others), len(pending), took

    async def all_cases() -> None:
        assert await ended(1, timeout=None) == (1, 0, 1)
        assert await ended(1, timeout=3) == (1, 0, 1)
        assert await ended(3, timeout=1) == (0, 1, 1)
        assert await ended(1, timeout=3, fail=True) == (1, 0, 1)
        waiting = asyncio.ensure_future(ended(5, timeout=3))
        await asyncio.sleep(1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert loop.time() == 5

    loop.run_until_complete(all_cases())


def test_the_network_is_reported_and_not_asked(loop: Clockwork):
    reported: list[str] = []
    loop.set_exception_handler(lambda _, context: reported.append(context["message"]))
    with pytest.raises(RuntimeError, match="looked up the address"):
        loop.run_until_complete(loop.create_connection(asyncio.Protocol, "example.invalid", 443))
    assert reported == ["a history looked up the address of example.invalid"]
