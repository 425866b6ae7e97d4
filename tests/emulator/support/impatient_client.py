"""The SDK without retries, for tests with faults."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver, ServiceBusSender

from servicebus_emulator import HostedNamespace
from servicebus_emulator.engine.namespace.entities import QueueEntity

TIMEOUT = 8


@asynccontextmanager
async def client_of(hosted: HostedNamespace, *, retries: int = 0) -> AsyncIterator[ServiceBusClient]:
    client = ServiceBusClient.from_connection_string(hosted.connection_string, retry_total=retries)
    try:
        yield client
    finally:
        hosted.clear_faults()
        # Each link waits up to a second for its keep-alive task: all of them at once, not one after the other.
        await asyncio.wait_for(asyncio.gather(*(handler.close() for handler in client._handlers)), TIMEOUT)
        await asyncio.wait_for(client.close(), TIMEOUT)


async def send(sender: ServiceBusSender, text: str = "x", *, timeout: float = 3) -> None:
    await asyncio.wait_for(sender.send_messages(ServiceBusMessage(text), timeout=timeout), TIMEOUT)


async def receive(receiver: ServiceBusReceiver, *, wait: float = 2) -> list[ServiceBusReceivedMessage]:
    return await asyncio.wait_for(receiver.receive_messages(10, max_wait_time=wait), TIMEOUT)


async def receive_some(receiver: ServiceBusReceiver) -> list[ServiceBusReceivedMessage]:
    """Receive again while nothing comes, without an error: the client pauses before it reattaches."""
    async with asyncio.timeout(2 * TIMEOUT):
        while len(found := await receive(receiver, wait=5)) == 0:
            continue
    return found


async def delivered(
    client: ServiceBusClient, path: str = "flights"
) -> tuple[ServiceBusReceiver, ServiceBusReceivedMessage]:
    """Send a message and receive it."""
    await send(client.get_queue_sender(path))
    receiver = client.get_queue_receiver(path)
    (message,) = await receive(receiver)
    return receiver, message


def stored_count(hosted: HostedNamespace, path: str = "flights") -> int:
    entity = hosted.namespace.find(path)
    assert isinstance(entity, QueueEntity)
    return entity.main.active_count
