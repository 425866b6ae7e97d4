"""What the page reads of Airflow's database for all pairs."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from airflow.sdk import DAG, task

from servicebus_pair.airflow_runtime.airflow_version import has
from servicebus_pair.ui.sources import airflow_queries
from servicebus_pair.ui.sources.airflow_queries import read_records
from tests.airflow.conftest import RunDag


@pytest.mark.skipif(not has("task_state"), reason="tasks have no state")
@pytest.mark.usefixtures("fresh_state")
def test_tasks_of_one_pair_crowd_out_no_other(run_dag: RunDag, monkeypatch: pytest.MonkeyPatch):
    from airflow.models.task_state_store import TaskStateStoreModel
    from airflow.utils.session import create_session

    with DAG("crowd", schedule=None) as dag:
        task(task_id="work")(lambda number: number).expand(number=[0, 1, 2, 3])
    run, now = run_dag(dag), datetime.now(UTC)
    monkeypatch.setattr(airflow_queries, "_MAX_TASKS", 3)
    with create_session() as session:
        for index, pair in enumerate(("quiet_pair", "loud_pair", "loud_pair", "loud_pair")):
            row = TaskStateStoreModel(
                dag_run_id=run.id, dag_id="crowd", run_id=run.run_id, task_id="work", map_index=index
            )
            row.key, row.value = f"servicebus_pair/{pair}", json.dumps({"v": 1})
            row.updated_at = now - timedelta(minutes=60 if index == 0 else index)
            session.add(row)

    activities = read_records(now).activities

    assert {pair: [each.map_index for each in found] for pair, found in activities.items()} == {
        "quiet_pair": [0],
        "loud_pair": [1, 2],
    }
