"""Makes the backlog queues of a pair of namespaces, or tells what it would make."""

from __future__ import annotations

import os
from datetime import timedelta

from airflow.sdk import DAG, Param

from servicebus_pair.operators.provision import ServiceBusPairProvisionOperator

CONN_ID = os.environ.get("SERVICEBUS_PAIR_CONN_ID", "contoso_pair")

DOCS = """
### Provisioning of a pair of namespaces

Creates the backlog queues that are missing on the secondary, and touches nothing else. Run it once for a
new pair, and after the number of backlog queues was raised in the connection. It may run at any time, and
beside itself.

With *Only tell the plan* it creates nothing: the log of `provision` says what is missing, what is extra and
which fields of existing queues differ from their description.

| setting | where | |
|---|---|---|
| `SERVICEBUS_PAIR_CONN_ID` | environment | the connection, `contoso_pair` if not set |
| the form | Trigger | what to do about differing queues, dry run |
"""

with DAG(
    "servicebus_pair_provision",
    schedule=None,
    # Only people start it: while it was paused they would wait in vain.
    is_paused_upon_creation=False,
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=30)},
    params={
        "plan_only": Param(
            default=False,
            type="boolean",
            title="Only tell the plan",
            description="Create nothing; the log says what would be created.",
        ),
        "on_drift": Param(
            "warn",
            enum=["warn", "fail"],
            values_display={"warn": "warn in the log", "fail": "fail the task"},
            title="If a queue differs from its description",
            description="It is used as it is in either case, and what is missing is created first.",
        ),
    },
    doc_md=DOCS,
    tags=["servicebus_pair", "example"],
):
    # [START provision]
    ServiceBusPairProvisionOperator(
        task_id="provision",
        conn_id=CONN_ID,
        plan_only="{{ params.plan_only }}",
        on_drift="{{ params.on_drift }}",
    )
    # [END provision]
