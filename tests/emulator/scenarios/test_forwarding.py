"""Forwarding with the unmodified messaging and administration SDKs."""

from __future__ import annotations

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusSubQueue
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from azure.servicebus.exceptions import ServiceBusError

from servicebus_emulator import Emulator, HostedNamespace
from servicebus_emulator.config import NamespaceConfig
from servicebus_emulator.engine.model.descriptions import QueueDescription
from tests.emulator.support.sdk_client import SdkClient, bodies, open_link

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_message_is_forwarded_along_a_chain(admin: ServiceBusAdministrationClient, sdk: SdkClient):
    await admin.create_queue("hop/3")
    await admin.create_topic("hop/2")
    await admin.create_subscription("hop/2", "all", forward_to="hop/3")
    await admin.create_queue("hop/1", forward_to="hop/2")
    async with sdk.opened(
        sdk.client.get_queue_sender("hop/1"), sdk.client.get_queue_receiver("hop/3", max_wait_time=2)
    ) as (sender, receiver):
        await sender.send_messages(ServiceBusMessage("a", message_id="kept", subject="too"))
        (received,) = await receiver.receive_messages(1, max_wait_time=2)
        assert (str(received), received.message_id, received.subject) == ("a", "kept", "too")
        await receiver.complete_message(received)
    for receiver in (
        sdk.client.get_queue_receiver("hop/1"),
        sdk.client.get_subscription_receiver("hop/2", "all"),
    ):
        with pytest.raises(ServiceBusError, match="forwards its messages to"):
            await open_link(receiver)


async def test_too_many_hops_move_a_message_to_the_transfer_dead_letter_queue(
    admin: ServiceBusAdministrationClient, sdk: SdkClient
):
    await admin.create_queue("round/a")
    await admin.create_queue("round/b", forward_to="round/a")
    queue = await admin.get_queue("round/a")
    queue.forward_to = "round/b"
    await admin.update_queue(queue)
    stranded = sdk.client.get_queue_receiver(
        "round/a", sub_queue=ServiceBusSubQueue.TRANSFER_DEAD_LETTER, max_wait_time=2
    )
    async with sdk.opened(sdk.client.get_queue_sender("round/a"), stranded) as (sender, _):
        await sender.send_messages(ServiceBusMessage("a"))
        (received,) = await stranded.receive_messages(1, max_wait_time=2)
        assert (bodies([received]), received.dead_letter_reason) == (["a"], "MaxTransferHopCountExceeded")
    runtime = await admin.get_queue_runtime_properties("round/a")
    assert (runtime.transfer_dead_letter_message_count, runtime.transfer_message_count) == (1, 0)
    assert (runtime.active_message_count, runtime.total_message_count) == (0, 1)


async def test_receivers_are_detached_when_their_queue_starts_forwarding(
    admin: ServiceBusAdministrationClient, contoso: HostedNamespace, sdk: SdkClient, queue: str
):
    async with sdk.queue(queue) as (sender, receiver):
        await sender.send_messages(ServiceBusMessage("a"))
        assert len(await receiver.receive_messages(1, max_wait_time=2)) == 1
        await sender.send_messages(ServiceBusMessage("b"))
        await admin.create_queue("afterwards")
        described = await admin.get_queue(queue)
        described.forward_to = "afterwards"
        await admin.update_queue(described)
        assert contoso.namespace.counts("afterwards").active == 1
        with pytest.raises(ServiceBusError, match="forwards its messages to"):
            await receiver.receive_messages(1, max_wait_time=1)


async def test_a_configuration_may_name_a_target_before_its_description():
    queues = (QueueDescription("first", forward_to="last"), QueueDescription("last"))
    async with Emulator(["contoso"], configs=[NamespaceConfig(name="contoso", queues=queues)]) as emulator:
        assert [queue.path for queue in emulator["contoso"].namespace.list_queues()] == ["first", "last"]
