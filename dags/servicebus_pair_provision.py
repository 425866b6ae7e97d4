"""Creates the backlog queues of a pair of namespaces, or lists what it would create."""

from __future__ import annotations

import os
from datetime import timedelta

from airflow.sdk import DAG, Param

from servicebus_pair.operators.provision import ServiceBusPairProvisionOperator

CONN_ID = os.environ.get("SERVICEBUS_PAIR_CONN_ID", "contoso_pair")

DOCS = """
### Provisioning of a pair of namespaces

Creates the missing backlog queues on the secondary and changes nothing else. Run it once for a new pair, and after
the number of backlog queues was raised in the connection or `ordering` was set to `session`, which adds queues that
require sessions. It is safe to run again, and concurrently.

With *Plan only* it creates nothing: the log of `provision` lists missing and extra queues, and the fields in which
existing queues differ from the description.

| setting | where | |
|---|---|---|
| `SERVICEBUS_PAIR_CONN_ID` | environment | id of the connection; default `contoso_pair` |
| trigger form | | dry run, and how to treat queues that differ |
"""

with DAG(
    "servicebus_pair_provision",
    schedule=None,
    # Triggered by hand only: while the DAG is paused, a triggered run would stay queued.
    is_paused_upon_creation=False,
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=30)},
    params={
        "plan_only": Param(
            default=False,
            type="boolean",
            title="Plan only",
            description="Create nothing; log what would be created.",
        ),
        "on_drift": Param(
            "warn",
            enum=["warn", "fail"],
            values_display={"warn": "warn in the log", "fail": "fail the task"},
            title="If a queue differs from the description",
            description="It is used unchanged in either case, and missing queues are created first.",
        ),
    },
    doc_md=DOCS,
    tags=["servicebus_pair", "example"],
):
    # [START provision]
    ServiceBusPairProvisionOperator(
        task_id="provision",
        servicebus_pair_conn_id=CONN_ID,
        plan_only="{{ params.plan_only }}",
        on_drift="{{ params.on_drift }}",
    )
    # [END provision]
