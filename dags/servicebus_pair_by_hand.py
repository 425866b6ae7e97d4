"""Fails entities over or back by hand, on the record."""

from __future__ import annotations

import os
from datetime import timedelta

from airflow.sdk import DAG, Param, task
from airflow.sdk.exceptions import AirflowFailException

from servicebus_pair.operators.failover import ServiceBusPairFailbackOperator, ServiceBusPairFailoverOperator

CONN_ID = os.environ.get("SERVICEBUS_PAIR_CONN_ID", "contoso_pair")

DOCS = """
### Failover and failback by hand

*Fail over* sends what is meant for the entities to the backlog, as for announced maintenance: until somebody
fails back, or the time is over and the primary answers a ping. *Fail back* sends it to the primary again; what
waits in the backlog is brought home by `servicebus_pair_recovery`.

Every task of the pair learns of it, who did it and why. It may run again at any time.

| setting | where | |
|---|---|---|
| `SERVICEBUS_PAIR_CONN_ID` | environment | the connection, `contoso_pair` if not set |
| the form | Trigger | what, for which entities, why, for how long |
"""

FORM = {
    "action": Param("fail_over", enum=["fail_over", "fail_back"], title="What to do"),
    "entities": Param(
        ["flights"],
        type="array",
        items={"type": "string", "minLength": 1},
        minItems=1,
        title="Queues and topics",
        description="One per line.",
    ),
    "reason": Param("maintenance", type="string", minLength=1, title="Why", description="For the record."),
    "hold_minutes": Param(
        60,
        type="integer",
        minimum=0,
        maximum=7 * 1440,
        title="For at least, minutes",
        description="No ping ends the failover before.",
    ),
}

with DAG(
    "servicebus_pair_by_hand",
    schedule=None,
    # Only people start it: while it was paused they would wait in vain.
    is_paused_upon_creation=False,
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=10)},
    params=FORM,
    doc_md=DOCS,
    tags=["servicebus_pair", "example"],
):

    @task.branch
    def action(params: dict[str, str]) -> str:
        """Go where the form says; what is misspelt there must not leave another entity failed over."""
        unknown = sorted(set(params) - set(FORM))
        if unknown:
            raise AirflowFailException(f"the form has no {unknown}: allowed are {sorted(FORM)}; nothing was changed")
        return params["action"]

    # [START fail_over]
    fail_over = ServiceBusPairFailoverOperator(
        task_id="fail_over",
        conn_id=CONN_ID,
        entities="{{ params.entities | join(',') }}",
        reason="{{ params.reason }}",
        hold="{{ params.hold_minutes * 60 }}",
    )
    # [END fail_over]

    # [START fail_back]
    fail_back = ServiceBusPairFailbackOperator(
        task_id="fail_back",
        conn_id=CONN_ID,
        entities="{{ params.entities | join(',') }}",
        reason="{{ params.reason }}",
    )
    # [END fail_back]

    action() >> [fail_over, fail_back]
