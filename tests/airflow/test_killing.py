"""A kill or a time limit ends an operator soon, and what it opened is closed."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import CancelledError
from datetime import timedelta

import pytest
from airflow.sdk import DAG

from servicebus_pair.hooks.running import CancellableRun
from servicebus_pair.operators.send import ServiceBusPairSendOperator
from tests.airflow.conftest import CONN_ID, Pair, RunDag, states


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
            execution_timeout=timedelta(seconds=2),
        )

    began = time.monotonic()
    run = run_dag(dag)
    seconds = time.monotonic() - began
    pair.primary.thaw()
    pair.secondary.thaw()

    assert states(run) == {"send": "failed"}
    assert "AirflowTaskTimeout" in capfd.readouterr().out
    assert seconds < 20
    assert "servicebus-pair" not in {thread.name for thread in threading.enumerate()}
