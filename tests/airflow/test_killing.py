"""A kill or a time limit ends an operator soon, and what it opened is closed."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import CancelledError
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from airflow.sdk import DAG, task

from servicebus_pair.hooks.running import CancellableRun
from servicebus_pair.operators.send import ServiceBusPairSendOperator
from tests.airflow.conftest import CONN_ID, Pair, RunDag, states
from tests.airflow.queues import contents

LIMIT = 15  # seconds in which a send has surely begun


def test_a_kill_cancels_what_runs_and_lets_it_clean_up():
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


def test_a_kill_when_nothing_runs_does_nothing():
    CancellableRun().cancel()


@pytest.mark.apart
def test_a_time_limit_ends_a_send_that_hangs_and_leaves_no_thread(
    pair: Pair, run_dag: RunDag, capfd: pytest.CaptureFixture[str]
):
    pair.primary.freeze()
    pair.secondary.freeze()
    with DAG("hanging", schedule=None) as dag:
        ServiceBusPairSendOperator(
            task_id="send",
            conn_id=CONN_ID,
            entity="flights",
            messages=["a"],
            execution_timeout=timedelta(seconds=LIMIT),
        )

    began = time.monotonic()
    run = run_dag(dag)
    seconds = time.monotonic() - began
    pair.primary.thaw()
    pair.secondary.thaw()

    assert states(run) == {"send": "failed"}
    told = capfd.readouterr().out
    assert "AirflowTaskTimeout" in told
    assert "0 messages for flights were accepted" in told
    assert "some of the 1 in hand may be too" in told
    assert seconds < LIMIT + 40
    assert "servicebus-pair" not in {thread.name for thread in threading.enumerate()}


def test_a_kill_between_two_calls_lets_none_follow_and_what_is_open_is_closed():
    """As of a send whose messages come from a function: the kill may come while that runs."""
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
    with run.calls() as calls, calls.opened(opened()):
        calls.run(call())
        run.cancel()
        with pytest.raises(CancelledError):
            calls.run(call())

    assert happened == ["opened", "called", "closed"]
    assert "servicebus-pair" not in {thread.name for thread in threading.enumerate()}


def test_a_time_limit_ends_a_function_that_yields_and_what_it_yielded_before_is_accounted_for(
    pair: Pair, run_dag: RunDag, capfd: pytest.CaptureFixture[str]
):
    def endless() -> Iterator[str]:
        yield from ["x"] * 2_000
        # All of it was sent: now the time of Airflow's limit, which is this very timer, is over.
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        threading.Event().wait()

    with DAG("endless", schedule=None) as dag:
        task.servicebus_send(conn_id=CONN_ID, entity="flights", execution_timeout=timedelta(minutes=10))(endless)()

    assert states(run_dag(dag)) == {"endless": "failed"}
    told = capfd.readouterr().out
    assert "AirflowTaskTimeout" in told
    assert "2000 messages for flights were accepted, 2000 by the primary" in told
    assert len(contents(pair.primary["contoso"], "flights")) == 100
