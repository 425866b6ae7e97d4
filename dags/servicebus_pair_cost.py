"""Reports the planned and the measured cost of a pair of namespaces."""

from __future__ import annotations

import os
from datetime import datetime, timedelta
from pathlib import Path

from airflow.sdk import DAG, Param

from servicebus_pair.operators.cost import ServiceBusPairCostOperator

CONN_ID = os.environ.get("SERVICEBUS_PAIR_CONN_ID", "contoso_pair")
HOME = os.environ.get("SERVICEBUS_PAIR_HOME")
LEDGER = f"{HOME}/ledger" if HOME and Path(HOME, "ledger").is_dir() else None

DOCS = """
### Cost of a pair of namespaces

Operations first, money second. *Planned* is what the backlog uses in the period: the polls of a continuous syphon,
pings during an outage, and messages that go through the backlog. *Measured* is counted from the ledger. It is a lower
bound, because the ledger records no pings, no empty receives and no failed attempts. The report is in the log and in
the result of `cost`. The DAG connects to no namespace and changes nothing.

| setting | where | |
|---|---|---|
| `SERVICEBUS_PAIR_CONN_ID` | environment | id of the connection; default `contoso_pair` |
| `SERVICEBUS_PAIR_HOME` | environment | parent of the folder `ledger`; without a ledger nothing is measured |
| `servicebus_pair_prices` | Airflow variable, JSON | prices and their date, see below |
| trigger form | | the period, and the expected messages and outages |

```json
{"as_of": "2026-11-20", "currency": "USD", "tiers": [{"beyond": 13000000, "per_million": "0.80"}]}
```
"""

with DAG(
    "servicebus_pair_cost",
    schedule="@monthly",
    start_date=datetime(2026, 1, 1),  # noqa: DTZ001  in the time zone of the deployment
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=30)},
    params={
        "days": Param(30, type="integer", minimum=1, maximum=366, title="Period, days"),
        "messages": Param(
            0,
            type="integer",
            minimum=0,
            title="Messages through the backlog",
            description="Expected in the period.",
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
    },
    doc_md=DOCS,
    tags=["servicebus_pair", "example"],
):
    # [START cost]
    ServiceBusPairCostOperator(
        task_id="cost",
        servicebus_pair_conn_id=CONN_ID,
        period="{{ params.days * 86400 }}",
        messages="{{ params.messages }}",
        size_bytes="{{ params.size_bytes }}",
        outage="{{ params.outage_minutes * 60 }}",
        before="{{ params.before }}",
        ledger=LEDGER,
        prices="{{ var.value.get('servicebus_pair_prices', '') }}",
    )
    # [END cost]
