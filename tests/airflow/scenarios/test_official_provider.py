"""The operators and triggers of the official Azure provider, unmodified, against the embedded Service Bus.

Their connection has the type ``azure_service_bus`` and the namespace's connection string in the field ``schema``.
Messages go unencrypted to its port, because of ``UseDevelopmentEmulator=true``. The SDK's administration client always
speaks https, so ``REQUESTS_CA_BUNDLE`` names the namespace's ``ca_file``.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from servicebus_emulator import EmulatorProcess
from tests.airflow.conftest import RunDag, run_task
from tests.airflow.support.queues import contents, queue_names

CONNECTION = {"azure_service_bus_conn_id": "asb_contoso"}
QUEUE = {"queue_name": "flights"}
SUBSCRIPTION = {"topic_name": "delays", "subscription_name": "late"}

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


def operator(name: str, task_id: str, **parameters: Any) -> Callable[[], Any]:
    from airflow.providers.microsoft.azure.operators import asb

    return lambda: getattr(asb, f"{name}Operator")(task_id=task_id, **parameters, **CONNECTION)


def create_queue(**parameters: Any) -> Callable[[], Any]:
    return operator("AzureServiceBusCreateQueue", "create", **QUEUE, **parameters)


def send(task_id: str, **parameters: Any) -> Callable[[], Any]:
    return operator("AzureServiceBusSendMessage", task_id, **QUEUE, **parameters)


def receive(task_id: str, **parameters: Any) -> Callable[[], Any]:
    return operator("AzureServiceBusReceiveMessage", task_id, **QUEUE, **parameters)


def record_body(message: Any, context: Any) -> None:
    seen.append(f"{message} in {context['ti'].task_id}")


def test_queue_operators(contoso: EmulatorProcess, run_dag: RunDag):
    run_task(
        run_dag,
        create_queue(max_delivery_count=3),
        send("one", message="a", message_id="m1", reply_to="answers", message_headers={"carrier": "UA"}),
        send("several", message=["b", "c"]),
        send("batch", message=["d", "e"], batch=True),
    )
    sent = contents(contoso["contoso"], "flights")
    assert [message.body for message in sent] == ["a", "b", "c", "d", "e"]
    assert (sent[0].message_id, sent[0].properties) == ("m1", {"carrier": "UA"})

    run_task(
        run_dag,
        receive("logged", max_message_count=1),
        receive("noted", max_message_count=4, message_callback=record_body),
    )
    assert seen == [f"{body} in noted" for body in "bcde"]
    assert contents(contoso["contoso"], "flights") == []

    run_task(run_dag, operator("AzureServiceBusDeleteQueue", "delete", **QUEUE))
    assert queue_names(contoso["contoso"]) == []


def test_topic_and_subscription_operators(contoso: EmulatorProcess, run_dag: RunDag):
    from airflow.providers.microsoft.azure.hooks.asb import AdminClientHook
    from azure.core.exceptions import ResourceNotFoundError
    from azure.servicebus import ServiceBusClient, ServiceBusMessage
    from azure.servicebus.management import SqlRuleFilter

    subscription_options = {"filter_rule": SqlRuleFilter("minutes > 30"), "filter_rule_name": "late"}
    updates = {"max_delivery_count": 7, "enable_batched_operations": False}
    life = {"default_message_time_to_live": "PT1H", "do_xcom_push": False}
    run_task(
        run_dag,
        operator("AzureServiceBusTopicCreate", "topic", topic_name="delays", **life),
        operator(
            "AzureServiceBusSubscriptionCreate",
            "subscription",
            lock_duration="PT30S",
            **subscription_options,
            **SUBSCRIPTION,
        ),
        operator("AzureServiceBusUpdateSubscription", "update", **updates, **SUBSCRIPTION),
    )
    hook = AdminClientHook(**CONNECTION)
    with hook.get_conn() as client:
        assert client.get_topic("delays").default_message_time_to_live == timedelta(hours=1)
        subscription = client.get_subscription("delays", "late")
        assert [rule.name for rule in client.list_rules("delays", "late")] == ["late"]
    assert (subscription.max_delivery_count, subscription.enable_batched_operations) == (7, False)

    with (
        ServiceBusClient.from_connection_string(contoso["contoso"].connection_string) as messages,
        messages.get_topic_sender("delays") as sender,
    ):
        for minutes in (10, 40):
            sender.send_messages(ServiceBusMessage(f"{minutes} late", application_properties={"minutes": minutes}))
    callback = {"max_message_count": 2, "message_callback": record_body}
    run_task(
        run_dag,
        operator("ASBReceiveSubscriptionMessage", "receive", **callback, **SUBSCRIPTION),
        operator("AzureServiceBusSubscriptionDelete", "no_subscription", **SUBSCRIPTION),
        operator("AzureServiceBusTopicDelete", "no_topic", topic_name="delays"),
    )
    assert seen == ["40 late in receive"]
    with hook.get_conn() as client, pytest.raises(ResourceNotFoundError):
        client.get_topic("delays")


async def test_triggers_fire_for_messages_in_queues_and_subscriptions(contoso: EmulatorProcess):
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
    options: dict[str, Any] = {"poll_interval": 0.1, "max_wait_time": 1, **CONNECTION}
    of_queues = message_bus.AzureServiceBusQueueTrigger(queues=["empty", "flights"], **options)
    of_topics = message_bus.AzureServiceBusSubscriptionTrigger(topics=["delays"], subscription_name="all", **options)

    assert (await anext(aiter(of_queues.run()))).payload == {"message": "a", "queue": "flights"}
    reported = (await anext(aiter(of_topics.run()))).payload
    assert reported == {"message": "b", "topic": "delays", "subscription": "all"}
    assert contents(contoso["contoso"], "flights") == []
