"""Kills, time limits and the supervisor's death end a task's coroutines and close what they opened."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import CancelledError
from contextlib import asynccontextmanager
from datetime import timedelta

import psutil
import pytest
from airflow.sdk import DAG, task

from servicebus_pair.airflow_runtime.cancellable_run import CancellableRun
from tests.airflow.conftest import CONN_ID, Pair, RunDag, states
from tests.airflow.support.queues import contents
from tests.airflow.support.tasks import send

LIMIT = 15  # seconds, enough for a send to begin


def test_cancel_stops_the_running_coroutine_and_runs_its_cleanup():
    closed = threading.Event()
    started = threading.Event()

    async def work() -> None:
        try:
            started.set()
            await asyncio.sleep(60)
        finally:
            closed.set()

    run = CancellableRun()

    def kill() -> None:
        started.wait()
        run.cancel()

    threading.Thread(target=kill).start()
    with pytest.raises(CancelledError):
        run.run(work())

    assert closed.is_set()


def test_a_time_limit_ends_a_hanging_send_and_leaves_no_thread(
    pair: Pair, run_dag: RunDag, capfd: pytest.CaptureFixture[str]
):
    pair.primary.freeze()
    pair.secondary.freeze()
    with DAG("hanging", schedule=None) as dag:
        send(messages=["a"], execution_timeout=timedelta(seconds=LIMIT))

    began = time.monotonic()
    run = run_dag(dag)
    seconds = time.monotonic() - began
    pair.primary.thaw()
    pair.secondary.thaw()

    assert states(run) == {"send": "failed"}
    log = capfd.readouterr().out
    assert "AirflowTaskTimeout" in log
    assert "0 messages for flights were accepted" in log
    assert "some of the 1 in flight may have been accepted too" in log
    assert seconds < LIMIT + 40
    assert "servicebus-pair" not in {thread.name for thread in threading.enumerate()}


def test_cancel_between_two_coroutines_refuses_the_next_and_closes_managers():
    """A function that produces the messages of a send may be running when the kill comes."""
    happened: list[str] = []

    @asynccontextmanager
    async def opened() -> AsyncIterator[None]:
        happened.append("opened")
        try:
            yield
        finally:
            happened.append("closed")

    async def call() -> None:
        happened.append("called")

    run = CancellableRun()
    with run.session() as session, session.enter(opened()):
        session.run(call())
        run.cancel()
        with pytest.raises(CancelledError):
            session.run(call())

    assert happened == ["opened", "called", "closed"]
    assert "servicebus-pair" not in {thread.name for thread in threading.enumerate()}


def test_a_time_limit_ends_a_yielding_function_and_reports_accepted_messages(
    pair: Pair, run_dag: RunDag, capfd: pytest.CaptureFixture[str]
):
    def endless() -> Iterator[str]:
        yield from ["x"] * 2_000
        # Everything was sent: let Airflow's time limit, which uses this timer, expire now.
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        threading.Event().wait()

    with DAG("endless", schedule=None) as dag:
        task.servicebus_send(
            servicebus_pair_conn_id=CONN_ID, entity="flights", execution_timeout=timedelta(minutes=10)
        )(endless)()

    assert states(run_dag(dag)) == {"endless": "failed"}
    log = capfd.readouterr().out
    assert "AirflowTaskTimeout" in log
    assert "2000 messages for flights were accepted, 2000 by the primary" in log
    assert len(contents(pair.primary["contoso"], "flights")) == 100


# The child stands in for Airflow's task runner, which runs in a process of its own with a socket to its supervisor.
PROGRAM = """
import asyncio, os, signal, socket, sys

from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import CommsDecoder

from servicebus_pair.airflow_runtime.cancellable_run import CancellableRun

if os.fork():
    signal.pause()
if sys.argv[1] == "supervised":
    task_runner.SUPERVISOR_COMMS = CommsDecoder(socket=socket.socketpair()[0])


async def work():
    print(os.getpid(), flush=True)
    try:
        await asyncio.sleep(60)
    finally:
        print("closed", flush=True)


CancellableRun().run(work())
"""


@pytest.mark.parametrize("supervised", [True, False])
def test_the_death_of_the_supervisor_cancels_the_task_and_that_of_another_parent_does_not(supervised: bool):
    how = "supervised" if supervised else "alone"
    with subprocess.Popen([sys.executable, "-c", PROGRAM, how], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        _, alive = psutil.wait_procs([child], timeout=20 if supervised else 3)
        for each in alive:
            each.kill()

        assert alive == ([] if supervised else [child])
        assert parent.stdout.read().endswith("closed\n") is supervised
