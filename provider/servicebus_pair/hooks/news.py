"""What a task found out about health, told to Airflow as asset events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from servicebus_pair.core.events import Event, HealthChanged
from servicebus_pair.core.health import EntityHealth, State
from servicebus_pair.hooks.assets import failover_asset, health_alias, recovery_asset

__all__ = ["HealthNews", "announce_failover", "announce_recovery"]


class HealthNews:
    """An observer that keeps the failovers and recoveries which this process found itself.

    What it merely learned from the shared store was announced by whoever found it.
    """

    def __init__(self) -> None:
        self.failed_over: dict[str, EntityHealth] = {}
        self.recovered: dict[str, EntityHealth] = {}

    def observe(self, event: Event) -> None:
        """Take note of a change of health that was decided here and now."""
        match event:
            case HealthChanged(entity, before, after, at) if after.since >= at:
                if after.failed_over:
                    self.failed_over[entity] = after
                elif before.failed_over and after.state is State.HEALTHY:
                    self.recovered[entity] = after

    def announce(self, context: Mapping[str, Any], conn_id: str) -> None:
        """Send the asset events of all that was found; Airflow emits them when the task succeeds."""
        for entity, health in self.failed_over.items():
            announce_failover(context, conn_id, entity, health)
        for entity, health in self.recovered.items():
            announce_recovery(context, conn_id, entity, health)


def announce_failover(context: Mapping[str, Any], conn_id: str, entity: str, health: EntityHealth) -> None:
    """Send an event of the failover asset; the task's outlets must hold :func:`health_alias`."""
    context["outlet_events"][health_alias(conn_id)].add(failover_asset(conn_id), extra=_extra(entity, health))


def announce_recovery(context: Mapping[str, Any], conn_id: str, entity: str, health: EntityHealth) -> None:
    """Send an event of the recovery asset; the task's outlets must hold :func:`health_alias`."""
    context["outlet_events"][health_alias(conn_id)].add(recovery_asset(conn_id), extra=_extra(entity, health))


def _extra(entity: str, health: EntityHealth) -> dict[str, Any]:
    return {"entity": entity, "reason": health.reason, "since": health.since, "by": health.by}
