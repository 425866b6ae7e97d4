"""Fails entities over or back manually, with a recorded reason."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, Param, task
from airflow.sdk.exceptions import AirflowFailException

from servicebus_pair.operators.failover import ServiceBusPairFailbackOperator, ServiceBusPairFailoverOperator

CONN_ID = os.environ.get("SERVICEBUS_PAIR_CONN_ID", "contoso_pair")

DOCS = """
### Manual failover and failback

*Fail over* diverts the messages of the entities to the backlog, for planned maintenance for example. It ends with a
failback, or when the hold time has passed and the primary answers a ping. *Fail back* sends messages to the primary
again; `servicebus_pair_recovery` drains the backlog.

Every task of the pair sees the change, who made it and why. It is safe to run again.

| setting | where | |
|---|---|---|
| `SERVICEBUS_PAIR_CONN_ID` | environment | id of the connection; default `contoso_pair` |
| trigger form | | the action, the entities, the reason, the hold time |
"""

FORM = {
    "action": Param("fail_over", enum=["fail_over", "fail_back"], title="Action"),
    "entities": Param(
        ["flights"],
        type="array",
        items={"type": "string", "minLength": 1},
        minItems=1,
        title="Queues and topics",
        description="One per line.",
    ),
    "reason": Param("maintenance", type="string", minLength=1, title="Reason", description="For the record."),
    "hold_minutes": Param(
        60,
        type="integer",
        minimum=0,
        maximum=7 * 1440,
        title="Hold time, minutes",
        description="Pings do not end the failover before.",
    ),
}

with DAG(
    "servicebus_pair_by_hand",
    schedule=None,
    # Triggered by hand only: while the DAG is paused, a triggered run would stay queued.
    is_paused_upon_creation=False,
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=10)},
    params=FORM,
    doc_md=DOCS,
    tags=["servicebus_pair", "example"],
):

    @task.branch
    def action(params: Any = None) -> str:
        """Choose the task; a misspelt field must not silently fail over the default entity."""
        unknown = sorted(set(params) - set(FORM))
        if unknown:
            raise AirflowFailException(f"unknown fields {unknown}: allowed are {sorted(FORM)}; nothing was changed")
        return str(params["action"])

    # [START fail_over]
    fail_over = ServiceBusPairFailoverOperator(
        task_id="fail_over",
        servicebus_pair_conn_id=CONN_ID,
        entities="{{ params.entities | join(',') }}",
        reason="{{ params.reason }}",
        hold="{{ params.hold_minutes * 60 }}",
    )
    # [END fail_over]

    # [START fail_back]
    fail_back = ServiceBusPairFailbackOperator(
        task_id="fail_back",
        servicebus_pair_conn_id=CONN_ID,
        entities="{{ params.entities | join(',') }}",
        reason="{{ params.reason }}",
    )
    # [END fail_back]

    action() >> [fail_over, fail_back]
