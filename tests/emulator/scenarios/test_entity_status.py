"""The status of an entity, set by the administration SDK and enforced on the messaging SDK."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusMessage
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from azure.servicebus.exceptions import MessagingEntityDisabledError
from azure.servicebus.management import EntityStatus

from servicebus_emulator import HostedNamespace
from servicebus_emulator.engine.model.descriptions import QueueDescription
from tests.emulator.support.sdk_client import SdkClient, open_link

pytestmark = pytest.mark.asyncio(loop_scope="session")
LATER = datetime(2100, 1, 1, tzinfo=UTC)
FORBIDDEN = {
    EntityStatus.DISABLED: {"send", "schedule", "receive", "peek"},
    EntityStatus.SEND_DISABLED: {"send", "schedule"},
    EntityStatus.RECEIVE_DISABLED: {"receive", "peek"},
    EntityStatus.ACTIVE: set(),
}


async def set_status(admin: ServiceBusAdministrationClient, queue: str, status: EntityStatus) -> None:
    description = await admin.get_queue(queue)
    description.status = status
    await admin.update_queue(description)


@pytest.mark.parametrize("status", FORBIDDEN)
async def test_a_status_forbids_only_its_directions(
    admin: ServiceBusAdministrationClient, sdk: SdkClient, queue: str, status: EntityStatus
):
    sender = sdk.client.get_queue_sender(queue)
    peeking = sdk.client.get_queue_receiver(queue, max_wait_time=1)
    async with sdk.opened(sender, peeking):
        await sender.send_messages(ServiceBusMessage("before"))
        await set_status(admin, queue, status)
        assert (await admin.get_queue(queue)).status == status
        refused: dict[str, str] = {}
        for name, action in {
            "send": lambda: sender.send_messages(ServiceBusMessage("x")),
            "schedule": lambda: sender.schedule_messages(ServiceBusMessage("x"), LATER),
            "receive": lambda: open_link(sdk.client.get_queue_receiver(queue)),
            "peek": lambda: sdk.client.get_queue_receiver(queue).peek_messages(),
        }.items():
            try:
                await action()
            except MessagingEntityDisabledError as error:
                refused[name] = str(error)
        assert refused.keys() == FORBIDDEN[status]
        assert all(status.value in reason for reason in refused.values())


async def test_other_subscriptions_of_a_topic_stay_enabled(admin: ServiceBusAdministrationClient, sdk: SdkClient):
    await admin.create_topic("board")
    await admin.create_subscription("board", "on")
    await admin.create_subscription("board", "later", status=EntityStatus.RECEIVE_DISABLED)
    await admin.create_subscription("board", "off", status=EntityStatus.DISABLED)
    async with sdk.opened(sdk.client.get_topic_sender("board")) as (sender,):
        await sender.send_messages(ServiceBusMessage("a"))
        topic = await admin.get_topic("board")
        topic.status = EntityStatus.DISABLED
        await admin.update_topic(topic)
        with pytest.raises(MessagingEntityDisabledError):
            await sender.send_messages(ServiceBusMessage("b"))
    with pytest.raises(MessagingEntityDisabledError):
        await open_link(sdk.client.get_topic_sender("board"))
    for name in ("later", "off"):
        with pytest.raises(MessagingEntityDisabledError):
            await open_link(sdk.client.get_subscription_receiver("board", name))
    kept = [
        (await admin.get_subscription_runtime_properties("board", name)).active_message_count
        for name in ("on", "later", "off")
    ]
    assert kept == [1, 1, 0]


async def test_a_session_wait_ends_when_its_queue_is_disabled(
    admin: ServiceBusAdministrationClient, contoso: HostedNamespace, sdk: SdkClient
):
    contoso.namespace.create_queue(QueueDescription("waited-for", requires_session=True))
    receiver = sdk.client.get_queue_receiver("waited-for", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=30)
    waiting = asyncio.create_task(open_link(receiver))
    await asyncio.sleep(0.2)
    await set_status(admin, "waited-for", EntityStatus.DISABLED)
    with pytest.raises(MessagingEntityDisabledError):
        await waiting
