"""Refusals of the broker raise the SDK's own exceptions at once."""

from __future__ import annotations

import asyncio
import re

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import (
    MessageNotFoundError,
    MessagingEntityNotFoundError,
    ServiceBusAuthenticationError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
)

from servicebus_emulator import Emulator, HostedNamespace
from servicebus_emulator.engine.model.descriptions import QueueDescription, TopicDescription
from tests.emulator.support.sdk_client import SdkClient, connect_sdk, open_link
from tests.emulator.support.tracking import tracked_pattern

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.parametrize("any_audience", [False, True])
async def test_an_unknown_entity_is_refused_with_its_token_or_else_with_its_link(
    any_audience: bool, caplog: pytest.LogCaptureFixture
):
    caplog.set_level("INFO")
    async with Emulator(["contoso"], any_audience=any_audience) as emulator, connect_sdk(emulator["contoso"]) as sdk:
        unknown = [sdk.client.get_queue_sender("nowhere"), sdk.client.get_queue_receiver("nowhere")]
        refusals = await asyncio.gather(*map(open_link, unknown), return_exceptions=True)
    expected = MessagingEntityNotFoundError if any_audience else ServiceBusAuthenticationError
    assert [type(refusal) for refusal in refusals] == [expected] * 2
    # The JavaScript client recognizes a missing entity by this phrase.
    shown = str(refusals[0]) if any_audience else caplog.text
    assert re.search("The messaging entity 'nowhere' could not be found", shown, re.IGNORECASE)


async def test_receivers_of_a_topic_are_refused(contoso: HostedNamespace, sdk: SdkClient):
    contoso.namespace.create_topic(TopicDescription("no-queue"))
    text = f"receive from one of its subscriptions {tracked_pattern('contoso:no-queue')}"
    with pytest.raises(ServiceBusError, match=text):
        await open_link(sdk.client.get_queue_receiver("no-queue"))


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
        with pytest.raises(ServiceBusQuotaExceededError, match=f"allowed: 1048576 {tracked_pattern('contoso:small')}"):
            await sender.send_messages(ServiceBusMessage(b"x" * 250_000))
        assert contoso.namespace.counts("small").active == 4
        with pytest.raises(MessageNotFoundError, match=f"to be received {tracked_pattern('contoso:small')}"):
            await receiver.receive_deferred_messages(99)
        (received,) = await receiver.receive_messages(1, max_wait_time=2)
        await receiver.complete_message(received)
        await sender.send_messages(ServiceBusMessage(b"x" * 250_000))
    assert contoso.namespace.counts("small").active == 4
