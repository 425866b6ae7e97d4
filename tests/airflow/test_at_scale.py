"""The DAG that brings a backlog home in Spark: what it submits. It runs in tests/system/test_example_dags.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

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
