"""Minimal example: create the backlog queues, send messages, and drain the backlog after an outage."""

from __future__ import annotations

# [START first_send]
from airflow.sdk import DAG

from servicebus_pair.operators.send import ServiceBusPairSendOperator

with DAG("first_send", schedule=None, tags=["servicebus_pair"]):
    ServiceBusPairSendOperator(
        task_id="send",
        servicebus_pair_conn_id="contoso_pair",
        entity="briefings",
        messages=["Runway 22L is closed.", {"body": "Runway 22L is open.", "session_id": "22L"}],
        retries=2,
    )
# [END first_send]

# [START first_care]
from servicebus_pair.operators.provision import ServiceBusPairProvisionOperator
from servicebus_pair.operators.syphon import ServiceBusPairSyphonOperator

with DAG("first_provision", schedule=None, tags=["servicebus_pair"]):
    ServiceBusPairProvisionOperator(task_id="provision", servicebus_pair_conn_id="contoso_pair")

with DAG("first_recovery", schedule=None, tags=["servicebus_pair"]):
    ServiceBusPairSyphonOperator(task_id="drain", servicebus_pair_conn_id="contoso_pair", deferrable=True, retries=2)
# [END first_care]
