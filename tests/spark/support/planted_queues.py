"""Creates the ledgers and queues of random histories, with the core's Ledger and the Azure SDK."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage, ServiceBusSubQueue
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver
from azure.servicebus.amqp import AmqpMessageHeader

from servicebus_pair.core.ledger.reconcile import Found, Location
from servicebus_pair.core.ledger.writer import Ledger
from servicebus_pair.core.model.events import MessageRef, MessagesAccepted, MessagesSyphoned
from servicebus_pair.core.protocol.backlog_properties import PATH, SESSION_ID
from tests.spark.support.random_history import (
    ASIDE,
    BODY,
    COPIES,
    DIGEST,
    IN_BACKLOG,
    NOWHERE,
    OTHER_BODY,
    OTHER_DIGEST,
    Fate,
    History,
    Planted,
)

SECONDS = 120.0
BYTES = 300
LATER = datetime(2099, 1, 1, tzinfo=UTC)


def subscriptions(history: History) -> tuple[str, ...]:
    return ("all", "late") if history.is_topic else ()


def places_of(history: History) -> tuple[str, ...]:
    """Return the paths where the messages arrive."""
    return tuple(f"{history.entity}/Subscriptions/{each}" for each in subscriptions(history)) or (history.entity,)


def found(history: History, message: Planted) -> tuple[Found, ...]:
    queue = message.backlog_queue
    in_backlog = {Fate.DEAD_IN_BACKLOG: Location.BACKLOG_DEAD_LETTER}.get(message.fate, Location.BACKLOG)
    digest = OTHER_DIGEST if message.fate is Fate.CHANGED else DIGEST
    copies = [Found(queue, in_backlog, digest=digest)] if message.fate in IN_BACKLOG else []
    if message.fate in NOWHERE:
        return tuple(copies)
    special = {Fate.DEFERRED: Location.DEFERRED, Fate.SCHEDULED: Location.SCHEDULED}
    for number, place in enumerate(places_of(history)):
        location = special.get(message.fate, Location.ACTIVE)
        if is_dead(message.fate, number):
            location = Location.DEAD_LETTER
        if message.fate is not Fate.TAKEN_IN_ONE or number == 0:
            copies += [Found(place, location, digest=digest)] * COPIES.get(message.fate, 1)
    return tuple(copies)


def is_dead(fate: Fate, place: int) -> bool:
    # Only the first of a topic's subscriptions dead-letters the message.
    return fate is Fate.EXPIRED or (fate in (Fate.DEAD, Fate.DEAD_MOVED) and place == 0)


def write_ledger(folder: Path, history: History) -> None:
    """Write a ledger file for each run of a history, some of them in subfolders."""
    ledgers: dict[str, Ledger] = {}
    with ExitStack() as stack:
        for batch in history.batches:
            if batch.run not in ledgers:
                where = folder / str(history.seed) if batch.run.endswith("again") else folder
                ledgers[batch.run] = stack.enter_context(Ledger(where, run=f"{batch.run} of {history.seed}"))
            refs = tuple(MessageRef(each, BYTES, DIGEST) for each in batch.ids)
            # Entity paths are case-insensitive.
            entity = history.entity.upper() if batch.run.endswith("other") else history.entity
            if batch.moved:
                assert batch.queue is not None
                ledgers[batch.run].observe(MessagesSyphoned(entity, batch.queue, refs, batch.at))
            else:
                ledgers[batch.run].observe(MessagesAccepted(entity, batch.route, batch.queue, refs, batch.at))


async def plant(
    primary: str, secondary: str, histories: Sequence[History], *, strays: Sequence[ServiceBusMessage]
) -> None:
    """Put the messages into their queues.

    :param primary: connection string of the namespace that has the entities already.
    :param secondary: that of the backlog queues.
    :param strays: put into each backlog queue as they are.
    """
    async with ServiceBusClient.from_connection_string(primary) as client:
        await asyncio.gather(*(plant_entity(client, each) for each in histories))
    queues = sorted({message.backlog_queue for each in histories for message in each.messages})
    async with ServiceBusClient.from_connection_string(secondary) as client:
        await asyncio.gather(*(plant_backlog(client, queue, histories, strays) for queue in queues))


async def plant_entity(client: ServiceBusClient, history: History) -> None:
    topic = history.is_topic
    sender = client.get_topic_sender(history.entity) if topic else client.get_queue_sender(history.entity)
    aside = [each for each in history.messages if each.fate in ASIDE]
    by_id = history.by_id
    async with sender:
        await sender.send_messages([as_sent(each) for each in aside])
        await asyncio.gather(*(set_aside(client, history, aside, number) for number in range(len(places_of(history)))))
        for start in range(0, len(history.arrivals), 100):
            part = history.arrivals[start : start + 100]
            await sender.send_messages([as_sent(by_id[each]) for each in part])


def as_sent(message: Planted) -> ServiceBusMessage:
    sent = ServiceBusMessage(
        OTHER_BODY if message.fate is Fate.CHANGED else BODY,
        message_id=message.message_id,
        session_id=message.session,
        scheduled_enqueue_time_utc=LATER if message.fate is Fate.SCHEDULED else None,
    )
    if message.fate is Fate.EXPIRED:
        # In milliseconds; the message's own attribute truncates to seconds, and 0 is rejected.
        sent.raw_amqp_message.header = AmqpMessageHeader(time_to_live=1)
    return sent


async def set_aside(client: ServiceBusClient, history: History, aside: Sequence[Planted], place: int) -> None:
    """Dead-letter, defer or consume messages in one queue; the others are abandoned."""
    name = subscriptions(history)[place] if history.is_topic else None
    fates = {each.message_id: each.fate for each in aside}
    dead = sum(is_dead(fate, place) for fate in fates.values())

    async def settle(receiver: ServiceBusReceiver, received: ServiceBusReceivedMessage) -> None:
        fate = fates[received.message_id or ""]
        if is_dead(fate, place):
            await receiver.dead_letter_message(received, reason="planted")
        elif fate is Fate.DEFERRED:
            await receiver.defer_message(received)
        elif fate is Fate.TAKEN_IN_ONE and place:
            await receiver.complete_message(received)
        else:
            await receiver.abandon_message(received)

    # Expired messages disappear by themselves.
    staying = sum(fate is not Fate.EXPIRED for fate in fates.values())
    await take(
        receiver_of(client, history.entity, name),
        staying,
        settle,
        counts=lambda received: fates[received.message_id or ""] is not Fate.EXPIRED,
    )
    async with receiver_of(client, history.entity, name, ServiceBusSubQueue.DEAD_LETTER) as receiver:
        await wait_for_count(receiver, dead)


def receiver_of(
    client: ServiceBusClient, entity: str, subscription: str | None, sub_queue: ServiceBusSubQueue | None = None
) -> ServiceBusReceiver:
    if subscription is None:
        return client.get_queue_receiver(entity, sub_queue=sub_queue)
    return client.get_subscription_receiver(entity, subscription, sub_queue=sub_queue)


Settle = Callable[[ServiceBusReceiver, ServiceBusReceivedMessage], Awaitable[None]]


async def take(
    receiver: ServiceBusReceiver,
    count: int,
    settle: Settle,
    *,
    counts: Callable[[ServiceBusReceivedMessage], bool] = lambda _: True,
) -> None:
    """Receive ``count`` messages, then settle them."""
    async with receiver, asyncio.timeout(SECONDS):
        messages: list[ServiceBusReceivedMessage] = []
        while len(messages) < count:
            received = await receiver.receive_messages(max_message_count=100, max_wait_time=5)
            messages += filter(counts, received)
        for each in messages:
            await settle(receiver, each)


async def wait_for_count(receiver: ServiceBusReceiver, count: int) -> None:
    async with asyncio.timeout(SECONDS):
        while len(await receiver.peek_messages(max_message_count=100, sequence_number=1)) < count:  # noqa: ASYNC110  the queue is in another process
            await asyncio.sleep(0.1)


async def plant_backlog(
    client: ServiceBusClient, queue: str, histories: Sequence[History], strays: Sequence[ServiceBusMessage]
) -> None:
    def chosen(*fates: Fate) -> list[ServiceBusMessage]:
        return [
            diverted(history.entity, message)
            for history in histories
            for message in history.messages
            if message.fate in fates and message.backlog_queue == queue
        ]

    async def dead_letter(receiver: ServiceBusReceiver, received: ServiceBusReceivedMessage) -> None:
        await receiver.dead_letter_message(received, reason="planted")

    async with client.get_queue_sender(queue) as sender:
        dead = chosen(Fate.DEAD_IN_BACKLOG)
        if dead:
            await sender.send_messages(dead)
            await take(client.get_queue_receiver(queue), len(dead), dead_letter)
        waiting = chosen(*IN_BACKLOG - {Fate.DEAD_IN_BACKLOG})
        await sender.send_messages([*waiting, *strays])


def diverted(entity: str, message: Planted) -> ServiceBusMessage:
    """Return the message that a sender would divert to the backlog."""
    properties: dict[str | bytes, Any] = {PATH: entity.upper() if message.session == "a" else entity}
    if message.session is not None:
        properties[SESSION_ID] = message.session
    return ServiceBusMessage(BODY, message_id=message.message_id, application_properties=properties)
