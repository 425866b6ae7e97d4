"""Numbered messages, sent and received with the Azure SDK."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiver

from tests.spark.conftest import Pair


def send(pair: Pair, queue: str, *messages: Any) -> None:
    with (
        ServiceBusClient.from_connection_string(pair.primary.connection_string) as client,
        client.get_queue_sender(queue) as sender,
    ):
        sender.send_messages(list(messages))


def numbered(count: int, *, first: int = 0, **properties: Any) -> list[ServiceBusMessage]:
    return [ServiceBusMessage(f"body {n}", message_id=f"m-{n}", **properties) for n in range(first, first + count)]


@contextmanager
def receiver_of(pair: Pair, queue: str) -> Iterator[ServiceBusReceiver]:
    with (
        ServiceBusClient.from_connection_string(pair.primary.connection_string) as client,
        client.get_queue_receiver(queue, prefetch_count=0) as receiver,
    ):
        yield receiver
