"""A stream that receives is killed, driver and executors, at any moment: nothing is lost, nothing lands twice."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

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
@pytest.mark.parametrize("kills", [1, pytest.param(50, marks=pytest.mark.exploring)])
def test_killed_stream_loses_nothing_and_lands_nothing_twice(
    spark: SparkSession, pair: Pair, tmp_path: Path, kills: int
) -> None:
    queue, log = pair.fresh_queue(), tmp_path / "log"
    moments = random.Random(kills)  # noqa: S311 - chooses moments, no secrets
    arguments = {"--pair": REFERENCE, "--entity": queue, "--home": str(tmp_path)}
    offsets = tmp_path / "checkpoint" / "offsets"
    sent = 0
    for _ in range(kills):
        send(pair, queue, *numbered(4 * BATCH, first=sent))
        sent += 4 * BATCH
        before = batches(offsets)
        with submitted(pair, PROGRAM, arguments, log=log) as query:
            while batches(offsets) == before and query.poll() is None:
                time.sleep(0.02)
            # Between none and about four batches after the first one.
            with suppress(subprocess.TimeoutExpired):
                query.wait(moments.uniform(0, 3))
            with suppress(ProcessLookupError):
                os.killpg(query.pid, signal.SIGKILL)
    with submitted(pair, PROGRAM, arguments, log=log) as query:
        assert query.wait(SECONDS) == 0, log.read_text()[-5000:]
    landed = [row.messageId for row in spark.read.parquet(str(tmp_path / "table")).select("messageId").collect()]
    assert sorted(landed) == sorted(f"m-{n}" for n in range(sent))
    assert pair.peek(queue) == []


def batches(offsets: Path) -> int:
    return len([file for file in offsets.glob("*") if file.name.isdigit()])
