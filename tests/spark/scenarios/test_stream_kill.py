"""A streaming query is killed between sending a batch and its commit: the replay repeats its message ids."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.spark.conftest import Pair
from tests.spark.support.ledger_files import wait_for_records
from tests.spark.support.messages import numbered, send
from tests.spark.support.spark_submit import REFERENCE, submitted

PROGRAM = Path(__file__).parents[1] / "support" / "stream_program.py"
EACH = 30
SECONDS = 180


@pytest.mark.slow
@pytest.mark.timeout(2 * SECONDS)
def test_uncommitted_batch_repeats_its_ids(pair: Pair, tmp_path: Path):
    first, second, to = pair.fresh_queue(), pair.fresh_queue(), pair.fresh_queue()
    send(pair, first, *numbered(EACH))
    send(pair, second, *numbered(EACH, first=EACH))
    ledger, gate, log = tmp_path / "ledger", tmp_path / "gate", tmp_path / "log"
    arguments = {"--pair": REFERENCE, "--first": first, "--second": second, "--to": to, "--gate": str(gate)}
    arguments |= {"--ledger": str(ledger), "--home": str(tmp_path)}

    os.mkfifo(gate)
    with submitted(pair, PROGRAM, arguments, log=log) as query:
        wait_for_records(ledger, EACH, "primary", ended=lambda: query.poll() is not None)
        os.killpg(query.pid, signal.SIGKILL)
    # Release the worker that waits for the gate, so that it notices the end of its driver.
    os.close(os.open(gate, os.O_RDWR))
    before = pair.bodies_by_id(to)
    assert {body for bodies in before.values() for body in bodies} == {b"body %d" % n for n in range(EACH)}
    assert not (tmp_path / "manifests").exists(), "nothing was committed"

    gate.unlink()
    gate.touch()
    with submitted(pair, PROGRAM, arguments, log=log) as query:
        assert query.wait(SECONDS) == 0, log.read_text()
    after = pair.bodies_by_id(to)
    assert set(before) < set(after)
    assert all(len(set(bodies)) == 1 for bodies in after.values()), "no id is used for two rows"
    assert {bodies[0] for bodies in after.values()} == {b"body %d" % n for n in range(2 * EACH)}
    assert len(after) == 2 * EACH, "both queries use the same ids"
    assert {message_id for message_id, bodies in after.items() if len(bodies) > 1} == set(before)
    (manifest,) = (tmp_path / "manifests").rglob("*.json")
    assert manifest.name == "0.json", "the same batch is repeated"
