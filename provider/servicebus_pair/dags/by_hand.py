"""``by_hand_dag``: fails entities over or back manually, with a recorded reason."""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG, Param, task

from servicebus_pair.dags.pair_dag import check_arguments, check_form, pair_dag
from servicebus_pair.hooks.servicebus_pair import DEFAULT_CONN_ID
from servicebus_pair.operators.failover import ServiceBusPairFailbackOperator, ServiceBusPairFailoverOperator

__all__ = ["by_hand_dag"]

DOCS = """
### Manual failover and failback

*Fail over* diverts the messages of the entities to the backlog, for planned maintenance for example. It ends with a
failback, or when the hold time has passed and the primary answers a ping. *Fail back* sends messages to the primary
again; the recovery drains the backlog.

Every task of the pair sees the change, who made it and why. It is safe to run again.
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


def by_hand_dag(
    *, servicebus_pair_conn_id: str = DEFAULT_CONN_ID, dag_id: str | None = None, **dag_options: Any
) -> DAG:
    """Return a DAG that is triggered by hand and fails entities over or back.

    :param servicebus_pair_conn_id: the connection of the pair.
    :param dag_id: by default the connection's id and ``_by_hand``.
    :param dag_options: any argument of ``DAG``.
    """
    check_arguments(locals())
    with pair_dag(
        "by_hand",
        servicebus_pair_conn_id=servicebus_pair_conn_id,
        dag_id=dag_id,
        options=dag_options,
        params=FORM,
        doc_md=DOCS,
    ) as dag:

        @task.branch
        def action(params: Any = None) -> str:
            """Choose the task; a misspelt field must not silently fail over the default entity."""
            check_form(params, FORM)
            return str(params["action"])

        # [START fail_over]
        fail_over = ServiceBusPairFailoverOperator(
            task_id="fail_over",
            servicebus_pair_conn_id=servicebus_pair_conn_id,
            entities="{{ params.entities | join(',') }}",
            reason="{{ params.reason }}",
            hold="PT{{ params.hold_minutes }}M",
        )
        # [END fail_over]

        # [START fail_back]
        fail_back = ServiceBusPairFailbackOperator(
            task_id="fail_back",
            servicebus_pair_conn_id=servicebus_pair_conn_id,
            entities="{{ params.entities | join(',') }}",
            reason="{{ params.reason }}",
        )
        # [END fail_back]

        action() >> [fail_over, fail_back]
    return dag
