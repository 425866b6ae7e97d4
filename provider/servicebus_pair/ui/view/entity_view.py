"""Health of each entity, from shared state, task activity and the messages waiting in the backlog."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from servicebus_pair.airflow_runtime.state.health_store import HEALTH_KEY_PREFIX
from servicebus_pair.core import EntityHealth
from servicebus_pair.core.events import Route
from servicebus_pair.core.model import printable
from servicebus_pair.ui.sources.airflow_queries import TaskActivity
from servicebus_pair.ui.sources.collector import PeekResult
from servicebus_pair.ui.views import EntityView

# Values of EntityHealth.by for automatic failovers; any other is a person or a drill.
_AUTOMATIC: Final = ("send", "publish", "ping", "session order")
# A namespace has no more queues and topics.
_MAX_ENTITIES: Final = 10_000
_MAX_CHARACTERS: Final = 1000
_DIVERTED: Final = "Messages are in the backlog, but no task reported a failover: the sender runs outside Airflow."
_ACCEPTED: Final = "The primary accepted all messages that tasks sent."


def build_entity_views(
    state: Mapping[str, Any], peeked: PeekResult, activities: Sequence[TaskActivity], *, grace_seconds: float
) -> list[EntityView]:
    """Return all known entities, sorted by path.

    :param state: asset state of the pair.
    :param activities: tasks of the last day.
    :param grace_seconds: time after a recovery during which senders may still divert, unaware of it.
    """
    counts: dict[str, Counter[str]] = {}
    for activity in activities:
        for entity, routes in activity.counters.get("entities", {}).items():
            counts.setdefault(entity, Counter()).update(dict(zip(Route, routes, strict=False)))
        for entity, drained in activity.counters.get("syphoned_by_entity", {}).items():
            counts.setdefault(entity, Counter()).update(drained=drained)
    stored = {
        key.removeprefix(HEALTH_KEY_PREFIX): value for key, value in state.items() if key.startswith(HEALTH_KEY_PREFIX)
    }
    views = []
    known = list(dict.fromkeys((*peeked.waiting, *stored, *counts)))
    for entity in sorted(known[:_MAX_ENTITIES]):
        sums = counts.get(entity, Counter())
        view = EntityView(
            entity=entity,
            state="unknown",
            waiting=peeked.waiting.get(entity),
            primary=sums["primary"],
            backlog=sums["backlog"],
            spooled=sums["spooled"],
            drained=sums["drained"],
        )
        view = _with_shared_health(view, stored.get(entity))
        views.append(_with_inferred_health(view, peeked.waiting_since.get(entity), grace_seconds))
    return views


def _with_shared_health(view: EntityView, value: Any) -> EntityView:
    if value is None:
        return view
    try:
        health = EntityHealth.from_json(value)
    except (ValueError, AttributeError) as error:
        return replace(view, state="unreadable", reason=printable(str(error)[:_MAX_CHARACTERS]))
    return replace(
        view,
        state=health.state.value,
        since=health.since if health.since > 0 else None,
        by=printable(health.by),
        reason=printable(health.reason),
        by_hand=health.failed_over and health.by not in _AUTOMATIC,
        last_ping=health.last_ping,
        held_until=health.held_until,
    )


def _with_inferred_health(view: EntityView, waiting_since: float | None, grace_seconds: float) -> EntityView:
    """Infer the health from messages where no task shared it, or not since."""
    if view.state not in ("unknown", "healthy"):
        return view
    if view.waiting and (
        view.since is None or (waiting_since is not None and waiting_since > view.since + grace_seconds)
    ):
        return replace(view, state="diverted", since=waiting_since, by="", reason=_DIVERTED)
    # Tasks share health only when it changes, so a task that sent to the primary and shared none found it healthy.
    if view.state == "unknown" and not view.waiting and (view.drained or (view.primary and not view.backlog)):
        return replace(view, state="healthy", reason=_ACCEPTED)
    return view
