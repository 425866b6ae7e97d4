"""Keys, tokens and rights with the unmodified SDK (EMULATOR.md, sections 1 and 2)."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
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
from servicebus_emulator.engine.namespace.shared_access_policies import PolicyKey
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


@pytest.mark.parametrize(
    ("name", "key"),
    [(ROOT_POLICY, "canary"), ("unknown", DEFAULT_KEY)],
    ids=["a wrong key", "a wrong rule name"],
)
async def test_a_token_of_no_rule_is_refused(
    contoso: HostedNamespace, name: str, key: str, caplog: pytest.LogCaptureFixture
):
    async with client_of(contoso, AzureNamedKeyCredential(name, key)) as client:
        with pytest.raises(ServiceBusAuthenticationError):
            await send(client)
    assert "InvalidSignature" in caplog.text
    assert "canary" not in caplog.text


async def test_a_regenerated_key_replaces_the_old_one(contoso: HostedNamespace):
    contoso.namespace.access_policies.regenerate(ROOT_POLICY, key=PolicyKey.PRIMARY)
    secondary = contoso.namespace.access_policies.regenerate(ROOT_POLICY, key=PolicyKey.SECONDARY).secondary_key
    async with client_of(contoso, AzureNamedKeyCredential(ROOT_POLICY, DEFAULT_KEY)) as client:
        with pytest.raises(ServiceBusAuthenticationError):
            await send(client)
    async with client_of(contoso, AzureNamedKeyCredential(ROOT_POLICY.upper(), secondary)) as client:
        await send(client)
        assert await receive(client) == ["x"]


async def test_the_listen_right_does_not_permit_sending(contoso: HostedNamespace):
    rule = rule_of(contoso, AccessRight.LISTEN)
    async with client_of(contoso, AzureNamedKeyCredential(rule.name, rule.primary_key)) as client:
        with pytest.raises(ServiceBusAuthorizationError) as refused:
            await send(client)
        assert await peek(client) == []
    text = str(refused.value)
    assert "Unauthorized access. 'Send' claim(s) are required to perform this operation." in text
    assert "Resource: 'sb://contoso/flights'. The token of rule 'app' of the namespace has Listen." in text


async def test_the_send_right_permits_scheduling_but_not_receiving_or_peeking(contoso: HostedNamespace):
    rule = rule_of(contoso, AccessRight.SEND, path="flights")
    async with client_of(contoso, AzureNamedKeyCredential(rule.name, rule.primary_key)) as client:
        await send(client)
        with pytest.raises(ServiceBusAuthorizationError, match="'Listen' claim"):
            await receive(client)
        async with client.get_queue_sender("flights") as sender:
            later = datetime.now(UTC) + timedelta(minutes=10)
            [number] = await sender.schedule_messages(ServiceBusMessage("y"), later)
            await sender.cancel_scheduled_messages(number)


async def test_a_topics_rule_covers_its_subscriptions_and_their_rules(contoso: HostedNamespace):
    rule = rule_of(contoso, AccessRight.SEND, AccessRight.LISTEN, path="delays")
    async with client_of(contoso, AzureNamedKeyCredential(rule.name, rule.primary_key)) as client:
        async with client.get_topic_sender("delays") as sender:
            await sender.send_messages(ServiceBusMessage("late"))
        async with client.get_subscription_receiver("delays", "all", max_wait_time=2) as receiver:
            [message] = await receiver.receive_messages()
            await receiver.complete_message(message)


async def test_a_link_stays_attached_while_its_token_is_renewed(
    contoso: HostedNamespace, caplog: pytest.LogCaptureFixture
):
    caplog.set_level("INFO", "servicebus_emulator")

    class Renewed(AzureSasCredential):
        """Has a token of twelve seconds whenever the client asks, as it does before the last one ends."""

        asked = 0

        @property
        def signature(self) -> str:
            self.asked += 1
            return token(contoso, "flights", lifetime=12)

    credential = Renewed("any")
    async with (
        client_of(contoso, credential) as client,
        client.get_queue_receiver("flights", max_wait_time=14) as receiver,
    ):
        assert await receiver.receive_messages() == []
        await send(client)
        assert bodies(await receiver.receive_messages()) == ["x"]
    assert credential.asked > 2
    assert "detached" not in caplog.text


async def test_an_open_namespace_ignores_tokens():
    async with Emulator(["contoso"], open=True) as emulator:
        hosted = emulator["contoso"]
        hosted.namespace.create_queue(QueueDescription("flights"))
        async with client_of(hosted, AzureNamedKeyCredential("anybody", "anything")) as client:
            await send(client)
