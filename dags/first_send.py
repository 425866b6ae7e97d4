"""The shortest way in: one task that sends, and survives the outage of a namespace."""

from __future__ import annotations

# [START first_send]
from airflow.sdk import DAG

from servicebus_pair.operators.send import ServiceBusPairSendOperator

with DAG("first_send", schedule=None, tags=["servicebus_pair"]):
    ServiceBusPairSendOperator(
        task_id="send",
        conn_id="contoso_pair",
        entity="briefings",
        messages=["Runway 22L is closed.", {"body": "Runway 22L is open.", "session_id": "22L"}],
        retries=2,
    )
# [END first_send]
