"""Issue 3: the operators and triggers of the official Azure provider, unmodified, against the embedded Service Bus.

They take a connection of the type ``azure_service_bus`` whose field ``schema`` is a connection string: that of the
namespace, as it is. Messages go in clear to its port, because of ``UseDevelopmentEmulator=true``; administration goes
to the same port by https, which the SDK's administration client always speaks, so its certificate has to be trusted:
``REQUESTS_CA_BUNDLE`` names the namespace's ``ca_file``.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from servicebus_emulator import EmulatorProcess
from tests.airflow.conftest import RunDag, run_task, states
from tests.airflow.queues import contents, queue_names

CONNECTION = {"azure_service_bus_conn_id": "asb_contoso"}

seen: list[str] = []


@pytest.fixture
def contoso(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmulatorProcess]:
    """A namespace, and the environment variables of a connection to it."""
    seen.clear()
    with EmulatorProcess(["contoso"]) as process:
        served = process["contoso"]
        connection = {"conn_type": "azure_service_bus", "schema": served.connection_string}
        monkeypatch.setenv("AIRFLOW_CONN_ASB_CONTOSO", json.dumps(connection))
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(served.ca_file))
        yield process


def note(message: Any, context: Any) -> None:
    seen.append(f"{message} in {context['ti'].task_id}")


def refuse(message: Any, context: Any) -> None:  # noqa: ARG001  the provider's signature
    raise ValueError("not today")


def test_queues_are_created_filled_emptied_and_deleted(contoso: EmulatorProcess, run_dag: RunDag):
    from airflow.providers.microsoft.azure.operators import asb

    run_task(
        run_dag,
        lambda: asb.AzureServiceBusCreateQueueOperator(
            task_id="create", queue_name="flights", max_delivery_count=3, **CONNECTION
        ),
        lambda: asb.AzureServiceBusSendMessageOperator(
            task_id="one",
            queue_name="flights",
            message="a",
            message_id="m1",
            reply_to="answers",
            message_headers={"carrier": "UA"},
            **CONNECTION,
        ),
        lambda: asb.AzureServiceBusSendMessageOperator(
            task_id="several", queue_name="flights", message=["b", "c"], **CONNECTION
        ),
        lambda: asb.AzureServiceBusSendMessageOperator(
            task_id="batch", queue_name="flights", message=["d", "e"], batch=True, **CONNECTION
        ),
    )
    sent = contents(contoso["contoso"], "flights")
    assert [message.body for message in sent] == ["a", "b", "c", "d", "e"]
    assert (sent[0].message_id, sent[0].properties) == ("m1", {"carrier": "UA"})

    run_task(
        run_dag,
        lambda: asb.AzureServiceBusReceiveMessageOperator(
            task_id="logged", queue_name="flights", max_message_count=1, **CONNECTION
        ),
        lambda: asb.AzureServiceBusReceiveMessageOperator(
            task_id="noted", queue_name="flights", max_message_count=4, message_callback=note, **CONNECTION
        ),
    )
    assert seen == [f"{body} in noted" for body in "bcde"]
    assert contents(contoso["contoso"], "flights") == []

    run_task(
        run_dag,
        lambda: asb.AzureServiceBusDeleteQueueOperator(task_id="delete", queue_name="flights", **CONNECTION),
    )
    assert queue_names(contoso["contoso"]) == []


def test_a_message_whose_callback_fails_stays_in_the_queue(contoso: EmulatorProcess, run_dag: RunDag):
    from airflow.providers.microsoft.azure.operators import asb
    from airflow.sdk import DAG

    run_task(
        run_dag,
        lambda: asb.AzureServiceBusCreateQueueOperator(task_id="create", queue_name="flights", **CONNECTION),
        lambda: asb.AzureServiceBusSendMessageOperator(task_id="send", queue_name="flights", message="a", **CONNECTION),
    )
    with DAG("failing", schedule=None) as dag:
        asb.AzureServiceBusReceiveMessageOperator(
            task_id="receive", queue_name="flights", message_callback=refuse, **CONNECTION
        )
    assert states(run_dag(dag)) == {"receive": "failed"}
    assert [message.body for message in contents(contoso["contoso"], "flights")] == ["a"]


def test_topics_and_subscriptions_are_created_updated_received_from_and_deleted(
    contoso: EmulatorProcess, run_dag: RunDag
):
    from airflow.providers.microsoft.azure.hooks.asb import AdminClientHook
    from airflow.providers.microsoft.azure.operators import asb
    from azure.core.exceptions import ResourceNotFoundError
    from azure.servicebus import ServiceBusClient, ServiceBusMessage
    from azure.servicebus.management import SqlRuleFilter

    of_late = {"topic_name": "delays", "subscription_name": "late"}
    run_task(
        run_dag,
        lambda: asb.AzureServiceBusTopicCreateOperator(
            task_id="topic",
            topic_name="delays",
            default_message_time_to_live="PT1H",
            do_xcom_push=False,
            **CONNECTION,
        ),
        lambda: asb.AzureServiceBusSubscriptionCreateOperator(
            task_id="subscription",
            lock_duration="PT30S",
            filter_rule=SqlRuleFilter("minutes > 30"),
            filter_rule_name="late",
            **of_late,
            **CONNECTION,
        ),
        lambda: asb.AzureServiceBusUpdateSubscriptionOperator(
            task_id="update", max_delivery_count=7, enable_batched_operations=False, **of_late, **CONNECTION
        ),
    )
    hook = AdminClientHook(**CONNECTION)
    with hook.get_conn() as client:
        assert client.get_topic("delays").default_message_time_to_live == timedelta(hours=1)
        subscription = client.get_subscription("delays", "late")
        rules = [rule.name for rule in client.list_rules("delays", "late")]
    assert (subscription.max_delivery_count, subscription.enable_batched_operations) == (7, False)
    assert rules == ["late"]

    with (
        ServiceBusClient.from_connection_string(contoso["contoso"].connection_string) as messages,
        messages.get_topic_sender("delays") as sender,
    ):
        for minutes in (10, 40):
            sender.send_messages(ServiceBusMessage(f"{minutes} late", application_properties={"minutes": minutes}))
    run_task(
        run_dag,
        lambda: asb.ASBReceiveSubscriptionMessageOperator(
            task_id="receive", max_message_count=2, message_callback=note, **of_late, **CONNECTION
        ),
        lambda: asb.AzureServiceBusSubscriptionDeleteOperator(task_id="no_subscription", **of_late, **CONNECTION),
        lambda: asb.AzureServiceBusTopicDeleteOperator(task_id="no_topic", topic_name="delays", **CONNECTION),
    )
    assert seen == ["40 late in receive"]
    with hook.get_conn() as client, pytest.raises(ResourceNotFoundError):
        client.get_topic("delays")


async def test_triggers_tell_of_messages_in_queues_and_subscriptions(contoso: EmulatorProcess):
    from airflow.providers.microsoft.azure.hooks.asb import AdminClientHook
    from airflow.providers.microsoft.azure.triggers import message_bus
    from azure.servicebus import ServiceBusMessage
    from azure.servicebus.aio import ServiceBusClient

    def create() -> None:
        with AdminClientHook(**CONNECTION).get_conn() as client:
            for queue in ("empty", "flights"):
                client.create_queue(queue)
            client.create_topic("delays")
            client.create_subscription("delays", "all")

    await asyncio.to_thread(create)
    async with (
        ServiceBusClient.from_connection_string(contoso["contoso"].connection_string) as client,
        client.get_queue_sender("flights") as queue,
        client.get_topic_sender("delays") as topic,
    ):
        await queue.send_messages(ServiceBusMessage("a"))
        await topic.send_messages(ServiceBusMessage("b"))
    options = {"poll_interval": 0.1, "max_wait_time": 1, **CONNECTION}
    of_queues = message_bus.AzureServiceBusQueueTrigger(queues=["empty", "flights"], **options)
    of_topics = message_bus.AzureServiceBusSubscriptionTrigger(topics=["delays"], subscription_name="all", **options)

    assert (await anext(aiter(of_queues.run()))).payload == {"message": "a", "queue": "flights"}
    told = (await anext(aiter(of_topics.run()))).payload
    assert told == {"message": "b", "topic": "delays", "subscription": "all"}
    assert contents(contoso["contoso"], "flights") == []
