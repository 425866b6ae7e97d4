"""Keys, tokens and rights with the unmodified SDK (EMULATOR.md, sections 1 and 2)."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import (
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
)

from servicebus_emulator import Emulator, HostedNamespace
from servicebus_emulator.engine.model.access_policy import DEFAULT_KEY, ROOT_POLICY, SharedAccessPolicy
from servicebus_emulator.engine.model.descriptions import (
    AccessRight,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from servicebus_emulator.security.sas import sign
from tests.emulator.support.sdk_client import bodies

REFUSED = (ServiceBusAuthenticationError, ServiceBusAuthorizationError)


@pytest.fixture
async def contoso() -> AsyncIterator[HostedNamespace]:
    async with Emulator(["contoso"]) as emulator:
        namespace = emulator["contoso"].namespace
        namespace.create_queue(QueueDescription("flights"))
        namespace.create_queue(QueueDescription("flights/delayed"))
        namespace.create_topic(TopicDescription("delays"))
        namespace.create_subscription(SubscriptionDescription("delays", "all"))
        yield emulator["contoso"]


def rule_of(hosted: HostedNamespace, *rights: AccessRight, path: str | None = None) -> SharedAccessPolicy:
    return hosted.namespace.access_policies.put("app", rights=rights, path=path)


def client_of(hosted: HostedNamespace, credential: Any) -> ServiceBusClient:
    return ServiceBusClient(f"{hosted.host}:{hosted.amqp_port}", credential, retry_total=0, use_tls=False)


def token(hosted: HostedNamespace, path: str, *, lifetime: float, rule: SharedAccessPolicy | None = None) -> str:
    name, key = (ROOT_POLICY, DEFAULT_KEY) if rule is None else (rule.name, rule.primary_key)
    resource = f"sb://{hosted.host}:{hosted.amqp_port}/{path}"
    return sign(resource, rule=name, key=key, expires=int(time.time() + lifetime))


async def send(client: ServiceBusClient, path: str = "flights") -> None:
    async with client.get_queue_sender(path) as sender:
        await sender.send_messages(ServiceBusMessage("x"))


async def receive(client: ServiceBusClient, path: str = "flights") -> list[str]:
    async with client.get_queue_receiver(path, max_wait_time=2) as receiver:
        return bodies(await receiver.receive_messages())


async def peek(client: ServiceBusClient, path: str = "flights") -> list[str]:
    async with client.get_queue_receiver(path) as receiver:
        return bodies(await receiver.peek_messages())


async def test_the_listen_right_does_not_permit_sending(contoso: HostedNamespace):
    rule = rule_of(contoso, AccessRight.LISTEN)
    async with client_of(contoso, AzureNamedKeyCredential(rule.name, rule.primary_key)) as client:
        with pytest.raises(ServiceBusAuthorizationError) as refused:
            await send(client)
        assert await peek(client) == []
    text = str(refused.value)
    assert "Unauthorized access. 'Send' claim(s) are required to perform this operation." in text
    assert "Resource: 'sb://contoso/flights'. The token of rule 'app' of the namespace has Listen." in text


async def test_a_topics_rule_covers_its_subscriptions_and_their_rules(contoso: HostedNamespace):
    rule = rule_of(contoso, AccessRight.SEND, AccessRight.LISTEN, path="delays")
    async with client_of(contoso, AzureNamedKeyCredential(rule.name, rule.primary_key)) as client:
        async with client.get_topic_sender("delays") as sender:
            await sender.send_messages(ServiceBusMessage("late"))
        async with client.get_subscription_receiver("delays", "all", max_wait_time=2) as receiver:
            [message] = await receiver.receive_messages()
            await receiver.complete_message(message)


async def test_an_open_namespace_ignores_tokens():
    async with Emulator(["contoso"], open=True) as emulator:
        hosted = emulator["contoso"]
        hosted.namespace.create_queue(QueueDescription("flights"))
        async with client_of(hosted, AzureNamedKeyCredential("anybody", "anything")) as client:
            await send(client)
