"""Peeks all messages of queues and subscriptions with the unmodified Azure SDK."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree as ET

import httpx
from azure.servicebus import ServiceBusReceivedMessage, ServiceBusSubQueue
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver

from servicebus_emulator.engine.model.access_policy import ROOT_POLICY
from servicebus_emulator.security.sas import sign
from tests.system.demo.comparison import Content, Found
from tests.system.demo.namespaces import KEY

ATOM = "{http://www.w3.org/2005/Atom}"
PAGE = 250  # messages per request
DESTINATION = "x-ms-path"  # application property of a backlog message that names its entity


def queue_names(administration: str) -> list[str]:
    """Return the paths of up to a hundred queues, from the administration API at host:port."""
    address = f"http://{administration}/$Resources/queues"
    query = {"api-version": "2021-05", "$skip": "0", "$top": "100"}
    token = sign(address, rule=ROOT_POLICY, key=KEY, expires=int(time.time()) + 60)
    response = httpx.get(address, params=query, headers={"Authorization": token}).raise_for_status()
    feed = ET.fromstring(response.content)  # noqa: S314  our own process wrote it
    return [entry.findtext(f"{ATOM}title") or "" for entry in feed.iter(f"{ATOM}entry")]


def peek_everything(connection_string: str, entities: Sequence[str]) -> list[Found]:
    """Return all messages of queues and subscriptions, including their dead-letter queues.

    :param entities: a queue's path or ``topic/Subscriptions/name``.
    """

    async def read() -> list[list[Found]]:
        # Concurrently: opening a link takes the SDK a second.
        async with ServiceBusClient.from_connection_string(connection_string) as client:
            sub_queues = (None, ServiceBusSubQueue.DEAD_LETTER)
            return await asyncio.gather(*(peek(client, path, sub) for path in entities for sub in sub_queues))

    return [item for found in asyncio.run(read()) for item in found]


def peek_backlog_queues(connection_string: str, queues: Sequence[str]) -> list[Found]:
    """Return all messages of backlog queues and their dead-letter queues, keyed by their destination."""
    found = peek_everything(connection_string, queues)
    return [replace(item, key=(destination(item), item.key[1])) for item in found]


def destination(item: Found) -> str:
    return str(item.content.properties.get(DESTINATION, item.key[0])).lower()


async def peek(client: ServiceBusClient, path: str, sub_queue: ServiceBusSubQueue | None) -> list[Found]:
    entity = path.split("/Subscriptions/", maxsplit=1)[0].lower()
    place = path if sub_queue is None else f"{path}/$DeadLetterQueue"
    found: list[Found] = []
    next_number = 1
    async with receiver_for(client, path, sub_queue=sub_queue) as receiver:
        while page := await receiver.peek_messages(max_message_count=PAGE, sequence_number=next_number):
            found += [found_in(place, entity, message) for message in page]
            next_number = max(number for message in page if (number := message.sequence_number) is not None) + 1
    return found


def found_in(place: str, entity: str, message: ServiceBusReceivedMessage) -> Found:
    enqueued = message.enqueued_time_utc
    stored = 0.0 if enqueued is None else enqueued.timestamp()
    return Found(place, (entity, str(message.message_id)), content_of(message), stored)


def receiver_for(client: ServiceBusClient, path: str, *, sub_queue: ServiceBusSubQueue | None) -> ServiceBusReceiver:
    topic, _, subscription = path.partition("/Subscriptions/")
    if subscription:
        return client.get_subscription_receiver(topic, subscription, sub_queue=sub_queue)
    return client.get_queue_receiver(path, sub_queue=sub_queue)


def content_of(message: ServiceBusReceivedMessage) -> Content:
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
    """Decode an AMQP string, which the SDK returns as bytes; return other values unchanged."""
    return value.decode() if isinstance(value, bytes) else value
