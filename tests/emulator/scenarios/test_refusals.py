"""Refusals of the broker raise the SDK's own exceptions at once."""

from __future__ import annotations

import asyncio
import re

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import (
    MessagingEntityNotFoundError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
)

from servicebus_emulator import HostedNamespace
from servicebus_emulator.engine.model.descriptions import QueueDescription, TopicDescription
from tests.emulator.support.sdk_client import SdkClient, open_link

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_links_to_an_unknown_entity_and_receivers_of_a_topic_are_refused(
    contoso: HostedNamespace, sdk: SdkClient
):
    contoso.namespace.create_topic(TopicDescription("no-queue"))
    unknown = [sdk.client.get_queue_sender("nowhere"), sdk.client.get_queue_receiver("nowhere")]
    topic = sdk.client.get_queue_receiver("no-queue")
    refusals = await asyncio.gather(*map(open_link, [*unknown, topic]), return_exceptions=True)
    assert [type(refusal) for refusal in refusals] == [MessagingEntityNotFoundError] * 2 + [ServiceBusError]
    # The JavaScript client recognizes a missing entity by this phrase.
    assert re.search("The messaging entity 'nowhere' could not be found", str(refusals[0]), re.IGNORECASE)
    assert "receive from one of its subscriptions" in str(refusals[2])


async def test_an_entity_is_usable_from_creation_until_deletion(contoso: HostedNamespace, sdk: SdkClient):
    contoso.namespace.create_queue(QueueDescription("deleted"))
    async with sdk.queue("deleted") as (sender, receiver):
        await sender.send_messages(ServiceBusMessage("x"))
        contoso.namespace.delete_queue("deleted")
        with pytest.raises(ServiceBusError):
            await sender.send_messages(ServiceBusMessage("y"))
        with pytest.raises(MessagingEntityNotFoundError):
            await receiver.receive_messages(1, max_wait_time=1)


async def test_a_full_entity_refuses_messages_until_space_is_free(contoso: HostedNamespace, sdk: SdkClient):
    contoso.namespace.create_queue(QueueDescription("small", max_size_in_megabytes=1))
    async with sdk.queue("small") as (sender, receiver):
        for _ in range(4):
            await sender.send_messages(ServiceBusMessage(b"x" * 250_000))
        with pytest.raises(ServiceBusQuotaExceededError, match="allowed: 1048576"):
            await sender.send_messages(ServiceBusMessage(b"x" * 250_000))
        assert contoso.namespace.counts("small").active == 4
        (received,) = await receiver.receive_messages(1, max_wait_time=2)
        await receiver.complete_message(received)
        await sender.send_messages(ServiceBusMessage(b"x" * 250_000))
    assert contoso.namespace.counts("small").active == 4
