"""Reads every message of a queue or subscription without taking it, with the unmodified Azure SDK."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import httpx
from azure.servicebus import ServiceBusClient, ServiceBusReceivedMessage, ServiceBusSubQueue

from tests.system.demo.compare import Content, Found

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from azure.servicebus import ServiceBusReceiver

__all__ = ["peek_backlog_queues", "peek_everything", "queue_names"]

ATOM = "{http://www.w3.org/2005/Atom}"
PAGE = 250  # messages for one request
DESTINATION = "x-ms-path"  # the application property in which a message of a backlog queue names its entity


def queue_names(administration: str) -> list[str]:
    """Return the paths of a namespace's queues, up to a hundred, from its administration API at host:port."""
    address = f"http://{administration}/$Resources/queues"
    answer = httpx.get(address, params={"api-version": "2021-05", "$skip": "0", "$top": "100"}).raise_for_status()
    feed = ET.fromstring(answer.content)  # noqa: S314  our own process wrote it
    return [entry.findtext(f"{ATOM}title") or "" for entry in feed.iter(f"{ATOM}entry")]


def peek_everything(connection_string: str, entities: Sequence[str]) -> Iterator[Found]:
    """Yield all messages of queues and subscriptions, those of their dead-letter queues included.

    :param entities: a queue's path or ``topic/Subscriptions/name``.
    """
    with ServiceBusClient.from_connection_string(connection_string) as client:
        for path in entities:
            entity = path.split("/Subscriptions/")[0].lower()
            for message in peek(receiver_for(client, path, sub_queue=None)):
                yield Found(path, (entity, str(message.message_id)), content_of(message))
            for message in peek(receiver_for(client, path, sub_queue=ServiceBusSubQueue.DEAD_LETTER)):
                yield Found(f"{path}/$DeadLetterQueue", (entity, str(message.message_id)), content_of(message))


def peek_backlog_queues(connection_string: str, queues: Sequence[str]) -> Iterator[Found]:
    """Yield all messages of backlog queues and their dead-letter queues, under the entity that each is meant for."""
    for item in peek_everything(connection_string, queues):
        entity = str(item.content.properties.get(DESTINATION, item.key[0]))
        yield Found(item.place, (entity.lower(), item.key[1]), item.content)


def receiver_for(client: ServiceBusClient, path: str, *, sub_queue: ServiceBusSubQueue | None) -> ServiceBusReceiver:
    """Return a receiver that nothing is prefetched to."""
    topic, _, subscription = path.partition("/Subscriptions/")
    if subscription:
        return client.get_subscription_receiver(topic, subscription, sub_queue=sub_queue)
    return client.get_queue_receiver(path, sub_queue=sub_queue)


def peek(receiver: ServiceBusReceiver) -> Iterator[ServiceBusReceivedMessage]:
    """Yield all messages, by a cursor over their sequence numbers."""
    with receiver:
        position = 1
        while page := receiver.peek_messages(max_message_count=PAGE, sequence_number=position):
            yield from page
            position = max(number for message in page if (number := message.sequence_number) is not None) + 1


def content_of(message: ServiceBusReceivedMessage) -> Content:
    """Return what the sender chose of a received message."""
    return Content(
        body=b"".join(message.body),
        content_type=message.content_type,
        subject=message.subject,
        correlation_id=message.correlation_id,
        reply_to=message.reply_to,
        to=message.to,
        partition_key=message.partition_key,
        session_id=message.session_id,
        time_to_live=message.time_to_live,
        scheduled_for=message.scheduled_enqueue_time_utc,
        properties={text(key): text(value) for key, value in (message.application_properties or {}).items()},
    )


def text(value: Any) -> Any:
    """Return an AMQP string, which the SDK gives as bytes, as text; anything else as it is."""
    return value.decode() if isinstance(value, bytes) else value
