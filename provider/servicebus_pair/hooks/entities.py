"""Which entities of the primary somebody waits for, when nobody names them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from servicebus_pair.hooks.health import AirflowHealthStore
from servicebus_pair.hooks.servicebus_pair import ServiceBusPairHook
from servicebus_pair.hooks.sharing import watched_pair

__all__ = ["entities_in_question"]


async def entities_in_question(conn_id: str, context: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the entities that are known to be failed over or have messages in the backlog, by name.

    They come from the health that tasks shared, from the asset events that started this run, and
    from peeking at the backlog queues, where senders that Airflow does not know leave theirs.

    :raises ServiceError: the secondary cannot be reached.
    """
    async with watched_pair(ServiceBusPairHook(conn_id)) as watched:
        waiting = (await watched.glimpse(young=0.0)).destinations
    shared = await AirflowHealthStore(conn_id).known()
    failed_over = [entity for entity, health in shared.items() if health.failed_over]
    found = [*failed_over, *_announced(context), *waiting]
    return tuple(sorted({entity.casefold() for entity in found}))


def _announced(context: Mapping[str, Any]) -> list[str]:
    """The entities named by the asset events that started this run, if events did."""
    events = [event for found in (context.get("triggering_asset_events") or {}).values() for event in found]
    extras = [event.extra or {} for event in events]
    named = [extra["entity"] for extra in extras if isinstance(extra.get("entity"), str)]
    payloads = [extra.get("payload") for extra in extras]
    watched = [payload.get("entities", []) for payload in payloads if isinstance(payload, dict)]
    return [*named, *(entity for entities in watched for entity in entities)]
