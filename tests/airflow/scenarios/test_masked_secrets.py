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


@pytest.mark.apart
def test_the_key_appears_nowhere(
    pair: Pair, run_dag: RunDag, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
):
    with DAG("whole", schedule=None) as dag:
        wait = ServiceBusPrimaryHealthSensor(task_id="wait", conn_id=CONN_ID, entities=["flights"])
        chain(tasks.provision(), tasks.send(messages=["a"]), wait, tasks.drain())
    with DAG("failing", schedule=None) as failing:
        tasks.send(messages=["a"], timeout=3)

    assert set(states(run_dag(dag)).values()) == {"success"}
    pair.primary.kill()
    pair.secondary.kill()
    assert states(run_dag(failing)) == {"send": "failed"}

    printed = capfd.readouterr()
    assert "entity=flights" in printed.out
    assert KEY not in printed.out + printed.err + caplog.text
    assert KEY.encode() not in all_files()
    assert "whole" in database_dump()
    assert KEY not in database_dump()
    assert KEY not in repr([*dag.tasks, ServiceBusPairHook(CONN_ID), ServiceBusPairHook(CONN_ID).get_settings()])


def test_operators_leave_neither_keys_nor_bodies_behind(
    pair: Pair, run_dag: RunDag, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture, tmp_path: Path
):
    body = f"body-{secrets.token_hex(8)}"
    file = tmp_path / "messages.jsonl"
    file.write_text(json.dumps({"body": body, "application_properties": {"hidden": body}}))
    with DAG("operating", schedule=None) as dag:

        @task.servicebus_send(conn_id=CONN_ID, entity="flights")
        def rows() -> Iterator[str]:
            yield body

        chain(
            tasks.provision(),
            tasks.send(task_id="file", path=str(file)),
            rows(),
            tasks.fail_over(),
            ServiceBusPairFailbackOperator(task_id="back", conn_id=CONN_ID, entities="flights", reason="a test"),
            tasks.drill(messages=1),
            tasks.cost(),
            tasks.cleanup(what="all"),
        )
    with DAG("wrong", schedule=None) as wrong:
        tasks.send(path=str(file))

    assert set(states(run_dag(dag)).values()) == {"success"}
    file.write_text(f'{{"body": "{body}", "text": 1}}\n')
    assert set(states(run_dag(wrong)).values()) == {"failed"}
    file.write_text(f'{{"body": "{body}"')
    assert set(states(run_dag(wrong)).values()) == {"failed"}

    assert len(contents(pair.primary["contoso"], "flights")) == 3
    printed = capfd.readouterr()
    left = printed.out + printed.err + caplog.text + database_dump()
    assert "field 'text' is unknown" in left
    assert KEY not in left
    assert body not in left
    assert KEY not in repr([each.__dict__ for each in dag.tasks])
