"""A stream that receives is killed, driver and executors, at any moment: nothing is lost, nothing lands twice.

``make explore ARGS="tests/spark/scenarios/test_receive_stream_kill.py -s"`` kills it 50 times and prints the counts.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from pyspark.sql import SparkSession

from tests.spark.conftest import Pair
from tests.spark.support.messages import numbered, send
from tests.spark.support.spark_submit import REFERENCE, submitted

PROGRAM = Path(__file__).parents[1] / "support" / "receive_program.py"
SECONDS = 180
BATCH = 200


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("kills", [2, pytest.param(50, marks=pytest.mark.exploring)])
def test_killed_stream_loses_nothing_and_lands_nothing_twice(
    spark: SparkSession, pair: Pair, tmp_path: Path, kills: int
) -> None:
    queue, log = pair.fresh_queue(), tmp_path / "log"
    moments = random.Random(kills)  # noqa: S311 - chooses moments, no secrets
    arguments = {"--pair": REFERENCE, "--entity": queue, "--home": str(tmp_path)}
    offsets = tmp_path / "checkpoint" / "offsets"
    sent, of_workers = 0, 0
    for number in range(kills):
        send(pair, queue, *numbered(4 * BATCH, first=sent))
        sent += 4 * BATCH
        before = batches(offsets)
        with submitted(pair, PROGRAM, arguments, log=log) as query:
            while batches(offsets) == before and query.poll() is None:
                time.sleep(0.02)
            if number % 2:
                while query.poll() is None and not kill_workers(query.pid):
                    time.sleep(0.02)
                of_workers += query.poll() is None
                with suppress(subprocess.TimeoutExpired):
                    query.wait(SECONDS)
            else:
                # Between none and about four batches after the first one.
                with suppress(subprocess.TimeoutExpired):
                    query.wait(moments.uniform(0, 3))
            with suppress(ProcessLookupError):
                os.killpg(query.pid, signal.SIGKILL)
            tell(f"kill {number + 1} of {kills}: {batches(offsets)} batches planned, {sent} messages sent")
    with submitted(pair, PROGRAM, arguments, log=log) as query:
        assert query.wait(SECONDS) == 0, log.read_text()[-5000:]
    landed: list[str] = [
        row.messageId for row in spark.read.parquet(str(tmp_path / "table")).select("messageId").collect()
    ]
    lost = len({f"m-{n}" for n in range(sent)}.difference(landed))
    tell(
        f"{kills} kills, {of_workers} of them of the executors' Python workers only: {batches(offsets)} batches, "
        f"{sent} messages sent, {len(landed)} landed, {lost} lost, {len(landed) - len(set(landed))} twice"
    )
    assert sorted(landed) == sorted(f"m-{n}" for n in range(sent))
    assert pair.peek(queue) == []


def batches(offsets: Path) -> int:
    """Return how many batches were planned, of which Spark keeps the last hundred."""
    return max((int(file.name) + 1 for file in offsets.glob("*") if file.name.isdigit()), default=0)


def kill_workers(pid: int) -> bool:
    """Kill the Python workers of a Spark, so that its tasks fail; return whether there were any."""
    with suppress(psutil.Error):
        for process in psutil.Process(pid).children(recursive=True):
            with suppress(psutil.Error):  # others have ended meanwhile
                if "pyspark.daemon" in process.cmdline():
                    process.kill()
                    return True
    return False


def tell(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - counts of a run of many minutes
