"""The bridge from synchronous code to the asynchronous core."""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from concurrent.futures import CancelledError

import pytest

from servicebus_pair.core.model.errors import PairClosedError
from servicebus_pair.core.pair.sync_bridge import SyncBridge, _Running

SECONDS = 10.0

INTERRUPTED = """
import asyncio, signal, threading
from servicebus_pair.core.pair.sync_bridge import SyncBridge, _Running

signal.signal(signal.SIGINT, signal.default_int_handler)
ended = threading.Event()

async def call():
    print("running", flush=True)
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        ended.set()
        raise

with SyncBridge() as bridge:
    try:
        bridge.run(call())
    except KeyboardInterrupt:
        print("cancelled" if ended.wait(10) else "still running", flush=True)
"""

FORKED = """
import os, signal, sys, warnings
from servicebus_pair.core.model.errors import PairClosedError
from servicebus_pair.core.pair.sync_bridge import SyncBridge

async def answer():
    return 42

warnings.simplefilter("ignore")  # of the fork, in later versions of Python
with SyncBridge() as bridge:
    assert bridge.run(answer()) == 42
    if child := os.fork():
        assert os.waitpid(child, 0)[1] == 0
        assert bridge.run(answer()) == 42
        sys.exit()
    signal.alarm(5)  # ends a child that hangs
    try:
        bridge.run(answer())
    except PairClosedError as error:
        print(error, flush=True)
"""


async def answer() -> int:
    await asyncio.sleep(0)
    return 42


async def fail() -> None:
    raise LookupError("as raised inside")


async def thread() -> threading.Thread:
    return threading.current_thread()


def test_run_returns_result() -> None:
    with SyncBridge() as bridge:
        assert bridge.run(answer()) == 42


def test_run_raises_and_the_bridge_stays_usable() -> None:
    with SyncBridge() as bridge:
        with pytest.raises(LookupError, match="as raised inside"):
            bridge.run(fail())
        assert bridge.run(answer()) == 42


def test_all_calls_share_one_background_thread() -> None:
    with SyncBridge() as bridge:
        assert bridge.run(thread()) is bridge.run(thread())
        assert bridge.run(thread()) is not threading.current_thread()


def test_background_tasks_run_between_calls() -> None:
    done = threading.Event()

    async def ping() -> None:
        await asyncio.sleep(0.01)
        done.set()

    async def start() -> asyncio.Task[None]:
        return asyncio.create_task(ping())

    with SyncBridge() as bridge:
        task = bridge.run(start())
        assert done.wait(SECONDS)
        assert not task.cancelled()


def test_exit_cancels_running_tasks_and_waits_for_them() -> None:
    ended: list[str] = []

    async def ping_for_ever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.01)
            ended.append("ping")

    async def start() -> asyncio.Task[None]:
        task = asyncio.create_task(ping_for_ever())
        await asyncio.sleep(0)
        return task

    with SyncBridge() as bridge:
        task = bridge.run(start())
    assert task.cancelled()
    assert ended == ["ping"]


def test_exit_closes_asynchronous_generators() -> None:
    ended = threading.Event()

    async def stream() -> AsyncIterator[int]:
        try:
            while True:
                yield 1
        finally:
            ended.set()

    source = stream()

    async def first() -> int:
        return await anext(source)

    with SyncBridge() as bridge:
        assert bridge.run(first()) == 1
    assert ended.is_set()


def test_exit_ends_the_thread() -> None:
    with SyncBridge() as bridge:
        worker = bridge.run(thread())
        assert worker.daemon
    assert not worker.is_alive()


def test_error_in_the_block_is_propagated() -> None:
    with pytest.raises(LookupError, match="of the caller"), SyncBridge():
        raise LookupError("of the caller")


def test_keyboard_interrupt_cancels_the_call() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "running\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.read() == "cancelled\n"
    assert process.returncode == 0


def test_a_forked_process_neither_waits_for_the_thread_of_its_parent_nor_ends_it() -> None:
    child = subprocess.run(
        [sys.executable, "-c", FORKED],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert (child.returncode, child.stderr) == (0, "")
    assert "open a bridge and a pair in each process, after the fork" in child.stdout


@pytest.mark.parametrize("opened", [False, True], ids=["before it was opened", "after it was closed"])
def test_bridge_that_is_not_open_rejects_calls(opened: bool) -> None:
    bridge = SyncBridge()
    if opened:
        with bridge:
            pass
    call = answer()
    with pytest.raises(PairClosedError, match="not open"):
        bridge.run(call)
    assert inspect.getcoroutinestate(call) == inspect.CORO_CLOSED
    if not opened:
        bridge._loop.close()


def test_calls_that_race_with_closing_end() -> None:
    """Each call returns, is cancelled, or is refused before its start; none waits for ever."""
    for _ in range(30):
        outcomes: list[str] = []
        started = threading.Barrier(9)
        bridge = SyncBridge()

        def call(bridge: SyncBridge = bridge, started: threading.Barrier = started, to: list[str] = outcomes) -> None:
            started.wait()
            for _ in range(50):
                try:
                    bridge.run(answer())
                except PairClosedError:
                    return to.append("closed")
                except CancelledError:
                    return to.append("cancelled")
            return to.append("returned")

        threads = [threading.Thread(target=call, daemon=True) for _ in range(8)]
        with bridge:
            for thread in threads:
                thread.start()
            started.wait()
        for thread in threads:
            thread.join(SECONDS)
        assert len(outcomes) == 8


def test_closing_cancels_a_running_call_and_one_that_its_end_starts() -> None:
    bridge, running, ended = SyncBridge(), threading.Event(), list[str]()

    async def second() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("second")

    async def first() -> None:
        running.set()
        try:
            await asyncio.Event().wait()
        finally:
            follower.append(asyncio.create_task(second()))
            await asyncio.sleep(0)

    def call() -> None:
        with pytest.raises(CancelledError):
            bridge.run(first())
        ended.append("first")

    follower: list[asyncio.Task[None]] = []
    caller = threading.Thread(target=call)
    with bridge:
        caller.start()
        assert running.wait(SECONDS)
    caller.join(SECONDS)
    assert sorted(ended) == ["first", "second"]


async def test_call_cancelled_before_its_start_never_starts() -> None:
    call = answer()
    running = _Running(call)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running.wait()
    assert inspect.getcoroutinestate(call) == inspect.CORO_CLOSED
