"""Moves dead letters of the backlog queues to their entities, after their cause was fixed."""

from __future__ import annotations

import os
from datetime import timedelta

from airflow.sdk import DAG, Param

from servicebus_pair.operators.syphon import ServiceBusPairSyphonOperator

CONN_ID = os.environ.get("SERVICEBUS_PAIR_CONN_ID", "contoso_pair")
HOME = os.environ.get("SERVICEBUS_PAIR_HOME")
LEDGER = None if HOME is None else f"{HOME}/ledger"

DOCS = """
### Re-drive of dead letters

Messages that the syphon could not deliver, for example because their entity was deleted, are in the dead-letter queues
of the backlog queues. Fix the cause, for example by creating the entity again, then trigger this DAG: it moves them to
their entities. Messages that still cannot be delivered stay dead letters. It is safe to run again.

| setting | where | |
|---|---|---|
| `SERVICEBUS_PAIR_CONN_ID` | environment | id of the connection; default `contoso_pair` |
| `SERVICEBUS_PAIR_HOME` | environment | parent of the folder `ledger`; when not set, no ledger is written |
| trigger form | | the rate |
"""

with DAG(
    "servicebus_pair_redrive",
    schedule=None,
    # Triggered by hand only: while the DAG is paused, a triggered run would stay queued.
    is_paused_upon_creation=False,
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=30)},
    params={
        "rate": Param(
            None,
            type=["null", "number"],
            exclusiveMinimum=0,
            title="Messages per second",
            description="The limit; empty for no limit.",
        ),
    },
    doc_md=DOCS,
    tags=["servicebus_pair", "example"],
):
    # [START redrive]
    ServiceBusPairSyphonOperator(
        task_id="redrive",
        servicebus_pair_conn_id=CONN_ID,
        redrive=True,
        rate="{{ params.rate or '' }}",
        ledger=LEDGER,
        deferrable=True,
        execution_timeout=timedelta(hours=6),
    )
    # [END redrive]
