"""Moves dead letters of the backlog queues to their entities, once the cause is mended."""

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

What the syphon could not deliver, such as messages for an entity that was deleted, is in the dead-letter queues of
the backlog queues. Mend the cause, such as by making the entity again, and trigger this: it moves them to their
entities. What still cannot be delivered stays a dead letter. It may run again at any time.

| setting | where | |
|---|---|---|
| `SERVICEBUS_PAIR_CONN_ID` | environment | the connection, `contoso_pair` if not set |
| `SERVICEBUS_PAIR_HOME` | environment | the ledger is in its folder `ledger`; without it none is written |
| the form | Trigger | how fast |
"""

with DAG(
    "servicebus_pair_redrive",
    schedule=None,
    # Only people start it: while it was paused they would wait in vain.
    is_paused_upon_creation=False,
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=30)},
    params={
        "rate": Param(
            None,
            type=["null", "number"],
            exclusiveMinimum=0,
            title="Messages per second",
            description="At most; nothing means no limit.",
        ),
    },
    doc_md=DOCS,
    tags=["servicebus_pair", "example"],
):
    # [START redrive]
    ServiceBusPairSyphonOperator(
        task_id="redrive",
        conn_id=CONN_ID,
        redrive=True,
        rate="{{ params.rate or '' }}",
        ledger=LEDGER,
        deferrable=True,
        execution_timeout=timedelta(hours=6),
    )
    # [END redrive]
