"""``servicebus_pair_at_scale``: what it submits to Spark; tests/system/test_example_dags.py runs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.airflow.conftest import Example


def test_jobs_are_submitted_with_a_reference_and_without_speculation(example: Example, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SERVICEBUS_PAIR_REFERENCE", "file:/etc/pair.json")

    dag = example("servicebus_pair_at_scale")

    assert {task.task_id: sorted(task.downstream_task_ids) for task in dag.tasks} == {
        "profile": ["drain"],
        "drain": ["cost", "reconcile"],
        "reconcile": ["report"],
        "cost": [],
        "report": [],
    }
    for task in dag.tasks:
        if task.task_id == "report":
            continue
        assert task.application_args[:2] == ["--pair", "file:/etc/pair.json"]
        assert task.conf["spark.speculation"] == "false"
        assert Path(task.application).is_file()
