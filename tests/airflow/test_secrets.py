"""The key of a connection string appears in no log, XCom, rendered template, database row or ``repr``."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from airflow.sdk import DAG

from servicebus_pair.operators.provision import ServiceBusPairProvisionOperator
from servicebus_pair.operators.send import ServiceBusPairSendOperator
from servicebus_pair.operators.syphon import ServiceBusPairSyphonOperator
from servicebus_pair.sensors.servicebus_pair import ServiceBusPrimaryHealthSensor
from tests.airflow.conftest import AIRFLOW_HOME, CONN_ID, KEY, Pair, RunDag, states


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


def _all_bytes(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file())


def _database_text() -> str:
    with sqlite3.connect(AIRFLOW_HOME / "airflow.db") as database:
        return "\n".join(database.iterdump())
