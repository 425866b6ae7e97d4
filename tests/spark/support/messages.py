"""Numbered messages, sent with the Azure SDK."""

from __future__ import annotations

from typing import Any

from azure.servicebus import ServiceBusClient, ServiceBusMessage

from tests.spark.conftest import Pair

__all__ = ["numbered", "send"]


def send(pair: Pair, queue: str, *messages: Any) -> None:
    with (
        ServiceBusClient.from_connection_string(pair.primary.connection_string) as client,
        client.get_queue_sender(queue) as sender,
    ):
        sender.send_messages(list(messages))


def numbered(count: int, *, first: int = 0, **properties: Any) -> list[ServiceBusMessage]:
    return [ServiceBusMessage(f"body {n}", message_id=f"m-{n}", **properties) for n in range(first, first + count)]
