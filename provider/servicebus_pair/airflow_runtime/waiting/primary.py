"""Waits until entities of the primary answer; shared by the sensor, the syphon operator and the trigger."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextvars import copy_context
from typing import Any

from servicebus_pair.airflow_runtime.state.health_store import AirflowHealthStore
from servicebus_pair.airflow_runtime.validators import optional_path_list
from servicebus_pair.airflow_runtime.waiting.pair_cache import SharedPair, shared_pair
from servicebus_pair.core import errors
from servicebus_pair.core.events import Event, Pinged
from servicebus_pair.core.model import get_logger, secret_kind
from servicebus_pair.hooks.servicebus_pair import ServiceBusPairHook

_log = get_logger(__name__)


class PrimaryWait:
    """Observer that tracks which entities have answered a ping.

    An entity has answered when it accepted a ping, or when the service refused the ping for a reason that does not
    pass by waiting (no such entity, a missing right): both show that the primary is up.

    :param entities: paths of queues and topics.
    """

    def __init__(self, entities: Iterable[str]) -> None:
        # Airflow selects a trigger's log by the context. Pings run in a context of their own, so log lines must be
        # written in the context of the task or trigger that waits.
        self._context = copy_context()
        self._pending = {entity.casefold() for entity in entities}
        self._answer_arrived = asyncio.Event()
        self._failed_pings: Counter[str] = Counter()
        self.answered: list[str] = []
        self.refused: dict[str, str] = {}

    @property
    def done(self) -> bool:
        """True when every entity has answered."""
        return not self._pending

    def observe(self, event: Event) -> None:
        """Record the outcome of a ping, whichever waiter sent it."""
        if isinstance(event, Pinged) and event.entity.casefold() in self._pending:
            self._context.run(self._record, event.entity.casefold(), event)

    def _record(self, entity: str, event: Pinged) -> None:
        if event.error is None:
            self.answered.append(entity)
        elif _is_permanent(event.error):
            self.refused[entity] = event.error
        else:
            self._failed_pings[entity] += 1
            self._log_failure(entity, event)
            return
        _log.info("entity=%s: the primary answers (%s)", entity, event.error or "answered")
        self._pending.discard(entity)
        self._answer_arrived.set()

    def _log_failure(self, entity: str, event: Pinged) -> None:
        count = self._failed_pings[entity]
        # Pings 1, 2, 4, 8 and so on, since an outage may last for hours.
        level = logging.INFO if count & (count - 1) == 0 else logging.DEBUG
        _log.log(level, "entity=%s: no answer to ping %d, %s after %.1f s", entity, count, event.error, event.seconds)

    async def wait(self, shared: SharedPair, *, interval: float) -> None:
        """Ping until every entity has answered; the pair itself pings entities that are failed over.

        :param interval: seconds between two rounds.
        """
        await self.ping_once(shared, interval=interval)
        while not self.done:
            self._answer_arrived.clear()
            try:
                await asyncio.wait_for(self._answer_arrived.wait(), interval)
            except TimeoutError:
                await self.ping_once(shared, interval=interval, skip_failed_over=True)

    async def ping_once(self, shared: SharedPair, *, interval: float, skip_failed_over: bool = False) -> None:
        """Ping all pending entities concurrently, once.

        :param shared: the pair that this object observes.
        :param interval: use another waiter's ping that ended at most this many seconds ago.
        """
        to_ping = []
        for entity in tuple(self._pending):
            recent = shared.last_ping(entity, max_age=interval)
            if recent is not None:
                self.observe(recent)
            elif not (skip_failed_over and shared.pair.health(entity).failed_over):
                to_ping.append(entity)
        await asyncio.gather(*(shared.ping(entity) for entity in to_ping))


def _is_permanent(error: str) -> bool:
    kind = getattr(errors, error, errors.ServiceFaultError)
    return not (kind.retriable or kind.triggers_failover)


async def entities_to_wait_for(hook: ServiceBusPairHook, context: Mapping[str, Any], *, named: Any) -> Sequence[str]:
    """Return those that a task names, or else those that are failed over or have messages in the backlog or the spool.

    The sources are the shared health, the asset events that triggered this run, and a peek into the backlog queues,
    which also finds the messages of senders outside Airflow.

    :param named: the parameter ``entities`` of the task.
    :raises ConfigurationError: it is invalid.
    :raises ServiceError: the secondary cannot be reached, and nothing else names an entity.
    :raises SpoolError: the spool cannot be read.
    """
    given = optional_path_list("entities", named)
    if given is not None:
        return given
    conn_id = hook.servicebus_pair_conn_id
    health = await AirflowHealthStore(conn_id).known()
    found = [entity for entity, each in health.items() if each.failed_over]
    found += _named_by_events(context)
    async with shared_pair(hook) as shared:
        found += await shared.spooled(max_age=0.0)
        try:
            found += (await shared.first_page(max_age=0.0)).destinations
        except errors.ServiceError as error:
            if not found:
                raise
            # Both namespaces are down. The drain looks again.
            _log.warning("conn_id=%s: the backlog cannot be read now: %s", conn_id, error)
    # No entity has the name of a secret, and a trigger would refuse it with all others.
    return tuple(sorted({entity.casefold() for entity in found if secret_kind(entity.casefold()) is None}))


def _named_by_events(context: Mapping[str, Any]) -> list[str]:
    """Return the entities named by the asset events that triggered this run, if any did."""
    events = [event for found in (context.get("triggering_asset_events") or {}).values() for event in found]
    extras = [event.extra or {} for event in events]
    named = [extra["entity"] for extra in extras if isinstance(extra.get("entity"), str)]
    payloads = [extra.get("payload") for extra in extras]  # of a BacklogTrigger
    in_backlog = [payload.get("entities", []) for payload in payloads if isinstance(payload, dict)]
    listed = [entities for entities in in_backlog if isinstance(entities, list)]
    return [*named, *(entity for entities in listed for entity in entities if isinstance(entity, str))]
