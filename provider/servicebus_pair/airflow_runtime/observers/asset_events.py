"""Emits asset events for the failovers and recoveries that a task detects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from servicebus_pair.assets import failover_asset, health_alias, recovery_asset
from servicebus_pair.core import EntityHealth, HealthState
from servicebus_pair.core.events import Event, HealthChanged


class HealthChangeRecorder:
    """Observer that records the failovers and recoveries which this process detected itself.

    Changes loaded from the shared store are left out: the process that detected them emits their events.
    """

    def __init__(self) -> None:
        self.failed_over: dict[str, EntityHealth] = {}
        self.recovered: dict[str, EntityHealth] = {}

    def observe(self, event: Event) -> None:
        """Record a health change that was decided in this process."""
        match event:
            # Health that was loaded from the store became valid before the event that reports it.
            case HealthChanged(entity, before, after, at) if after.since >= at:
                if after.failed_over and not before.failed_over:
                    self.failed_over[entity] = after
                elif before.failed_over and after.state is HealthState.HEALTHY:
                    self.recovered[entity] = after

    def emit(self, context: Mapping[str, Any], conn_id: str) -> None:
        """Attach an asset event for each recorded change; Airflow publishes them when the task succeeds."""
        for entity, health in self.failed_over.items():
            emit_failover(context, conn_id, entity, health)
        for entity, health in self.recovered.items():
            emit_recovery(context, conn_id, entity, health)


def emit_failover(context: Mapping[str, Any], conn_id: str, entity: str, health: EntityHealth) -> None:
    """Attach an event of the failover asset; :func:`health_alias` must be among the task's outlets."""
    context["outlet_events"][health_alias(conn_id)].add(failover_asset(conn_id), extra=_extra(entity, health))


def emit_recovery(context: Mapping[str, Any], conn_id: str, entity: str, health: EntityHealth) -> None:
    """Attach an event of the recovery asset; :func:`health_alias` must be among the task's outlets."""
    context["outlet_events"][health_alias(conn_id)].add(recovery_asset(conn_id), extra=_extra(entity, health))


def _extra(entity: str, health: EntityHealth) -> dict[str, Any]:
    return {"entity": entity, "reason": health.reason, "since": health.since, "by": health.by}
