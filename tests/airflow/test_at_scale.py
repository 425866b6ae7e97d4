"""The DAG that brings a backlog home in Spark: what it submits, and that it does what it says."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from servicebus_pair.operators.provision import ServiceBusPairProvisionOperator
from servicebus_pair.operators.send import ServiceBusPairSendOperator
from tests.airflow.conftest import CONN_ID, KEY, Pair, RunDag, run_task, states
from tests.airflow.queues import contents

Example: TypeAlias = Callable[[str], Any]
DAG_ID = "servicebus_pair_at_scale"


def test_each_job_is_submitted_with_a_reference_and_without_speculation(
    example: Example, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SERVICEBUS_PAIR_REFERENCE", "file:/etc/pair.json")

    dag = example(DAG_ID)

    assert {task.task_id: sorted(task.downstream_task_ids) for task in dag.tasks} == {
        "profile": ["drain"],
        "drain": ["cost", "reconcile"],
        "reconcile": [],
        "cost": [],
    }
    for task in dag.tasks:
        assert task.application_args[:2] == ["--pair", "file:/etc/pair.json"]
        assert task.conf["spark.speculation"] == "false"
        assert Path(task.application).is_file()


@pytest.mark.apart
@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(400)
def test_a_backlog_comes_home_in_spark(
    pair: Pair,
    run_dag: RunDag,
    example: Example,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("SERVICEBUS_PAIR_HOME", str(tmp_path))
    monkeypatch.setenv("SERVICEBUS_PAIR_PLACES", "flights,briefings")
    monkeypatch.setenv("SERVICEBUS_PAIR_SPARK_CONN_ID", "spark_here")
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_HERE", json.dumps({"conn_type": "spark", "host": "local[2]"}))
    bodies, ledger = [str(number) for number in range(60)], str(tmp_path / "ledger")
    run_task(run_dag, lambda: ServiceBusPairProvisionOperator(task_id="provision", conn_id=CONN_ID))
    pair.primary.kill()
    sending = {"task_id": "send", "conn_id": CONN_ID, "entity": "flights", "messages": bodies, "ledger": ledger}
    run_task(run_dag, lambda: ServiceBusPairSendOperator(**sending))
    pair.primary.start()

    run = run_dag(example(DAG_ID))

    assert states(run) == dict.fromkeys(("profile", "drain", "reconcile", "cost"), "success")
    assert sorted(message.body for message in contents(pair.primary["contoso"], "flights")) == sorted(bodies)
    (output,) = (tmp_path / "output").iterdir()
    read = {name: json.loads((output / name / "summary.json").read_text()) for name in ("profile", "reconcile", "cost")}
    drained = json.loads((output / "drain.json").read_text())
    assert (read["profile"]["messages"], drained["moved"], drained["left"]) == (60, {"flights": 60}, 0)
    assert (read["reconcile"]["totals"]["delivered"], read["reconcile"]["totals"]["lost"]) == (60, 0)
    assert read["cost"]["operations"]["diverts"] == 60
    assert KEY not in "".join(file.read_text(errors="replace") for file in output.rglob("*.*") if file.is_file())
