"""Keys appear in no log, XCom, rendered template, database row or ``repr``; nor do bodies."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from airflow.sdk import DAG, chain, task

from servicebus_pair.hooks.servicebus_pair import ServiceBusPairHook
from servicebus_pair.operators.failover import ServiceBusPairFailbackOperator
from servicebus_pair.sensors.servicebus_pair import ServiceBusPrimaryHealthSensor
from tests.airflow.conftest import CONN_ID, KEY, Pair, RunDag, states
from tests.airflow.support import tasks
from tests.airflow.support.database import all_files, database_dump
from tests.airflow.support.queues import contents


def test_tasks_leave_neither_keys_nor_bodies_behind(
    pair: Pair, run_dag: RunDag, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture, tmp_path: Path
):
    body = f"body-{secrets.token_hex(8)}"
    file = tmp_path / "messages.jsonl"
    file.write_text(json.dumps({"body": body, "application_properties": {"hidden": body}}))
    with DAG("operating", schedule=None) as dag:

        @task.servicebus_send(servicebus_pair_conn_id=CONN_ID, entity="flights")
        def rows() -> Iterator[str]:
            yield body

        chain(
            tasks.provision(),
            tasks.send(task_id="file", path=str(file)),
            rows(),
            tasks.fail_over(),
            ServiceBusPairFailbackOperator(
                task_id="back", servicebus_pair_conn_id=CONN_ID, entities="flights", reason="a test"
            ),
            ServiceBusPrimaryHealthSensor(task_id="wait", servicebus_pair_conn_id=CONN_ID, entities=["flights"]),
            tasks.drain(),
            tasks.drill(messages=1),
            tasks.cost(),
            tasks.cleanup(what="all"),
        )
    with DAG("failing", schedule=None) as failing:
        tasks.send(path=str(file), timeout=3)

    assert set(states(run_dag(dag)).values()) == {"success"}
    assert len(contents(pair.primary["contoso"], "flights")) == 3
    pair.primary.kill()
    pair.secondary.kill()
    for text in (json.dumps(body), f'{{"body": "{body}", "text": 1}}\n', f'{{"body": "{body}"'):
        file.write_text(text)
        assert set(states(run_dag(failing)).values()) == {"failed"}

    printed = capfd.readouterr()
    left = printed.out + printed.err + caplog.text + database_dump()
    assert "entity=flights" in left
    assert "field 'text' is unknown" in left
    assert KEY not in left
    assert body not in left
    assert KEY.encode() not in all_files()
    assert KEY not in repr([each.__dict__ for each in dag.tasks])
    assert KEY not in repr([*dag.tasks, ServiceBusPairHook(CONN_ID), ServiceBusPairHook(CONN_ID).get_settings()])
