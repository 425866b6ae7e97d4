"""``ServiceBusPairFailoverOperator`` and ``ServiceBusPairFailbackOperator``: health changed by hand."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Final

from airflow.sdk import Context

from servicebus_pair.core.errors import ConfigurationError, PairError
from servicebus_pair.core.health import EntityHealth
from servicebus_pair.hooks.health import AirflowHealthStore
from servicebus_pair.hooks.news import HealthNews
from servicebus_pair.operators.base import PairOperator
from servicebus_pair.operators.parameters import check_early, duration, paths_of_entities

if TYPE_CHECKING:
    from servicebus_pair.core.pair import NamespacePair

__all__ = ["HealthNotSharedError", "ServiceBusPairFailbackOperator", "ServiceBusPairFailoverOperator"]

_HOUR: Final = timedelta(hours=1)
_hold = duration(timedelta(0), timedelta(days=7))


class HealthNotSharedError(PairError):
    """A change by hand did not reach the store that other tasks read, so it has no effect; a retry may."""

    retriable = True


class _ByHand(PairOperator):
    """Changes the health of entities and sees that other tasks learn of it."""

    template_fields: Collection[str] = ("entities", "reason", "by")
    portal_side: ClassVar = "primary"

    def __init__(self, *, entities: str | Sequence[str], reason: str, by: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.entities = entities
        self.reason = reason
        self.by = by
        check_early("entities", entities, paths_of_entities)
        check_early("reason", reason, _text)
        if by is not None:
            check_early("by", by, _text)

    async def aexecute(self, context: Context) -> dict[str, Any]:
        """Change the health of each entity, share it, and announce what changed."""
        entities = paths_of_entities("entities", self.entities)
        reason, by = _text("reason", self.reason), _who(context) if self.by is None else _text("by", self.by)
        self.check()
        news = HealthNews()
        async with self.hook.pair(observers=[news]) as pair:
            for entity in entities:
                async with pair.sender(entity):
                    pass  # entering it takes over the shared health
            changed = {entity: self.change(pair, entity, reason=reason, by=by) for entity in entities}
        await _see_that_it_is_shared(self.conn_id, changed)
        news.announce(context, self.conn_id)
        found = {entity.casefold() for entity in (*news.failed_over, *news.recovered)}
        for entity, health in changed.items():
            self.log.info("entity=%s health=%s by=%s reason=%s", entity, health.state.value, health.by, health.reason)
        return {
            "changed": [entity for entity in entities if entity.casefold() in found],
            "unchanged": [entity for entity in entities if entity.casefold() not in found],
            "by": by,
            "reason": reason,
        }

    def check(self) -> None:
        """Check further parameters. :raises ConfigurationError: one is wrong."""

    @abstractmethod
    def change(self, pair: NamespacePair, entity: str, *, reason: str, by: str) -> EntityHealth:
        """Change the health of one entity."""


class ServiceBusPairFailoverOperator(_ByHand):
    """Sends what is meant for entities of the primary to the backlog from now on, by hand (SPEC section 4).

    For maintenance that is announced, or for an outage that the sends do not see. Tasks learn of it by
    the pair's shared health, and DAGs on the failover asset are started by an event with ``entity``,
    ``reason``, ``by`` and ``since``. Idempotent: an entity that is failed over already stays so; its
    ``hold`` is renewed, and no event is sent.

    It ends by :class:`ServiceBusPairFailbackOperator`, or after ``hold`` when a ping is answered.

    The result is ``{"changed": [...], "unchanged": [...], "by": ..., "reason": ...}``, entities.

    :param entities: paths of queues or topics: one, several separated by commas, or a list (templated).
    :param reason: why, for the record; no secrets (templated).
    :param by: who, for the record; when not given the user who triggered the run, or the run itself (templated).
    :param hold: for so long no ping ends the failover: a ``timedelta`` or seconds, 0 to 7 days. With 0 it ends with
        the next ping that the primary answers, which is one ``ping_primary_interval`` away (templated).
    :param conn_id: the connection of type ``servicebus_pair``; not a template.
    :raises ConfigurationError: a parameter is wrong; nothing was changed.
    :raises HealthNotSharedError: other tasks cannot know of it.
    """

    template_fields = (*_ByHand.template_fields, "hold")

    def __init__(self, *, hold: timedelta | float | str = _HOUR, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.hold = hold
        check_early("hold", hold, _hold)

    def check(self) -> None:
        """Check ``hold``."""
        _hold("hold", self.hold)

    def change(self, pair: NamespacePair, entity: str, *, reason: str, by: str) -> EntityHealth:
        """Fail over one entity."""
        return pair.fail_over(entity, reason=reason, by=by, hold=_hold("hold", self.hold))


class ServiceBusPairFailbackOperator(_ByHand):
    """Sends what is meant for entities to the primary again, by hand (SPEC section 4).

    Tasks learn of it by the pair's shared health, and DAGs on the recovery asset are started by an
    event. It moves nothing: what waits in the backlog is for the syphon. With ``ordering="session"``
    drain first, or new messages overtake those of the backlog. Idempotent: an entity that is healthy
    stays so, and no event is sent. If the primary is down, sends find that out and fail over again.

    The result is ``{"changed": [...], "unchanged": [...], "by": ..., "reason": ...}``, entities.

    :param entities: paths of queues or topics: one, several separated by commas, or a list (templated).
    :param reason: why, for the record; no secrets (templated).
    :param by: who, for the record; when not given the user who triggered the run, or the run itself (templated).
    :param conn_id: the connection of type ``servicebus_pair``; not a template.
    :raises ConfigurationError: a parameter is wrong; nothing was changed.
    :raises HealthNotSharedError: other tasks cannot know of it.
    """

    def change(self, pair: NamespacePair, entity: str, *, reason: str, by: str) -> EntityHealth:
        """Fail back one entity."""
        return pair.mark_healthy(entity, reason=reason, by=by)


async def _see_that_it_is_shared(conn_id: str, changed: Mapping[str, EntityHealth]) -> None:
    store = AirflowHealthStore(conn_id)
    for entity, health in changed.items():
        known = await store.load(entity)
        # What somebody found out since is newer, and as good.
        if known is None or known.since < health.since or (known.since == health.since and known.state != health.state):
            raise HealthNotSharedError(
                f"{entity} is {health.state.value} by hand, but the state of the asset servicebus-pair://{conn_id} "
                "does not say so: see the log above for why it could not be written, and run the task again"
            )


def _who(context: Mapping[str, Any]) -> str:
    run = context["dag_run"]
    user = getattr(run, "triggering_user_name", None)
    return f"{run.dag_id}/{run.run_id}" if user is None else f"{user} by {run.dag_id}"


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ConfigurationError(f"{name} is {value!r}: it must be a text of at least one character")
    return value
