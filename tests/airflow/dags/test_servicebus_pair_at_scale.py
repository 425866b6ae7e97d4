"""The DAGs of Spark jobs: what they submit; tests/system/test_example_dags.py runs them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from servicebus_pair.core import Ledger
from servicebus_pair.dags import at_scale_dag, proof_dag


def test_jobs_are_submitted_with_a_reference_and_without_speculation():
    given: dict[str, Any] = {
        "servicebus_pair_conn_id": "orders",
        "entities": ["flights", "delays/Subscriptions/all"],
        "ledger": "ledger",
        "output": "output",
        "spark_conn_id": "cluster",
        "spark_conf": {"spark.executor.memory": "4g"},
    }
    dag, proof = at_scale_dag(**given, pair_reference="file:/etc/pair.json"), proof_dag(**given)

    assert {task.task_id: sorted(task.downstream_task_ids) for task in dag.tasks} == {
        "requirements": ["profile", "report"],
        "profile": ["drain"],
        "drain": ["cost", "reconcile"],
        "reconcile": ["report"],
        "cost": [],
        "report": [],
    }
    assert {task.task_id: sorted(task.downstream_task_ids) for task in proof.tasks} == {
        "requirements": ["report", "writers"],
        "writers": ["reconcile"],
        "reconcile": ["report"],
        "report": [],
    }
    others = ("requirements", "report", "writers")
    submitted: list[Any] = [task for task in (*dag.tasks, *proof.tasks) if task.task_id not in others]
    assert len(submitted) == 5
    for task in submitted:
        assert task.application_args[0] == "--pair"
        assert task.conf["spark.speculation"] == "false"
        assert task.conf["spark.executor.memory"] == "4g"
        assert task._conn_id == "cluster"
        assert Path(task.application).is_file()
    references = [task.application_args[1] for task in submitted]
    assert references == ["file:/etc/pair.json"] * 4 + ["env:AIRFLOW_CONN_ORDERS"]


def test_proof_waits_for_the_writers_of_the_ledger_up_to_a_moment(tmp_path: Path):
    dag = proof_dag(entities=["flights"], ledger=str(tmp_path), output="output", wait_for_writers=timedelta(minutes=5))
    sensor: Any = dag.get_task("writers")
    assert (sensor.reschedule, sensor.poke_interval) == (True, 5.0), "waiting takes no worker"
    begun, long_ago = (
        {"dag_run": SimpleNamespace(run_after=datetime.now(UTC) - timedelta(minutes=minutes))} for minutes in (0, 6)
    )
    with Ledger(tmp_path, run="publish"):
        assert not sensor.poke(begun)
        assert sensor.poke(long_ago)
    assert sensor.poke(begun)
