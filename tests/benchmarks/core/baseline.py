"""The bare SDK's batched send, and the endpoint of an embedded namespace."""

from __future__ import annotations

from collections.abc import Iterable

from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusSender
from azure.servicebus.exceptions import MessageSizeExceededError

from servicebus_emulator.testing.remote_namespace import RemoteNamespace
from servicebus_pair.core import Endpoint

QUEUE = "bench"


def endpoint(served: RemoteNamespace) -> Endpoint:
    return Endpoint.from_connection_string(
        served.connection_string, namespace=served.name, administration=f"{served.host}:{served.admin_port}"
    )


async def send_batches(sender: ServiceBusSender, messages: Iterable[ServiceBusMessage]) -> None:
    batch = await sender.create_message_batch()
    for message in messages:
        try:
            batch.add_message(message)
        except MessageSizeExceededError:
            await sender.send_messages(batch)
            batch = await sender.create_message_batch()
            batch.add_message(message)
    await sender.send_messages(batch)
