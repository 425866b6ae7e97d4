from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from airflow.sdk import DAG, task

from servicebus_pair.ui.sources import run_queries
from servicebus_pair.ui.sources.run_queries import read_results, read_runs, to_timestamp
from servicebus_pair.ui.sources.task_values import read_json
from tests.airflow.conftest import RunDag


@pytest.mark.parametrize(("stored", "value"), [('{"a": 1}', {"a": 1}), ({"a": 1}, {"a": 1}), ("{", None), (None, None)])
def test_invalid_json_becomes_none(stored: object, value: object):
    assert read_json(stored) == value


def test_naive_times_are_utc():
    assert to_timestamp(datetime(2030, 1, 1)) == to_timestamp(datetime(2030, 1, 1, tzinfo=UTC))  # noqa: DTZ001
    assert to_timestamp(None) is None


def test_results_of_one_dag_crowd_out_no_other_and_large_or_deep_ones_are_not_read(
    run_dag: RunDag, monkeypatch: pytest.MonkeyPatch
):
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session
    from sqlalchemy import text

    deep = "[" * 1500 + "]" * 1500
    as_text = json.dumps(json.dumps({"n": "text"}))
    stored: dict[str, list[Any]] = {
        # The newest first; each takes 100 characters of room more than it has.
        "quiet_results": [json.dumps({"n": "x" * 2**20}), deep, as_text, json.dumps({"n": 4})],
        "loud_results": [json.dumps({"n": n, "more": "x" * 4000}) for n in range(4)],
    }
    monkeypatch.setattr(run_queries, "_MAX_RESULTS", 5)
    monkeypatch.setattr(run_queries, "_MAX_RESULT_CHARACTERS", 12_500)
    update = "UPDATE xcom SET value = :value, timestamp = :at WHERE map_index = :index"
    of_run = text(f"{update} AND dag_id = :dag_id AND run_id = :run_id")
    now = datetime.now(UTC)
    with create_session() as session:
        for dag_id, values in stored.items():
            with DAG(dag_id, schedule=None) as dag:
                task(task_id="report")(lambda number: number).expand(number=[0, 1, 2, 3])
            run = run_dag(dag)
            for index, value in enumerate(values):
                at = str(
                    (now - timedelta(minutes=index + (60 if dag_id == "quiet_results" else 0))).replace(tzinfo=None)
                )
                parameters = {"value": value, "at": at, "index": index, "dag_id": dag_id, "run_id": run.run_id}
                session.execute(of_run, parameters)
        found = read_results(session, XComModel.timestamp >= now - timedelta(days=1), dag_ids=stored)
        session.rollback()

    assert [(dag_id, result["n"]) for dag_id, _, _, result in found] == [
        *(("loud_results", number) for number in range(3)),
        ("quiet_results", "text"),
    ]


@pytest.mark.usefixtures("airflow_db")
def test_more_runs_than_a_database_takes_parameters_are_read():
    from airflow.utils.session import create_session

    with create_session() as session:
        assert read_runs(session, ((f"dag{number}", "run") for number in range(20_000))) == {}
