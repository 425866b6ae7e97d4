"""Which entities of the primary somebody waits for, when nobody names them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from servicebus_pair.core.backlog import backlog_queues
from servicebus_pair.core.configuration import PairSettings
from servicebus_pair.hooks.health import AirflowHealthStore
from servicebus_pair.hooks.servicebus_pair import ServiceBusPairHook

__all__ = ["backlog_destinations", "entities_in_question"]

_PEEK_SECONDS: Final = 10.0
_PEEKED_MESSAGES: Final = 100


async def entities_in_question(conn_id: str, context: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the entities that are known to be failed over or have messages in the backlog, by name.

    They come from the health that tasks shared, from the asset events that started this run, and
    from peeking at the backlog queues, where senders that Airflow does not know leave theirs.

    :raises ServiceError: the secondary cannot be reached.
    """
    settings = await ServiceBusPairHook(conn_id).aget_settings()
    shared = await AirflowHealthStore(conn_id).known()
    failed_over = [entity for entity, health in shared.items() if health.failed_over]
    found = [*failed_over, *_announced(context), *await backlog_destinations(settings)]
    return tuple(sorted({entity.casefold() for entity in found}))


async def backlog_destinations(settings: PairSettings) -> tuple[str, ...]:
    """Return the entities to which the first 100 messages of each backlog queue are going.

    :raises ServiceError: the secondary cannot be reached.
    """
    from servicebus_pair.core.clients import NamespaceClient

    client = NamespaceClient(settings.secondary)
    try:
        queues = backlog_queues(settings.primary.namespace, settings.options.backlog_queue_count)
        peeked = await asyncio.gather(*(_destinations(client, queue) for queue in queues))
    finally:
        await client.close()
    return tuple(sorted(set().union(*peeked)))


async def _destinations(client: Any, queue: str) -> set[str]:
    from servicebus_pair.core.envelope import unwrap
    from servicebus_pair.core.errors import EntityNotFoundError, UndeliverableError

    found: set[str] = set()
    link = client.receive_link(queue)
    try:
        messages = await link.peek(most=_PEEKED_MESSAGES, timeout=_PEEK_SECONDS)
    except EntityNotFoundError:  # not provisioned yet, so nothing can be in it
        return found
    finally:
        await link.close()
    for message in messages:
        try:
            found.add(unwrap(message.raw_amqp_message).entity.casefold())
        except UndeliverableError:  # it has no destination; the drain dead-letters it
            continue
    return found


def _announced(context: Mapping[str, Any]) -> list[str]:
    """The entities named by the asset events that started this run, if events did."""
    events = [event for found in (context.get("triggering_asset_events") or {}).values() for event in found]
    extras = [event.extra or {} for event in events]
    named = [extra["entity"] for extra in extras if isinstance(extra.get("entity"), str)]
    payloads = [extra.get("payload") for extra in extras]
    watched = [payload.get("entities", []) for payload in payloads if isinstance(payload, dict)]
    return [*named, *(entity for entities in watched for entity in entities)]
