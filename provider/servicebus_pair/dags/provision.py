"""``provision_dag``: creates the backlog queues of a pair, or lists what it would create."""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG, Param

from servicebus_pair.dags.pair_dag import check_arguments, pair_dag
from servicebus_pair.hooks.servicebus_pair import DEFAULT_CONN_ID
from servicebus_pair.operators.provision import ServiceBusPairProvisionOperator

__all__ = ["provision_dag"]

DOCS = """
### Provisioning of a pair of namespaces

Creates the missing backlog queues on the secondary and changes nothing else. Run it once for a new pair, and after
the number of backlog queues was raised in the connection or `ordering` was set to `session`, which adds queues that
require sessions. It is safe to run again, and concurrently.

With *Plan only* it creates nothing: the log of `provision` lists missing and extra queues, and the fields in which
existing queues differ from the description.
"""


def provision_dag(
    *, servicebus_pair_conn_id: str = DEFAULT_CONN_ID, dag_id: str | None = None, **dag_options: Any
) -> DAG:
    """Return a DAG that is triggered by hand and creates the missing backlog queues.

    :param servicebus_pair_conn_id: the connection of the pair.
    :param dag_id: by default the connection's id and ``_provision``.
    :param dag_options: any argument of ``DAG``.
    """
    check_arguments(locals())
    with pair_dag(
        "provision",
        servicebus_pair_conn_id=servicebus_pair_conn_id,
        dag_id=dag_id,
        options=dag_options,
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
    ) as dag:
        # [START provision]
        ServiceBusPairProvisionOperator(
            task_id="provision",
            servicebus_pair_conn_id=servicebus_pair_conn_id,
            plan_only="{{ params.plan_only }}",
            on_drift="{{ params.on_drift }}",
        )
        # [END provision]
    return dag
