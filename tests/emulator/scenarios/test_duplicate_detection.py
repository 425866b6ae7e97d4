"""Duplicate detection with the unmodified SDK, and after SIGKILL."""

from __future__ import annotations

import gc
import warnings
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageProperties

from servicebus_emulator import EmulatorProcess, HostedNamespace
from servicebus_emulator.engine.model.descriptions import QueueDescription
from tests.emulator.support.sdk_client import SdkClient, bodies

LATER = datetime(2100, 1, 1, tzinfo=UTC)
NAMED = UUID(int=7)


def message(text: str, message_id: str) -> ServiceBusMessage:
    return ServiceBusMessage(text, message_id=message_id)


@pytest.mark.asyncio(loop_scope="session")
async def test_duplicates_are_accepted_and_dropped_alone_batched_or_scheduled(contoso: HostedNamespace, sdk: SdkClient):
    contoso.namespace.create_queue(QueueDescription("unique", requires_duplicate_detection=True))
    async with sdk.queue("unique") as (sender, receiver):
        await sender.send_messages(message("a", "1"))
        await sender.send_messages(message("a again", "1"))
        await sender.send_messages([message("b", "2"), message("b again", "2"), message("a again", "1")])
        scheduled = await sender.schedule_messages([message("b again", "2"), message("c", "3")], LATER)
        await sender.send_messages([message("c again", "3"), ServiceBusMessage("d"), ServiceBusMessage("e")])
        assert bodies(await receiver.receive_messages(10, max_wait_time=2)) == ["a", "b", "d", "e"]
        assert scheduled == [0, 3]
        counts = contoso.namespace.counts("unique")
        assert (counts.active, counts.scheduled) == (4, 1)


@pytest.mark.asyncio(loop_scope="session")
async def test_message_ids_of_other_types_are_detected_too(contoso: HostedNamespace, sdk: SdkClient):
    contoso.namespace.create_queue(QueueDescription("unique-by-uuid", requires_duplicate_detection=True))
    named = AmqpAnnotatedMessage(data_body=b"x", properties=AmqpMessageProperties(message_id=NAMED))
    async with sdk.opened(sdk.client.get_queue_sender("unique-by-uuid")) as (sender,):
        await sender.send_messages(named)
        await sender.send_messages(named)
    assert contoso.namespace.counts("unique-by-uuid").active == 1


def test_duplicates_are_detected_after_sigkill(tmp_path: Path):
    with EmulatorProcess(["contoso"], data=tmp_path) as process:
        process["contoso"].create_queue("unique", requires_duplicate_detection=True)
        for text in ("first", "second"):
            client = ServiceBusClient.from_connection_string(process["contoso"].connection_string)
            with client, client.get_queue_sender("unique") as sender:
                sender.send_messages(message(text, "same"))
                process.kill()
            process.start()
        client = ServiceBusClient.from_connection_string(process["contoso"].connection_string)
        with client, client.get_queue_receiver("unique") as receiver:
            assert bodies(receiver.peek_messages(5)) == ["first"]
    with warnings.catch_warnings():
        # The client leaves the socket of a connection that broke to the garbage collector.
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
