"""The DAGs of Spark jobs: what they submit; tests/system/test_example_dags.py runs them."""

from __future__ import annotations

from pathlib import Path

from servicebus_pair.dags import at_scale_dag, proof_dag


def test_jobs_are_submitted_with_a_reference_and_without_speculation():
    given = {
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
        "requirements": ["reconcile", "report"],
        "reconcile": ["report"],
        "report": [],
    }
    submitted = [task for task in (*dag.tasks, *proof.tasks) if task.task_id not in ("requirements", "report")]
    assert len(submitted) == 5
    for task in submitted:
        assert task.application_args[0] == "--pair"
        assert task.conf["spark.speculation"] == "false"
        assert task.conf["spark.executor.memory"] == "4g"
        assert task._conn_id == "cluster"
        assert Path(task.application).is_file()
    references = [task.application_args[1] for task in submitted]
    assert references == ["file:/etc/pair.json"] * 4 + ["env:AIRFLOW_CONN_ORDERS"]
