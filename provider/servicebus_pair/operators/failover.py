"""``ServiceBusPairFailoverOperator`` and ``ServiceBusPairFailbackOperator``: manual failover and failback."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Final

from airflow.sdk import Context

from servicebus_pair.airflow_runtime.observers.asset_events import HealthChangeRecorder
from servicebus_pair.airflow_runtime.validators import duration, entity_paths, optional, text
from servicebus_pair.core.errors import PairError
from servicebus_pair.operators._support.base import AsyncPairOperator

if TYPE_CHECKING:
    from servicebus_pair.core import NamespacePair

__all__ = ["HealthNotSharedError", "ServiceBusPairFailbackOperator", "ServiceBusPairFailoverOperator"]

_HOUR: Final = timedelta(hours=1)
_hold = duration(timedelta(0), timedelta(days=7))


class HealthNotSharedError(PairError):
    """A manual change could not be written to the shared store, so other tasks do not see it; retry the task."""

    retriable = True


class _ManualHealthOperator(AsyncPairOperator):
    """Changes the health of entities and verifies that other tasks can read the change."""

    template_fields: Collection[str] = ("entities", "reason", "by")
    parameter_checks: ClassVar = {"entities": entity_paths, "reason": text, "by": optional(text)}
    portal_side: ClassVar = "primary"

    def __init__(self, *, entities: str | Sequence[str], reason: str, by: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.entities = entities
        self.reason = reason
        self.by = by
        self.check_parameters()

    async def aexecute(self, context: Context) -> dict[str, Any]:
        """Change the health of each entity, share it, and emit asset events for the changes."""
        entities = entity_paths("entities", self.entities)
        reason = text("reason", self.reason)
        by = _default_actor(context) if self.by is None else text("by", self.by)
        health_changes = HealthChangeRecorder()
        async with self.hook.pair(observers=[health_changes]) as pair:
            for entity in entities:
                async with pair.sender(entity):
                    pass  # opening it loads the shared health
            stored = {entity: await self.change(pair, entity, reason=reason, by=by) for entity in entities}
            changed = {entity: pair.health(entity) for entity in entities}
        for entity in entities:
            if not stored[entity]:
                raise HealthNotSharedError(
                    f"{entity} is {changed[entity].state.value} in this task, but it could not be written to the state "
                    f"of the asset servicebus-pair://{self.servicebus_pair_conn_id}, so other tasks do not see it: "
                    "see the log above for the reason, and run the task again"
                )
        health_changes.emit(context, self.servicebus_pair_conn_id)
        changed_here = {entity.casefold() for entity in (*health_changes.failed_over, *health_changes.recovered)}
        for entity, health in changed.items():
            self.log.info("entity=%r health=%s by=%r reason=%r", entity, health.state.value, health.by, health.reason)
        return {
            "changed": [entity for entity in entities if entity.casefold() in changed_here],
            "unchanged": [entity for entity in entities if entity.casefold() not in changed_here],
            "by": by,
            "reason": reason,
        }

    @abstractmethod
    async def change(self, pair: NamespacePair, entity: str, *, reason: str, by: str) -> bool:
        """Change the health of one entity; return whether other tasks can read it."""


class ServiceBusPairFailoverOperator(_ManualHealthOperator):
    """Fails entities over manually: their messages are sent to the backlog from now on (SPEC section 4).

    Use it for planned maintenance, or for an outage that sends do not detect. Tasks learn of it through the pair's
    shared health; DAGs scheduled on the failover asset are started by an event with ``entity``, ``reason``, ``by`` and
    ``since``. Idempotent: an entity that is already failed over stays so, its ``hold`` is renewed, and no event is
    emitted.

    The failover ends with :class:`ServiceBusPairFailbackOperator`, or with the first answered ping after ``hold``.

    The result is ``{"changed": [...], "unchanged": [...], "by": ..., "reason": ...}``; the lists hold entities.

    :param entities: paths of queues or topics: one, several separated by commas, or a list (templated).
    :param reason: why, for the record; no secrets (templated).
    :param by: who, for the record; when not given, the user who triggered the run, or the run itself (templated).
    :param hold: for how long pings do not end the failover: a ``timedelta`` or seconds, 0 to 7 days. With 0 it ends
        with the next answered ping, one ``ping_primary_interval`` away (templated).
    :param servicebus_pair_conn_id: the connection of type ``servicebus_pair``; not a template.
    :raises ConfigurationError: a parameter is invalid; nothing was changed.
    :raises HealthNotSharedError: the change could not be shared with other tasks.
    """

    template_fields = (*_ManualHealthOperator.template_fields, "hold")
    parameter_checks: ClassVar = {"hold": _hold}

    def __init__(self, *, hold: timedelta | float | str = _HOUR, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.hold = hold
        self.check_parameters()

    async def aexecute(self, context: Context) -> dict[str, Any]:
        """Check ``hold`` before anything is changed."""
        _hold("hold", self.hold)
        return await super().aexecute(context)

    async def change(self, pair: NamespacePair, entity: str, *, reason: str, by: str) -> bool:
        """Fail over one entity."""
        return await pair.fail_over(entity, reason=reason, by=by, hold=_hold("hold", self.hold))


class ServiceBusPairFailbackOperator(_ManualHealthOperator):
    """Fails entities back manually: their messages are sent to the primary again (SPEC section 4).

    Tasks learn of it through the pair's shared health; DAGs scheduled on the recovery asset are started by an event.
    It drains nothing: use the syphon operator for that. With ``ordering="session"``, drain first, or new messages
    overtake those in the backlog. Idempotent: a healthy entity stays so, and no event is emitted. If the primary is
    down, the next sends detect that and fail over again.

    The result is ``{"changed": [...], "unchanged": [...], "by": ..., "reason": ...}``; the lists hold entities.

    :param entities: paths of queues or topics: one, several separated by commas, or a list (templated).
    :param reason: why, for the record; no secrets (templated).
    :param by: who, for the record; when not given, the user who triggered the run, or the run itself (templated).
    :param servicebus_pair_conn_id: the connection of type ``servicebus_pair``; not a template.
    :raises ConfigurationError: a parameter is invalid; nothing was changed.
    :raises HealthNotSharedError: the change could not be shared with other tasks.
    """

    async def change(self, pair: NamespacePair, entity: str, *, reason: str, by: str) -> bool:
        """Fail back one entity."""
        return await pair.mark_healthy(entity, reason=reason, by=by)


def _default_actor(context: Mapping[str, Any]) -> str:
    run = context["dag_run"]
    user = getattr(run, "triggering_user_name", None)
    return f"{run.dag_id}/{run.run_id}" if user is None else f"{user} by {run.dag_id}"
