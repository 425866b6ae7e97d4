"""Recoveries without Spark for the system tests."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

from airflow.sdk import DAG

from servicebus_pair.operators.syphon import ServiceBusPairSyphonOperator
from servicebus_pair.sensors.backlog import ServiceBusBacklogSensor
from servicebus_pair.sensors.servicebus_pair import ServiceBusPrimaryHealthSensor

CONN_ID = "contoso_pair"
ENTITIES = ["flights", "briefings", "delays"]
QUEUES = [f"contoso/x-servicebus-transfer/{index}" for index in range(10)]
LEDGER = str(Path(os.environ["SERVICEBUS_PAIR_HOME"]) / "ledger")
RETRIES = {"retries": 3, "retry_delay": timedelta(seconds=2)}

with DAG("recovery_with_sensor", schedule=None, default_args=RETRIES, tags=["servicebus_pair"]):
    wait = ServiceBusPrimaryHealthSensor(
        task_id="wait_for_primary",
        servicebus_pair_conn_id=CONN_ID,
        entities=["flights"],
        deferrable=True,
        poke_interval=1,
    )
    drain = ServiceBusPairSyphonOperator(
        task_id="drain",
        servicebus_pair_conn_id=CONN_ID,
        entities=["flights"],
        deferrable=True,
        poll_interval=1,
        ledger=LEDGER,
    )
    wait >> drain

# Slow enough to be interrupted while it moves messages.
with DAG("recovery_slow", schedule=None, default_args=RETRIES, tags=["servicebus_pair"]):
    ServiceBusPairSyphonOperator(
        task_id="drain",
        servicebus_pair_conn_id=CONN_ID,
        entities=["flights"],
        deferrable=True,
        poll_interval=1,
        rate=40,
        ledger=LEDGER,
    )

# Without retries, so that a task that the scheduler fails spuriously fails the run. All tasks resume at the same time.
with DAG("recovery_simultaneous", schedule=None, tags=["servicebus_pair"]):
    waits = ServiceBusPrimaryHealthSensor.partial(
        task_id="wait_for_primary", servicebus_pair_conn_id=CONN_ID, deferrable=True, poke_interval=1
    ).expand(entities=[[entity] for entity in ENTITIES for _ in range(2)])
    drains = ServiceBusPairSyphonOperator.partial(
        task_id="drain", servicebus_pair_conn_id=CONN_ID, deferrable=True, poll_interval=1, ledger=LEDGER
    ).expand(queues=[QUEUES[:3], QUEUES[3:6], QUEUES[6:]])
    empty = ServiceBusBacklogSensor(
        task_id="backlog_is_empty", servicebus_pair_conn_id=CONN_ID, deferrable=True, poke_interval=1
    )
    waits >> drains >> empty
