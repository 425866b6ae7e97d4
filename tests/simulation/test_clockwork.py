"""The loop of a history behaves as asyncio's, in simulated time, and in the same order on each run."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.simulation.clockwork import Clockwork


@pytest.fixture
def loop() -> Iterator[Clockwork]:
    loop = Clockwork()
    with loop.patched_clocks():
        yield loop
    loop.close()


def test_a_loop_in_which_nothing_will_ever_happen_is_a_deadlock(loop: Clockwork):
    with pytest.raises(RuntimeError, match="deadlock"):
        loop.run_until_complete(loop.create_future())


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
