"""``cost_dag``: reports the planned and the measured cost of a pair."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from airflow.sdk import DAG, Param

from servicebus_pair.airflow_runtime.task_ledger import StoragePath
from servicebus_pair.dags.pair_dag import check_arguments, pair_dag
from servicebus_pair.hooks.servicebus_pair import DEFAULT_CONN_ID
from servicebus_pair.operators.cost import ServiceBusPairCostOperator

__all__ = ["cost_dag"]

DOCS = """
### Cost of a pair of namespaces

Operations first, money second. *Planned* is what the backlog uses in the period: the polls of a continuous syphon,
pings during an outage, and messages that go through the backlog. *Measured* is counted from the ledger. It is a lower
bound, because the ledger records no pings, no empty receives and no failed attempts. The report is in the log and in
the result of `cost`. The DAG connects to no namespace and changes nothing.
"""

FORM = {
    "days": Param(30, type="integer", minimum=1, maximum=366, title="Period, days"),
    "messages": Param(
        0, type="integer", minimum=0, title="Messages through the backlog", description="Expected in the period."
    ),
    "size_bytes": Param(1024, type="integer", minimum=1, maximum=104_857_600, title="Message size, bytes"),
    "outage_minutes": Param(
        0,
        type="integer",
        minimum=0,
        title="Outage, minutes",
        description="Expected time that one entity is failed over, during which it is pinged.",
    ),
    "before": Param(
        0,
        type="integer",
        minimum=0,
        title="Other operations in the month",
        description="By other applications; they use up the operations that the base charge includes.",
    ),
}


def cost_dag(
    *,
    servicebus_pair_conn_id: str = DEFAULT_CONN_ID,
    dag_id: str | None = None,
    schedule: Any = "@monthly",
    ledger: StoragePath | None = None,
    prices: Mapping[str, Any] | str | None = None,
    **dag_options: Any,
) -> DAG:
    """Return a DAG that reports the cost of a pair on a schedule.

    :param servicebus_pair_conn_id: the connection of the pair.
    :param dag_id: by default the connection's id and ``_cost``.
    :param schedule: any schedule of Airflow; ``None`` to trigger it by hand only.
    :param ledger: folder of ledgers to measure; nothing is measured when not given.
    :param prices: as in ``ServiceBusPairCostOperator``, or a template; list prices when not given.
    :param dag_options: any argument of ``DAG``.
    """
    check_arguments(locals())
    with pair_dag(
        "cost",
        servicebus_pair_conn_id=servicebus_pair_conn_id,
        dag_id=dag_id,
        options=dag_options,
        schedule=schedule,
        start_date=datetime(2026, 1, 1),  # noqa: DTZ001  in the time zone of the deployment
        catchup=False,
        params=FORM,
        doc_md=DOCS,
    ) as dag:
        # [START cost]
        ServiceBusPairCostOperator(
            task_id="cost",
            servicebus_pair_conn_id=servicebus_pair_conn_id,
            period="P{{ params.days }}D",
            messages="{{ params.messages }}",
            size_bytes="{{ params.size_bytes }}",
            outage="PT{{ params.outage_minutes }}M",
            before="{{ params.before }}",
            ledger=ledger,
            prices=prices,
        )
        # [END cost]
    return dag
