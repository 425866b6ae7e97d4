"""A secret in any field of the form of a pair is in nothing that a task leaves behind."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG

from servicebus_pair.connection_types import connection_types
from tests.airflow.airflow_runtime.observers.test_lineage import reported  # noqa: F401  the fixture
from tests.airflow.conftest import UNREACHABLE, RunDag, define_connection, states
from tests.airflow.support import tasks
from tests.airflow.support.database import all_files, database_dump
from tests.security.canaries import CANARIES, disclosed

FIELDS = next(list(each["conn-fields"]) for each in connection_types() if each["connection-type"] == "servicebus_pair")


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("fresh_state", "reported")
def test_tasks_leave_no_secret_of_any_field_behind(
    run_dag: RunDag,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
):
    caplog.set_level(logging.DEBUG, "servicebus_pair")
    with DAG("canaries", schedule=None) as dag:
        for name in (*FIELDS, "unknown"):
            define_connection(
                monkeypatch, {**UNREACHABLE, name: CANARIES["connection string"]}, conn_id=f"canary_{name}"
            )
            tasks.send(
                task_id=name,
                servicebus_pair_conn_id=f"canary_{name}",
                messages=["a"],
                timeout=1,
                ledger=str(tmp_path / "ledger"),
            )

    ended: dict[str, Any] = states(run_dag(dag))
    printed = capfd.readouterr()
    left = {
        "output": printed.out + printed.err,
        "log": caplog.text,
        "database": database_dump(),
        "files": all_files().decode(errors="replace"),
        **{str(file): file.read_text(errors="replace") for file in tmp_path.rglob("*") if file.is_file()},
    }

    assert set(ended.values()) == {"failed"}
    assert len(ended) == len(FIELDS) + 1 > 40
    assert "lineage.jsonl" in str(list(left))
    assert {where: text[text.find("c4nary") - 300 :][:400] for where, text in left.items() if disclosed(text)} == {}
    assert json.dumps(CANARIES["connection string"]) not in repr([task.__dict__ for task in dag.tasks])
