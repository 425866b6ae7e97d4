"""Messages that an outage left in the backlog, and where they are in the end."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Final

from azure.servicebus import ServiceBusMessage

from servicebus_pair.core import Endpoint, NamespacePair
from tests.system.demo.peek import peek_everything

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.system.demo.namespaces import Namespace

__all__ = ["PLACES", "divert", "held", "message_ids", "provision"]

PLACES: Final = {"flights": "flights", "briefings": "briefings", "delays": "delays/Subscriptions/all"}
"""Where the messages of each entity arrive."""

PING = "application/vnd.ms-servicebus-ping"


def message_ids(entity: str, *, label: str, count: int) -> list[str]:
    """Return the ids of messages for an entity."""
    return [f"{entity}-{label}-{number}" for number in range(count)]


def provision(primary: Namespace, secondary: Namespace) -> None:
    """Create the backlog queues."""

    async def act() -> None:
        async with opened(primary, secondary) as pair:
            await pair.provision()

    asyncio.run(act())


def divert(primary: Namespace, secondary: Namespace, *, ids: dict[str, list[str]]) -> None:
    """Leave messages in the backlog, as senders do that found their entity failed over and that Airflow does not know.

    :param ids: of the messages of each entity.
    """

    async def send(pair: NamespacePair, entity: str, names: Sequence[str]) -> None:
        pair.fail_over(entity, reason="test")
        async with pair.sender(entity) as sender:
            result = await sender.send([ServiceBusMessage(name, message_id=name) for name in names])
        if result.diverted != len(names):
            raise AssertionError(f"{entity}: {result.diverted} of {len(names)} messages were diverted")

    async def act() -> None:
        async with opened(primary, secondary) as pair:
            await asyncio.gather(*(send(pair, entity, names) for entity, names in ids.items()))

    asyncio.run(act())


def held(primary: Namespace, entities: Sequence[str]) -> dict[str, Counter[str]]:
    """Return how often the primary holds each message, by entity and message id; pings aside."""
    found: dict[str, Counter[str]] = {entity: Counter() for entity in entities}
    for item in peek_everything(primary.connection_string, [PLACES[entity] for entity in entities]):
        if item.content.content_type != PING:
            found[item.key[0]][item.key[1]] += 1
    return found


def opened(primary: Namespace, secondary: Namespace) -> NamespacePair:
    """Return the pair, with health of its own."""
    return NamespacePair(endpoint(primary), endpoint(secondary))


def endpoint(namespace: Namespace) -> Endpoint:
    """Return where the namespace is."""
    return Endpoint.from_connection_string(
        namespace.connection_string, namespace=namespace.name, administration=namespace.administration
    )
