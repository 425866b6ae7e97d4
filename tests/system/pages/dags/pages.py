"""A sender and a recovery without Spark for the browser test of the page."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, Param

from servicebus_pair.operators.send import ServiceBusPairSendOperator
from servicebus_pair.operators.syphon import ServiceBusPairSyphonOperator

CONN_ID = "contoso_pair"
RETRIES = {"retries": 3, "retry_delay": timedelta(seconds=2)}

with DAG("pages_sends", schedule=None, default_args=RETRIES, tags=["servicebus_pair"]):
    for entity, count in {"flights": 120, "briefings": 40}.items():
        ServiceBusPairSendOperator(
            task_id=entity,
            servicebus_pair_conn_id=CONN_ID,
            entity=entity,
            messages=[f"{entity} {number}" for number in range(count)],
        )

# Slow enough for the test to observe the progress.
with DAG(
    "pages_recovery",
    schedule=None,
    default_args=RETRIES,
    params={"rate": Param(10, type="number", exclusiveMinimum=0)},
    tags=["servicebus_pair"],
):
    ServiceBusPairSyphonOperator(
        task_id="drain", servicebus_pair_conn_id=CONN_ID, deferrable=True, poll_interval=1, rate="{{ params.rate }}"
    )
