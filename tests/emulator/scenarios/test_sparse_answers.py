"""The official client needs neither the info of errors nor the sizes of links, which the service may leave out."""

from __future__ import annotations

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import (
    MessageLockLostError,
    MessageSizeExceededError,
    MessagingEntityNotFoundError,
    ServiceBusError,
)
from proton import Link

from servicebus_emulator import Emulator, Fault, FaultKind, Operation
from servicebus_emulator.engine.model.descriptions import QueueDescription
from tests.emulator.support.hostile_bytes import frames_of
from tests.emulator.support.proton_client import attach_links, connected, is_closed


async def test_errors_are_told_apart_without_their_info():
    async with Emulator(["contoso"], sparse_answers=True, any_audience=True) as emulator:
        hosted = emulator["contoso"]
        hosted.namespace.create_queue(QueueDescription("flights"))
        async with ServiceBusClient.from_connection_string(hosted.connection_string, retry_total=0) as client:
            with pytest.raises(MessagingEntityNotFoundError):
                async with client.get_queue_sender("missing") as sender:
                    await sender.send_messages(ServiceBusMessage("x"))
            async with client.get_queue_sender("flights") as sender, client.get_queue_receiver("flights") as receiver:
                with pytest.raises(MessageSizeExceededError):
                    await sender.send_messages(ServiceBusMessage(b"x" * 300_000))
                await sender.send_messages(ServiceBusMessage("one"))
                (message,) = await receiver.receive_messages(1, max_wait_time=5)
                hosted.set_fault(Fault(kind=FaultKind.LOCK_LOST, on=(Operation.SETTLE,)))
                with pytest.raises(MessageLockLostError):
                    await receiver.complete_message(message)
                hosted.clear_faults()
                hosted.set_fault(Fault(kind=FaultKind.CLOSE_LINK, on=(Operation.SEND,)))
                with pytest.raises(ServiceBusError):
                    await sender.send_messages(ServiceBusMessage("two"))


async def test_the_info_is_null_and_the_sizes_are_missing():
    async with Emulator(["contoso"], sparse_answers=True, open=True) as emulator:
        hosted = emulator["contoso"]
        hosted.namespace.create_queue(QueueDescription("flights"))
        async with connected(hosted) as peer:
            peer.recorded = bytearray()
            session = peer.begin()
            sender, _ = await attach_links(peer, session=session)
            assert sender.remote_max_message_size == 0
            refused: Link = peer.sender(session, "missing")
            await peer.until(lambda: is_closed(refused))
            assert refused.remote_condition.name == "amqp:not-found"
            (detach,) = [each for each in frames_of(bytes(peer.recorded)) if len(each) > 13 and each[10] == 0x16]
            assert detach.endswith(b"\x40")
            assert b"status-code" not in peer.recorded
            assert b"max-message-batch-size" not in peer.recorded
