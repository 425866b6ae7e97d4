"""What the page reads of Airflow's database for all pairs."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from airflow.sdk import DAG, task

from servicebus_pair.airflow_runtime.airflow_version import has
from servicebus_pair.assets import pair_asset
from servicebus_pair.ui.sources import airflow_queries
from servicebus_pair.ui.sources.airflow_queries import read_records
from tests.airflow.conftest import RunDag


@pytest.mark.skipif(not has("task_state"), reason="tasks have no state")
@pytest.mark.usefixtures("fresh_state")
def test_tasks_of_one_pair_crowd_out_no_other(run_dag: RunDag, monkeypatch: pytest.MonkeyPatch):
    from airflow.models.task_state_store import TaskStateStoreModel
    from airflow.utils.session import create_session

    with DAG("crowd", schedule=None) as dag:
        inlets = [pair_asset(name) for name in ("quiet_pair", "loud_pair")]
        task(task_id="work", inlets=inlets)(lambda number: number).expand(number=list(range(7)))
    run, now = run_dag(dag), datetime.now(UTC)
    monkeypatch.setattr(airflow_queries, "_MAX_TASKS", 3)
    monkeypatch.setattr(airflow_queries, "_MAX_COUNTER_CHARACTERS", 3000)
    # No task of this DAG works on the pair "strange_pair".
    pairs = ("quiet_pair", "loud_pair", "loud_pair", "loud_pair", "strange_pair", "quiet_pair", "quiet_pair")
    values = {5: json.dumps({"v": 1, "more": "x" * 2**20}), 6: json.dumps({"v": 1, "more": "x" * 3000})}
    with create_session() as session:
        for index, pair in enumerate(pairs):
            row = TaskStateStoreModel(
                dag_run_id=run.id, dag_id="crowd", run_id=run.run_id, task_id="work", map_index=index
            )
            row.key, row.value = f"servicebus_pair/{pair}", values.get(index, json.dumps({"v": 1}))
            # What is too large is the newest, or the oldest.
            row.updated_at = now - timedelta(minutes={0: 60, 5: 0, 6: 90}.get(index, index))
            session.add(row)

    activities = read_records(now).activities

    assert {pair: [each.map_index for each in found] for pair, found in activities.items()} == {
        "quiet_pair": [0],
        "loud_pair": [1, 2],
    }
