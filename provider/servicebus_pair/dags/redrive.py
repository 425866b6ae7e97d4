"""``redrive_dag``: moves dead letters of the backlog queues to their entities, after their cause was fixed."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, Param

from servicebus_pair.airflow_runtime.task_ledger import StoragePath
from servicebus_pair.dags.pair_dag import check_arguments, pair_dag
from servicebus_pair.hooks.servicebus_pair import DEFAULT_CONN_ID
from servicebus_pair.operators.syphon import ServiceBusPairSyphonOperator

__all__ = ["redrive_dag"]

DOCS = """
### Re-drive of dead letters

Messages that the syphon could not deliver, for example because their entity was deleted, are in the dead-letter queues
of the backlog queues. Fix the cause, for example by creating the entity again, then trigger this DAG: it moves them to
their entities. Messages that still cannot be delivered stay dead letters. It is safe to run again.
"""


def redrive_dag(
    *,
    servicebus_pair_conn_id: str = DEFAULT_CONN_ID,
    dag_id: str | None = None,
    rate: float | None = None,
    ledger: StoragePath | None = None,
    **dag_options: Any,
) -> DAG:
    """Return a DAG that is triggered by hand and moves the dead letters of the backlog queues.

    :param servicebus_pair_conn_id: the connection of the pair.
    :param dag_id: by default the connection's id and ``_redrive``.
    :param rate: what the form suggests as limit, in messages per second; no limit when not given.
    :param ledger: folder for a record of each moved message; no ledger when not given.
    :param dag_options: any argument of ``DAG``.
    """
    check_arguments(locals())
    with pair_dag(
        "redrive",
        servicebus_pair_conn_id=servicebus_pair_conn_id,
        dag_id=dag_id,
        options=dag_options,
        params={
            "rate": Param(
                rate,
                type=["null", "number"],
                exclusiveMinimum=0,
                title="Messages per second",
                description="The limit; empty for no limit.",
            ),
        },
        doc_md=DOCS,
    ) as dag:
        # [START redrive]
        ServiceBusPairSyphonOperator(
            task_id="redrive",
            servicebus_pair_conn_id=servicebus_pair_conn_id,
            redrive=True,
            rate="{{ params.rate }}",
            ledger=ledger,
            deferrable=True,
            execution_timeout=timedelta(hours=6),
        )
        # [END redrive]
    return dag
