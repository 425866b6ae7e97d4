"""A pair over two embedded namespaces in this process: quick to start, with faults injected by a call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from azure.servicebus import ServiceBusMessage

from servicebus_emulator import Emulator, HostedNamespace
from servicebus_emulator.engine.model.descriptions import QueueDescription
from servicebus_pair.core import Endpoint, HealthState, NamespacePair, PairOptions
from servicebus_pair.core.model.events import Event, HealthChanged
from servicebus_pair.core.protocol.amqp_message import AmqpMessage
from servicebus_pair.core.protocol.backlog_message import wrap
from servicebus_pair.core.protocol.backlog_queues import (
    BACKLOG_QUEUE,
    backlog_queue,
    backlog_queue_paths,
    backlog_session_id,
    is_session_queue,
    queues_in_use,
    session_queue_for,
    session_queue_paths,
)
from servicebus_pair.core.sdk._private.capabilities import fast_path
from servicebus_pair.core.sdk.administration.data_plane import ServiceBusAdministration
from servicebus_pair.core.sdk.message_batch import EncodedBatch
from servicebus_pair.core.sdk.messages import to_amqp_message
from tests.core.support.queues import peek_all
from tests.leaks import collect_leaks

BACKLOG = backlog_queue("contoso", 0)
FAILOVER_INTERVAL = 1.0
PING_INTERVAL = 1.0
# SPEC section 4: what a failover may take beyond its interval. The public interface of the SDK sleeps in between.
FAILOVER_MARGIN = 2.0 if fast_path() else 5.0
QUICK_OPTIONS = PairOptions(
    failover_interval=timedelta(seconds=FAILOVER_INTERVAL),
    ping_primary_interval=timedelta(seconds=PING_INTERVAL),
    ping_timeout=timedelta(seconds=2),
    server_busy_delay=timedelta(seconds=0.5),
    backlog_queue_count=3,
)


class EventRecorder:
    """An observer that keeps all events, and the sequence of health states."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.states: list[HealthState] = []
        self.failed_over = asyncio.Event()
        self.recovered = asyncio.Event()
        self._arrived = asyncio.Event()

    def observe(self, event: Event) -> None:
        self.events.append(event)
        self._arrived.set()
        if isinstance(event, HealthChanged):
            self.states.append(event.after.state)
            if event.after.failed_over:
                self.failed_over.set()
            if event.before.failed_over and not event.after.failed_over:
                self.recovered.set()

    async def wait_for(self, kind: type[Any]) -> None:
        """Wait until there is an event of this kind."""
        async with asyncio.timeout(15):
            while not self.of(kind):
                self._arrived.clear()
                await self._arrived.wait()

    def of(self, kind: type[Any]) -> list[Any]:
        """The events of one kind, in order."""
        return [event for event in self.events if isinstance(event, kind)]


@dataclass(frozen=True)
class LocalPair:
    """Two namespaces with queues on the primary, and an open pair over them with its backlog queues."""

    primary: HostedNamespace
    secondary: HostedNamespace
    pair: NamespacePair
    recorder: EventRecorder

    async def put_into_backlog(self, entity: str, sent: Iterable[ServiceBusMessage], *, queue: str = BACKLOG) -> None:
        """Divert messages into a given backlog queue, as a sender does while ``entity`` is failed over."""
        await self._put((wrap(to_amqp_message(message), entity=entity) for message in sent), queue)

    async def put_raw_into_backlog(self, sent: Iterable[ServiceBusMessage], *, queue: str = BACKLOG) -> None:
        """Send messages to a backlog queue as they are."""
        await self._put((to_amqp_message(message) for message in sent), queue)

    async def put_into_sessions(self, entity: str, sent: Iterable[ServiceBusMessage]) -> None:
        """Divert messages with session ids into the backlog queues that require sessions, as ``ordering=session``."""
        queues = session_queue_paths("contoso", self.pair.options.backlog_queue_count)
        copies: dict[str, list[AmqpMessage]] = {}
        for message in sent:
            copied = wrap(to_amqp_message(message), entity=entity)
            assert copied.properties is not None
            copied.properties = replace(copied.properties, group_id=backlog_session_id(entity))
            copies.setdefault(session_queue_for(entity, str(message.session_id), queues), []).append(copied)
        for queue, held in copies.items():
            await self._put(held, queue)

    async def _put(self, sent: Iterable[AmqpMessage], queue: str) -> None:
        link = self.pair._open().secondary.send_link(queue)
        batch = EncodedBatch(await link.open(timeout=5))
        for message in sent:
            assert batch.try_add(message)
        if len(batch):
            await link.send(batch, timeout=5)

    async def primary_ids(self, queue: str = "flights") -> list[str]:
        """The message ids in a queue of the primary, in order."""
        return [message.message_id or "" for message in await peek_all(self.primary.connection_string, queue)]

    async def backlog_ids(self, *queues: str, dead_letter: bool = False) -> list[str]:
        """The message ids in some backlog queues, by default in all of them."""
        paths = queues or backlog_queue_paths("contoso", self.pair.options.backlog_queue_count)
        secondary = self.secondary.connection_string
        found = await asyncio.gather(*(peek_all(secondary, path, dead_letter=dead_letter) for path in paths))
        return [message.message_id or "" for held in found for message in held]


def messages(*numbers: int, body: str = "body", name: str = "m", **more: Any) -> list[ServiceBusMessage]:
    return [ServiceBusMessage(f"{body} {n}", message_id=f"{name}{n}", **more) for n in numbers]


def numbered(count: int, *, start: int = 0) -> list[ServiceBusMessage]:
    return messages(*range(start, start + count))


def endpoint(namespace: HostedNamespace) -> Endpoint:
    return Endpoint.from_connection_string(
        namespace.connection_string,
        namespace=namespace.name,
        administration=f"{namespace.host}:{namespace.admin_port}",
    )


@asynccontextmanager
async def open_local_pair(
    *entities: str,
    options: PairOptions | None = None,
    lock: str = "PT1M",
    unchecked: bool = False,
    observers: Sequence[Any] = (),
    **more: Any,
) -> AsyncIterator[LocalPair]:
    """Start both namespaces with queues ``entities``, create the backlog queues and open a pair.

    :param lock: lock duration of the backlog queues, ISO 8601.
    :param unchecked: accept clients that bring no token.
    :param more: further arguments of the pair.
    """
    chosen = PairOptions(backlog_queue_count=1) if options is None else options
    try:
        async with Emulator(["contoso", "contoso-dr"], open=unchecked) as emulator:
            primary, secondary = emulator["contoso"], emulator["contoso-dr"]
            for entity in entities:
                primary.namespace.create_queue(QueueDescription(entity))
            async with ServiceBusAdministration(endpoint(secondary)) as administration:
                for queue in queues_in_use("contoso", chosen):
                    by_session = is_session_queue("contoso", queue)
                    shape = replace(BACKLOG_QUEUE, lock_duration=lock, requires_session=by_session)
                    await administration.create_queue(queue, shape)
            recorder = EventRecorder()
            ends = endpoint(primary), endpoint(secondary)
            async with NamespacePair(*ends, chosen, observers=[recorder, *observers], **more) as pair:
                yield LocalPair(primary, secondary, pair, recorder)
                primary.clear_faults()
                secondary.clear_faults()
    finally:
        collect_leaks()


def open_quick_pair(
    *, observers: Sequence[Any] = (), store: Any = None, **changed: Any
) -> AbstractAsyncContextManager[LocalPair]:
    """Open a pair with the queue ``flights`` and short intervals; ``changed`` are options that differ."""
    return open_local_pair("flights", options=replace(QUICK_OPTIONS, **changed), observers=observers, store=store)
