"""The data source under Spark Connect, which has no SparkContext on the client."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.conftest import Pair

PROGRAM = Path(__file__).parents[1] / "support" / "connect_program.py"
SECONDS = 300


@pytest.mark.slow
def test_connect_writes_reads_and_receives(pair: Pair, tmp_path: Path):
    queue, copy = pair.fresh_queue(), pair.fresh_queue()
    command = [sys.executable, str(PROGRAM), "--pair", "env:PAIR", "--entity", queue, "--copy", copy]
    command += ["--home", str(tmp_path)]
    # With SPARK_TESTING the server takes a free port.
    environment = {**os.environ, "PAIR": pair.file.read_text(), "PYSPARK_PYTHON": sys.executable, "SPARK_TESTING": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "session": "pyspark.sql.connect.session",
        "read": ["m-1", "m-2"],
        "ended": True,
    }
    assert pair.peek(queue) == []
    assert {found.key[1] for found in pair.peek(copy)} == {"m-1-again", "m-2-again"}
