"""Diverts messages to the backlog and counts their copies on the primary."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Final

from azure.servicebus import ServiceBusMessage

from servicebus_pair.core import Endpoint, NamespacePair
from tests.system.demo.namespaces import Namespace
from tests.system.demo.peek import peek_everything

RECEIVING_ENTITIES: Final = {"flights": "flights", "briefings": "briefings", "delays": "delays/Subscriptions/all"}
"""For each entity, the queue or subscription where its messages arrive."""

PING_CONTENT_TYPE = "application/vnd.ms-servicebus-ping"


def message_ids(entity: str, *, label: str, count: int) -> list[str]:
    return [f"{entity}-{label}-{number}" for number in range(count)]


def provision(primary: Namespace, secondary: Namespace) -> None:
    async def run() -> None:
        async with opened(primary, secondary) as pair:
            await pair.provision()

    asyncio.run(run())


def divert(primary: Namespace, secondary: Namespace, *, ids: dict[str, list[str]]) -> None:
    """Divert messages to the backlog, like a sender outside Airflow after a failover.

    :param ids: of the messages of each entity.
    """

    async def send(pair: NamespacePair, entity: str, names: Sequence[str]) -> None:
        await pair.fail_over(entity, reason="test")
        async with pair.sender(entity) as sender:
            result = await sender.send([ServiceBusMessage(name, message_id=name) for name in names])
        if result.diverted != len(names):
            raise AssertionError(f"{entity}: {result.diverted} of {len(names)} messages were diverted")

    async def run() -> None:
        async with opened(primary, secondary) as pair:
            await asyncio.gather(*(send(pair, entity, names) for entity, names in ids.items()))

    asyncio.run(run())


def count_copies(primary: Namespace, entities: Sequence[str]) -> dict[str, Counter[str]]:
    """Return the number of copies of each message on the primary, by entity and message id, without pings."""
    found: dict[str, Counter[str]] = {entity: Counter() for entity in entities}
    for item in peek_everything(primary.connection_string, [RECEIVING_ENTITIES[entity] for entity in entities]):
        if item.content.content_type != PING_CONTENT_TYPE:
            found[item.key[0]][item.key[1]] += 1
    return found


def opened(primary: Namespace, secondary: Namespace) -> NamespacePair:
    """Return a pair with its own health registry."""
    return NamespacePair(endpoint(primary), endpoint(secondary))


def endpoint(namespace: Namespace) -> Endpoint:
    return Endpoint.from_connection_string(
        namespace.connection_string, namespace=namespace.name, administration=namespace.administration
    )
