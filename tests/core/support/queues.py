"""Read a queue without taking anything, and write to it with another AMQP client."""

from __future__ import annotations

import proton
from azure.servicebus import ServiceBusReceivedMessage, ServiceBusSubQueue
from azure.servicebus.aio import ServiceBusClient
from proton.utils import BlockingConnection

from servicebus_emulator import HostedNamespace
from servicebus_pair.core.sdk._private.link_patches import patch_link


async def peek_all(connection_string: str, queue: str, *, dead_letter: bool = False) -> list[ServiceBusReceivedMessage]:
    """Return every message of a queue, or of its dead-letter queue."""
    sub_queue = ServiceBusSubQueue.DEAD_LETTER if dead_letter else None
    found: list[ServiceBusReceivedMessage] = []
    async with ServiceBusClient.from_connection_string(connection_string) as client:
        receiver = patch_link(client.get_queue_receiver(queue, sub_queue=sub_queue))
        cursor = 0
        while page := await receiver.peek_messages(max_message_count=250, sequence_number=cursor):
            found += page
            cursor = int(page[-1].sequence_number or 0) + 1
    return found


def send_raw(namespace: HostedNamespace, queue: str, *sent: proton.Message) -> None:
    """Send messages that the SDK would refuse to encode."""
    connection = BlockingConnection(f"amqp://127.0.0.1:{namespace.amqp_port}", allowed_mechs="ANONYMOUS")
    sender = connection.create_sender(queue)
    for message in sent:
        sender.send(message)
    connection.close()
