"""Messages up to 100 MB, and bounded memory for clients that exceed the limits."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from azure.servicebus.exceptions import MessageSizeExceededError
from proton import Delivery, symbol

from servicebus_emulator import Emulator
from servicebus_emulator.amqp.session.connection import AmqpConnection
from servicebus_emulator.engine.model.descriptions import QueueDescription
from servicebus_emulator.testing.process import EmulatorProcess
from tests.emulator.support.command import memory_of
from tests.emulator.support.proton_client import connected, is_open
from tests.emulator.support.sdk_client import open_link

MEGABYTE = 1024 * 1024


async def test_a_message_of_100_megabytes_is_sent_received_and_survives(tmp_path: Path):
    body = bytes(range(256)) * (100 * MEGABYTE // 256 - 8)
    with EmulatorProcess(["contoso"], data=tmp_path, options=("--message-kilobytes", "102400")) as process:
        process["contoso"].create_queue("flights")
        before = memory_of(process)
        connection = process["contoso"].connection_string
        async with ServiceBusClient.from_connection_string(connection, retry_total=0) as client:
            sender = client.get_queue_sender("flights")
            await open_link(sender)
            await sender.send_messages(ServiceBusMessage(body), timeout=30)
            with pytest.raises(MessageSizeExceededError):
                await sender.send_messages(ServiceBusMessage(body + bytes(4096)), timeout=30)
        process.kill()
        process.start()
        async with ServiceBusClient.from_connection_string(connection, retry_total=0) as client:
            receiver = client.get_queue_receiver("flights")
            await open_link(receiver)
            [message] = await receiver.receive_messages(1, max_wait_time=30)
            assert b"".join(message.body) == body
            await receiver.complete_message(message)
        assert memory_of(process) - before < 500 * MEGABYTE


async def test_a_premium_namespace_accepts_a_megabyte_by_default():
    async with Emulator(["contoso"], open=True, message_kilobytes=1024) as emulator:
        hosted = emulator["contoso"]
        async with ServiceBusAdministrationClient.from_connection_string(
            hosted.connection_string, connection_verify=str(hosted.ca_file)
        ) as client:
            assert (await client.get_namespace_properties()).messaging_sku == "Premium"
            created = await client.create_queue("flights")
            assert created.max_message_size_in_kilobytes == 1024
            created.max_message_size_in_kilobytes = 256
            await client.update_queue(created)
            assert (await client.get_queue("flights")).max_message_size_in_kilobytes == 1024
            larger = await client.create_topic("large", max_message_size_in_kilobytes=102_400)
            assert larger.max_message_size_in_kilobytes == 102_400
        async with connected(hosted) as peer:
            sender = peer.sender(peer.begin(), "large")
            await peer.until(lambda: is_open(sender))
            assert sender.remote_max_message_size == 100 * MEGABYTE
            batch = sender.remote_properties[symbol("com.microsoft:max-message-batch-size")]
            assert batch == MEGABYTE


@pytest.mark.parametrize("kilobytes", [0, -1, 102_401])
def test_an_invalid_size_limit_is_refused(kilobytes: int):
    with pytest.raises(ValueError, match=rf"message_kilobytes is {kilobytes}; allowed: 1 .. 102400"):
        Emulator(["contoso"], open=True, message_kilobytes=kilobytes)


@pytest.mark.parametrize("path", ["flights", "flights/$management"])
async def test_an_endless_message_costs_no_memory_beyond_the_limit(path: str):
    with EmulatorProcess(["contoso"], open=True) as process:
        served = process["contoso"]
        served.create_queue("flights")
        async with connected(served) as peer:
            sender = peer.sender(peer.begin(), path)
            await peer.until(lambda: sender.credit > 0)
            before = memory_of(process)
            sender.delivery("endless")
            chunk = b"\x00Su\xb0\x7f\xff\xff\xff" + bytes(MEGABYTE)
            for _ in range(150):
                sender.send(chunk)
                while sender.session.outgoing_bytes > 4 * MEGABYTE and not peer.gone:
                    peer.push()
                    await peer.writer.drain()
                    if not sender.session.outgoing_bytes:
                        break
                    await peer.quiet(seconds=0.01)
            assert memory_of(process) - before < 30 * MEGABYTE
            sender.advance()
            await peer.until(lambda: "endless" in peer.answered)
            assert peer.answered["endless"] == Delivery.REJECTED
        assert memory_of(process) - before < 30 * MEGABYTE
        async with connected(served) as other:
            checking = other.sender(other.begin(), "flights")
            await other.until(lambda: checking.credit > 0)


async def test_messages_for_a_client_that_does_not_read_stay_in_the_queue():
    """A receiver with credit for everything that stops reading is sent no more than its socket takes."""
    async with Emulator(["contoso"], open=True) as emulator:
        hosted = emulator["contoso"]
        hosted.namespace.create_queue(QueueDescription("flights", max_message_size_in_kilobytes=10_240))
        async with connected(hosted) as peer, connected(hosted) as deaf:
            sender = peer.sender(peer.begin(), "flights")
            await peer.until(lambda: sender.credit > 0)
            for number in range(40):
                sender.delivery(str(number))
                sender.send(b"\x00Su\xb0" + (5 * MEGABYTE).to_bytes(4, "big") + bytes(5 * MEGABYTE))
                sender.advance()
                await peer.until(lambda number=number: str(number) in peer.answered)
            receiver = deaf.receiver(deaf.begin(), "flights")
            receiver.flow(1000)
            await deaf.until(lambda: is_open(receiver))
            deaf.push()
            await asyncio.sleep(0.5)
            [connection] = [
                each for each in hosted._broker._connections if isinstance(each, AmqpConnection) and each.congested
            ]
            assert 0 < connection._stream._transport.get_write_buffer_size() < 12 * MEGABYTE
            await deaf.until(lambda: len(deaf.received) == 40)
