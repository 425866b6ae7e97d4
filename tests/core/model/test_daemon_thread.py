"""Calls that block run in a daemon thread; one that hangs costs that thread alone (SPEC section 4)."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from contextvars import ContextVar
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from servicebus_pair.core.model import daemon_thread
from servicebus_pair.core.model.daemon_thread import DaemonThread

HANG = 0.2
LEAVES = """
import asyncio, threading
from servicebus_pair.core.model.daemon_thread import DaemonThread

async def main():
    try:
        await asyncio.wait_for(DaemonThread("store").call(threading.Event().wait), 0.1)
    except TimeoutError:
        print("leaving", flush=True)

asyncio.run(main())
"""


@pytest.fixture
def short_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon_thread, "HANG_SECONDS", HANG)


async def test_calls_run_one_at_a_time_in_one_thread_with_the_callers_context() -> None:
    thread, name = DaemonThread("store"), ContextVar("name", default="")
    running, most = 0, 0

    def work(number: int) -> tuple[int, str, str, bool]:
        nonlocal running, most
        running += 1
        most = max(most, running)
        time.sleep(0.01)
        running -= 1
        current = threading.current_thread()
        return number, name.get(), current.name, current.daemon

    name.set("caller")
    results = await asyncio.gather(*(thread.call(work, number) for number in range(5)))
    assert results == [(number, "caller", "store", True) for number in range(5)]
    assert most == 1


async def test_a_call_raises_what_the_function_raised() -> None:
    thread = DaemonThread("store")
    with pytest.raises(ZeroDivisionError):
        await thread.call(lambda: 1 // 0)
    assert await thread.call(int, "3") == 3


@pytest.mark.usefixtures("short_hang")
async def test_section_4_while_a_call_hangs_others_fail_at_once_and_later_ones_work() -> None:
    thread, returns, threads = DaemonThread("store"), threading.Event(), threading.active_count()
    loop, began = asyncio.get_running_loop(), asyncio.get_running_loop().time()
    hanging, queued = (asyncio.create_task(thread.call(work)) for work in (returns.wait, list))
    for call in (hanging, queued):
        with pytest.raises(TimeoutError, match="the thread of store hangs"):
            await call
    assert loop.time() - began == pytest.approx(HANG, abs=0.15)
    for _ in range(20):
        began = loop.time()
        with pytest.raises(TimeoutError):
            await thread.call(list)
        assert loop.time() - began < HANG / 2
    assert threading.active_count() == threads + 1
    assert await asyncio.wait_for(asyncio.to_thread(list), 5) == []
    returns.set()
    async with asyncio.timeout(5):
        while thread._running_seconds():  # noqa: ASYNC110 - a thread has no event
            await asyncio.sleep(0.01)
    assert await thread.call(int, "3") == 3


async def test_a_call_is_waited_for_without_polling_until_the_one_that_runs_would_hang(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    thread, starts, returns, waits = DaemonThread("store"), threading.Event(), threading.Event(), list[float]()
    wait, now = asyncio.wait, 0.125
    monkeypatch.setattr(daemon_thread, "time", SimpleNamespace(monotonic=lambda: now))

    def work() -> bool:
        starts.set()
        return returns.wait()

    async def recorded(futures: set[Any], *, timeout: float) -> Any:
        waits.append(timeout)
        return await wait(futures, timeout=timeout)

    monkeypatch.setattr(asyncio, "wait", recorded)
    first = asyncio.create_task(thread.call(work))
    await asyncio.to_thread(starts.wait)
    now = 0.375
    second = asyncio.create_task(thread.call(int, "3"))
    await asyncio.sleep(0)
    returns.set()
    assert (await first, await second) == (True, 3)
    assert waits == [5.0, 4.75]


@pytest.mark.usefixtures("short_hang")
async def test_many_short_calls_are_no_hang() -> None:
    thread = DaemonThread("store")
    await asyncio.gather(*(thread.call(time.sleep, HANG / 4) for _ in range(12)))


@pytest.mark.usefixtures("short_hang")
async def test_a_call_may_be_given_more_time_which_others_wait_for() -> None:
    thread = DaemonThread("store")
    await asyncio.gather(thread.call(time.sleep, HANG * 1.5, more_seconds=60), thread.call(list))
    with pytest.raises(TimeoutError, match=r"has not returned for 0.2 s"):
        await thread.call(time.sleep, HANG * 1.5)


async def test_a_call_cancelled_before_its_start_never_starts() -> None:
    thread, goes_on, started = DaemonThread("store"), threading.Event(), list[int]()
    first = asyncio.create_task(thread.call(goes_on.wait))
    second = asyncio.create_task(thread.call(started.append, 2))
    await asyncio.sleep(0.01)
    second.cancel()
    await asyncio.wait({second})
    goes_on.set()
    await first
    assert await thread.call(int, "3") == 3
    assert started == []


def test_section_4_a_hanging_call_does_not_delay_the_exit_of_the_process() -> None:
    began = time.monotonic()
    process = subprocess.run(
        [sys.executable, "-c", LEAVES], cwd=Path(__file__).parents[3], capture_output=True, timeout=60, check=True
    )
    assert process.stdout == b"leaving\n"
    assert time.monotonic() - began < 20
