"""The operators of the official Azure provider, as installed with the project."""

from __future__ import annotations

import json
import os
from unittest.mock import MagicMock

from tests.conformance.clients.steps import CONNECTION, redirect, step

redirect()
os.environ["AIRFLOW_CONN_MATRIX"] = json.dumps({"conn_type": "azure_service_bus", "schema": CONNECTION})

from airflow.providers.microsoft.azure.operators import asb  # noqa: E402

seen: list[str] = []
CONTEXT = MagicMock()


def note(message: object, context: object = None) -> None:  # noqa: ARG001 - the operator's signature
    seen.append(str(message))


COMMON = {"azure_service_bus_conn_id": "matrix"}


def execute(operator: type, **settings: object) -> None:
    operator(task_id=f"t{operator.__name__}", **COMMON, **settings).execute(CONTEXT)


with step("create a queue"):
    execute(asb.AzureServiceBusCreateQueueOperator, queue_name="airflow")
with step("send a message"):
    execute(asb.AzureServiceBusSendMessageOperator, queue_name="airflow", message="one")
with step("send a list"):
    execute(asb.AzureServiceBusSendMessageOperator, queue_name="airflow", message=["two", "three"])
with step("send a batch"):
    execute(asb.AzureServiceBusSendMessageOperator, queue_name="airflow", message=["four", "five"], batch=True)
with step("receive"):
    execute(
        asb.AzureServiceBusReceiveMessageOperator,
        queue_name="airflow",
        max_message_count=10,
        max_wait_time=5,
        message_callback=note,
    )
    assert seen == ["one", "two", "three", "four", "five"], seen
with step("create a topic"):
    execute(asb.AzureServiceBusTopicCreateOperator, topic_name="airtopic")
with step("create a subscription"):
    execute(
        asb.AzureServiceBusSubscriptionCreateOperator,
        topic_name="airtopic",
        subscription_name="sub",
        max_delivery_count=7,
    )
with step("update a subscription"):
    execute(
        asb.AzureServiceBusUpdateSubscriptionOperator,
        topic_name="airtopic",
        subscription_name="sub",
        max_delivery_count=9,
    )
with step("receive from a subscription"):
    execute(
        asb.ASBReceiveSubscriptionMessageOperator,
        topic_name="airtopic",
        subscription_name="sub",
        max_message_count=1,
        max_wait_time=1,
    )
with step("delete the subscription"):
    execute(asb.AzureServiceBusSubscriptionDeleteOperator, topic_name="airtopic", subscription_name="sub")
with step("delete the topic"):
    execute(asb.AzureServiceBusTopicDeleteOperator, topic_name="airtopic")
with step("delete the queue"):
    execute(asb.AzureServiceBusDeleteQueueOperator, queue_name="airflow")
