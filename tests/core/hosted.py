"""A pair over two embedded namespaces in this process: quick to start, and broken by a call."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from azure.servicebus import ServiceBusMessage

from servicebus_emulator import Emulator, HostedNamespace
from servicebus_emulator.engine.descriptions import QueueDescription
from servicebus_pair.core import Endpoint, NamespacePair, PairOptions
from servicebus_pair.core.administration import ServiceBusAdministration
from servicebus_pair.core.backlog import BACKLOG_QUEUE, backlog_queue, backlog_queues
from servicebus_pair.core.envelope import wrap
from servicebus_pair.core.wire import WireBatch
from tests.core.peeking import peek_all
from tests.leaks import collect_leaks

__all__ = ["BACKLOG", "Hosted", "hosted", "messages"]

BACKLOG = backlog_queue("contoso", 0)


@dataclass(frozen=True)
class Hosted:
    """Two namespaces with entities on the primary, and a pair over them."""

    primary: HostedNamespace
    secondary: HostedNamespace
    pair: NamespacePair

    async def put_into_backlog(self, entity: str, sent: Iterable[ServiceBusMessage], *, queue: str = BACKLOG) -> None:
        """As a sender does while ``entity`` is failed over, into a queue of choice."""
        link = self.pair._open().secondary.send_link(queue)
        batch = WireBatch(await link.open(timeout=5))
        for message in sent:
            assert batch.try_add(wrap(message.raw_amqp_message, entity=entity))
        await link.send(batch, timeout=5)

    async def ids(self, queue: str) -> list[str]:
        """The ids in a queue of the primary, in its order."""
        return [message.message_id or "" for message in await peek_all(self.primary.connection_string, queue)]

    async def ids_in_backlog(self, queue: str = BACKLOG, *, dead_letter: bool = False) -> list[str]:
        found = await peek_all(self.secondary.connection_string, queue, dead_letter=dead_letter)
        return [message.message_id or "" for message in found]


def messages(*numbers: int, body: str = "body", name: str = "m", **more: Any) -> list[ServiceBusMessage]:
    return [ServiceBusMessage(f"{body} {n}", message_id=f"{name}{n}", **more) for n in numbers]


def endpoint(namespace: HostedNamespace) -> Endpoint:
    return Endpoint.from_connection_string(
        namespace.connection_string,
        namespace=namespace.name,
        administration=f"{namespace.host}:{namespace.admin_port}",
    )


@asynccontextmanager
async def hosted(
    *entities: str, options: PairOptions | None = None, lock: str = "PT1M", unchecked: bool = False, **more: Any
) -> AsyncIterator[Hosted]:
    """Start both namespaces with queues ``entities``, and provision the backlog with locks of ``lock``.

    :param unchecked: let in clients that bring no token.
    """
    chosen = PairOptions(backlog_queue_count=1) if options is None else options
    try:
        async with Emulator(["contoso", "contoso-dr"], open=unchecked) as emulator:
            primary, secondary = emulator["contoso"], emulator["contoso-dr"]
            for entity in entities:
                primary.namespace.create_queue(QueueDescription(entity))
            async with ServiceBusAdministration(endpoint(secondary)) as administration:
                for queue in backlog_queues("contoso", chosen.backlog_queue_count):
                    await administration.create_queue(queue, replace(BACKLOG_QUEUE, lock_duration=lock))
            async with NamespacePair(endpoint(primary), endpoint(secondary), chosen, **more) as pair:
                yield Hosted(primary, secondary, pair)
                primary.clear_faults()
                secondary.clear_faults()
    finally:
        collect_leaks()
