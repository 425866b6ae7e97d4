"""Determines which entities to wait for when a task names none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from servicebus_pair.airflow_runtime.state.health_store import AirflowHealthStore
from servicebus_pair.airflow_runtime.waiting.pair_cache import shared_pair
from servicebus_pair.core.errors import ServiceError
from servicebus_pair.core.model import get_logger
from servicebus_pair.hooks.servicebus_pair import ServiceBusPairHook

__all__ = ["entities_to_wait_for"]

_log = get_logger(__name__)


async def entities_to_wait_for(hook: ServiceBusPairHook, context: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the entities that are failed over or have messages in the backlog or in the spool, sorted.

    The sources are the shared health, the asset events that triggered this run, and a peek into the backlog queues,
    which also finds the messages of senders outside Airflow.

    :raises ServiceError: the secondary cannot be reached, and nothing else names an entity.
    :raises SpoolError: the spool cannot be read.
    """
    conn_id = hook.servicebus_pair_conn_id
    health = await AirflowHealthStore(conn_id).known()
    found = [entity for entity, each in health.items() if each.failed_over]
    found += _named_by_events(context)
    async with shared_pair(hook) as shared:
        found += await shared.spooled(max_age=0.0)
        try:
            found += (await shared.first_page(max_age=0.0)).destinations
        except ServiceError as error:
            if not found:
                raise
            # Both namespaces are down. The drain looks again.
            _log.warning("conn_id=%s: the backlog cannot be read now: %s", conn_id, error)
    return tuple(sorted({entity.casefold() for entity in found}))


def _named_by_events(context: Mapping[str, Any]) -> list[str]:
    """Return the entities named by the asset events that triggered this run, if any did."""
    events = [event for found in (context.get("triggering_asset_events") or {}).values() for event in found]
    extras = [event.extra or {} for event in events]
    named = [extra["entity"] for extra in extras if isinstance(extra.get("entity"), str)]
    payloads = [extra.get("payload") for extra in extras]  # of a BacklogTrigger
    in_backlog = [payload.get("entities", []) for payload in payloads if isinstance(payload, dict)]
    return [*named, *(entity for entities in in_backlog for entity in entities)]
