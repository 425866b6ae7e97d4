"""The key of a connection string appears in no log, XCom, rendered template, database row or ``repr``."""

from __future__ import annotations

import json
import secrets
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG, chain, task

from servicebus_pair.operators.cleanup import ServiceBusPairCleanupOperator
from servicebus_pair.operators.cost import ServiceBusPairCostOperator
from servicebus_pair.operators.drill import ServiceBusPairDrillOperator
from servicebus_pair.operators.failover import ServiceBusPairFailbackOperator, ServiceBusPairFailoverOperator
from servicebus_pair.operators.provision import ServiceBusPairProvisionOperator
from servicebus_pair.operators.send import ServiceBusPairSendOperator
from servicebus_pair.operators.syphon import ServiceBusPairSyphonOperator
from servicebus_pair.sensors.servicebus_pair import ServiceBusPrimaryHealthSensor
from tests.airflow.conftest import AIRFLOW_HOME, CONN_ID, KEY, Pair, RunDag, states
from tests.airflow.queues import contents


@pytest.mark.apart
def test_the_key_appears_nowhere(
    pair: Pair, run_dag: RunDag, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
):
    with DAG("whole", schedule=None) as dag:
        provision = ServiceBusPairProvisionOperator(task_id="provision", conn_id=CONN_ID)
        send = ServiceBusPairSendOperator(task_id="send", conn_id=CONN_ID, entity="flights", messages=["a"])
        wait = ServiceBusPrimaryHealthSensor(task_id="wait", conn_id=CONN_ID, entities=["flights"])
        drain = ServiceBusPairSyphonOperator(task_id="drain", conn_id=CONN_ID)
        provision >> send >> wait >> drain
    with DAG("failing", schedule=None) as failing:
        ServiceBusPairSendOperator(task_id="send", conn_id=CONN_ID, entity="flights", messages=["a"], timeout=3)

    assert set(states(run_dag(dag)).values()) == {"success"}
    pair.primary.kill()
    pair.secondary.kill()
    assert states(run_dag(failing)) == {"send": "failed"}

    printed = capfd.readouterr()
    assert "entity=flights" in printed.out
    assert KEY not in printed.out + printed.err + caplog.text
    assert KEY.encode() not in _all_bytes(AIRFLOW_HOME)
    assert "whole" in _database_text()
    assert KEY not in _database_text()
    assert KEY not in repr([provision, send, wait, drain, provision.hook, provision.hook.get_settings()])


def test_neither_the_key_nor_a_body_appears_in_what_operators_leave_behind(
    pair: Pair, run_dag: RunDag, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture, tmp_path: Path
):
    body = f"body-{secrets.token_hex(8)}"
    file = tmp_path / "messages.jsonl"
    file.write_text(json.dumps({"body": body, "application_properties": {"hidden": body}}))
    with DAG("operating", schedule=None) as dag:

        @task.servicebus_send(conn_id=CONN_ID, entity="flights")
        def rows() -> Iterator[str]:
            yield body

        common: dict[str, Any] = {"conn_id": CONN_ID}
        chain(
            ServiceBusPairProvisionOperator(task_id="provision", **common),
            ServiceBusPairSendOperator(task_id="file", entity="flights", path=str(file), **common),
            rows(),
            ServiceBusPairFailoverOperator(task_id="over", entities="flights", reason="a test", **common),
            ServiceBusPairFailbackOperator(task_id="back", entities="flights", reason="a test", **common),
            ServiceBusPairDrillOperator(task_id="drill", entity="flights", messages=1, **common),
            ServiceBusPairCostOperator(task_id="cost", **common),
            ServiceBusPairCleanupOperator(task_id="cleanup", what="all", **common),
        )
    with DAG("wrong", schedule=None) as wrong:
        ServiceBusPairSendOperator(task_id="line", conn_id=CONN_ID, entity="flights", path=str(file))

    assert set(states(run_dag(dag)).values()) == {"success"}
    file.write_text(f'{{"body": "{body}", "text": 1}}\n')
    assert set(states(run_dag(wrong)).values()) == {"failed"}
    file.write_text(f'{{"body": "{body}"')
    assert set(states(run_dag(wrong)).values()) == {"failed"}

    assert len(contents(pair.primary["contoso"], "flights")) == 3
    printed = capfd.readouterr()
    left = printed.out + printed.err + caplog.text + _database_text()
    assert "field 'text' is unknown" in left
    assert KEY not in left
    assert body not in left
    assert KEY not in repr([each.__dict__ for each in dag.tasks])


def _all_bytes(folder: Path) -> bytes:
    # But the database: who opens and closes its file frees the locks that SQLite holds on it in this process.
    files = [file for file in folder.rglob("*") if file.is_file() and not file.name.startswith("airflow.db")]
    return b"".join(file.read_bytes() for file in files)


def _database_text() -> str:
    with sqlite3.connect(AIRFLOW_HOME / "airflow.db") as database:
        return "\n".join(database.iterdump())
