"""DESIGN section 3, one bridge: synchronous code runs the asynchronous core, which lives on between calls."""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator

import pytest

from servicebus_pair.core.blocking import Bridge, _Running
from servicebus_pair.core.errors import PairClosedError

SECONDS = 10.0

INTERRUPTED = """
import asyncio, signal, threading
from servicebus_pair.core.blocking import Bridge, _Running

signal.signal(signal.SIGINT, signal.default_int_handler)
ended = threading.Event()

async def call():
    print("running", flush=True)
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        ended.set()
        raise

with Bridge() as bridge:
    try:
        bridge.run(call())
    except KeyboardInterrupt:
        print("cancelled" if ended.wait(10) else "still running", flush=True)
"""


async def answer() -> int:
    await asyncio.sleep(0)
    return 42


async def fail() -> None:
    raise LookupError("as raised inside")


async def thread() -> threading.Thread:
    return threading.current_thread()


def test_a_call_answers_its_result() -> None:
    with Bridge() as bridge:
        assert bridge.run(answer()) == 42


def test_a_call_raises_what_was_raised_and_the_bridge_goes_on() -> None:
    with Bridge() as bridge:
        with pytest.raises(LookupError, match="as raised inside"):
            bridge.run(fail())
        assert bridge.run(answer()) == 42


def test_all_calls_of_a_bridge_share_one_loop_beside_the_caller() -> None:
    with Bridge() as bridge:
        assert bridge.run(thread()) is bridge.run(thread())
        assert bridge.run(thread()) is not threading.current_thread()


def test_background_tasks_run_between_calls() -> None:
    done = threading.Event()

    async def ping() -> None:
        await asyncio.sleep(0.01)
        done.set()

    async def start() -> asyncio.Task[None]:
        return asyncio.create_task(ping())

    with Bridge() as bridge:
        task = bridge.run(start())
        assert done.wait(SECONDS)
        assert not task.cancelled()


def test_leaving_the_bridge_cancels_what_still_runs_and_waits_for_its_end() -> None:
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

    with Bridge() as bridge:
        task = bridge.run(start())
    assert task.cancelled()
    assert ended == ["ping"]


def test_leaving_the_bridge_ends_asynchronous_generators() -> None:
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

    with Bridge() as bridge:
        assert bridge.run(first()) == 1
    assert ended.is_set()


def test_leaving_the_bridge_ends_its_thread() -> None:
    with Bridge() as bridge:
        worker = bridge.run(thread())
        assert worker.daemon
    assert not worker.is_alive()


def test_an_error_in_the_block_leaves_the_bridge_as_it_came() -> None:
    with pytest.raises(LookupError, match="of the caller"), Bridge():
        raise LookupError("of the caller")


def test_an_interruption_of_the_caller_cancels_the_call() -> None:
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


@pytest.mark.parametrize("opened", [False, True], ids=["before it was opened", "after it was closed"])
def test_a_bridge_that_is_not_open_refuses_a_call_instead_of_waiting_for_ever(opened: bool) -> None:
    bridge = Bridge()
    if opened:
        with bridge:
            pass
    call = answer()
    with pytest.raises(PairClosedError, match="not open"):
        bridge.run(call)
    assert inspect.getcoroutinestate(call) == inspect.CORO_CLOSED
    if not opened:
        bridge._loop.close()


async def test_a_call_whose_caller_was_interrupted_before_it_began_never_begins() -> None:
    call = answer()
    running = _Running(call)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running.watched()
    assert inspect.getcoroutinestate(call) == inspect.CORO_CLOSED
