"""Peeks into queues of an embedded namespace with the SDK."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from servicebus_emulator import RemoteNamespace
from servicebus_pair.core import Endpoint
from tests.airflow.conftest import Pair


@dataclass(frozen=True, slots=True)
class PeekedMessage:
    """A message of a queue; the time to live in seconds."""

    body: str
    message_id: str
    session_id: str | None
    subject: str | None
    content_type: str | None
    correlation_id: str | None
    time_to_live: float | None
    properties: dict[str, Any]


def contents(served: RemoteNamespace, queue: str) -> list[PeekedMessage]:
    """Every message of a queue that is no ping, in order."""
    from azure.servicebus import ServiceBusClient

    from servicebus_pair.core.protocol.amqp_message import PING_CONTENT_TYPE

    with (
        ServiceBusClient.from_connection_string(served.connection_string) as client,
        client.get_queue_receiver(queue) as receiver,
    ):
        peeked = receiver.peek_messages(max_message_count=100)
    return [_from_sdk(message) for message in peeked if message.content_type != PING_CONTENT_TYPE]


def dead_letters(served: RemoteNamespace, queue: str) -> list[str]:
    """Reason and description of every dead letter of a queue."""
    from azure.servicebus import ServiceBusClient, ServiceBusSubQueue

    with (
        ServiceBusClient.from_connection_string(served.connection_string) as client,
        client.get_queue_receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver,
    ):
        peeked = receiver.peek_messages(max_message_count=100)
    return [f"{message.dead_letter_reason}: {message.dead_letter_error_description}" for message in peeked]


def queue_names(served: RemoteNamespace) -> list[str]:
    """The names of all queues."""
    from servicebus_pair.core.sdk.administration.data_plane import ServiceBusAdministration

    async def read() -> list[str]:
        async with ServiceBusAdministration(endpoint_of(served)) as administration:
            return sorted(await administration.list_queues())

    return asyncio.run(read())


async def divert(pair: Pair, entity: str = "flights", *, count: int = 3) -> None:
    """Leave messages for an entity in the backlog, from a sender outside Airflow."""
    from azure.servicebus import ServiceBusMessage

    from servicebus_pair.core import NamespacePair, PairOptions

    primary, secondary = endpoint_of(pair.primary["contoso"]), endpoint_of(pair.secondary["contoso-dr"])
    async with NamespacePair(primary, secondary, PairOptions(backlog_queue_count=2)) as opened:
        await opened.provision()
        await opened.fail_over(entity, reason="drill")
        async with opened.sender(entity) as sender:
            await sender.send([ServiceBusMessage(str(number)) for number in range(count)])


async def divert_session(pair: Pair, queue: str, entity: str = "flights", *, count: int = 3) -> None:
    """Leave messages of one session of an entity in a backlog queue that requires sessions."""
    from azure.servicebus import ServiceBusMessage
    from azure.servicebus.aio import ServiceBusClient

    from servicebus_pair.core.protocol.backlog_queues import backlog_session_id

    secondary = pair.secondary["contoso-dr"].connection_string
    async with ServiceBusClient.from_connection_string(secondary) as client, client.get_queue_sender(queue) as sender:
        properties: dict[Any, Any] = {"x-ms-path": entity, "x-ms-sessionid": "N14228"}
        copies = (
            ServiceBusMessage(
                str(number),
                message_id=f"s{number}",
                session_id=backlog_session_id(entity),
                application_properties=properties,
            )
            for number in range(count)
        )
        await sender.send_messages(list(copies))


def send_directly(served: RemoteNamespace, queue: str, **properties: Any) -> None:
    """Send one message with the SDK."""
    from azure.servicebus import ServiceBusClient, ServiceBusMessage

    with (
        ServiceBusClient.from_connection_string(served.connection_string) as client,
        client.get_queue_sender(queue) as sender,
    ):
        sender.send_messages(ServiceBusMessage("x", application_properties=dict[Any, Any](properties)))


def send_texts(served: RemoteNamespace, queue: str, *texts: str, **properties: Any) -> None:
    """Send messages of these texts, the text of each also being its id."""
    from azure.servicebus import ServiceBusClient, ServiceBusMessage

    with (
        ServiceBusClient.from_connection_string(served.connection_string) as client,
        client.get_queue_sender(queue) as sender,
    ):
        sender.send_messages([ServiceBusMessage(text, message_id=text[:128], **properties) for text in texts])


def endpoint_of(served: RemoteNamespace) -> Endpoint:
    return Endpoint.from_connection_string(
        served.connection_string, namespace=served.name, administration=f"{served.host}:{served.admin_port}"
    )


def _from_sdk(message: Any) -> PeekedMessage:
    properties = message.application_properties or {}
    life = message.time_to_live
    return PeekedMessage(
        body=b"".join(message.body).decode(),
        message_id=message.message_id,
        session_id=message.session_id,
        subject=message.subject,
        content_type=message.content_type,
        correlation_id=message.correlation_id,
        time_to_live=None if life is None else life.total_seconds(),
        properties={_decode(name): _decode(value) for name, value in properties.items()},
    )


def _decode(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value
