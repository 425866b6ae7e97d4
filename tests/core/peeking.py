"""Reading what a queue really holds, with the SDK and without taking anything."""

from __future__ import annotations

from azure.servicebus import ServiceBusReceivedMessage, ServiceBusSubQueue
from azure.servicebus.aio import ServiceBusClient

from servicebus_pair.core.prompt_opening import opens_promptly

__all__ = ["peek_all"]


async def peek_all(connection_string: str, queue: str, *, dead_letter: bool = False) -> list[ServiceBusReceivedMessage]:
    """Return every message of a queue, or of its dead-letter queue."""
    sub_queue = ServiceBusSubQueue.DEAD_LETTER if dead_letter else None
    found: list[ServiceBusReceivedMessage] = []
    async with ServiceBusClient.from_connection_string(connection_string) as client:
        receiver = opens_promptly(client.get_queue_receiver(queue, sub_queue=sub_queue))
        cursor = 0
        while page := await receiver.peek_messages(max_message_count=250, sequence_number=cursor):
            found += page
            cursor = int(page[-1].sequence_number or 0) + 1
    return found
