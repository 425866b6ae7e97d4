"""Checks on the driver before any task starts: arguments, queue names, connectivity and permissions.

Nothing is received, locked or sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from math import inf
from typing import Final

from pyspark.sql import SparkSession

from servicebus_pair.core import NamespacePair, PairSettings, SyncBridge
from servicebus_pair.core.errors import (
    AuthenticationError,
    AuthenticationSuspectError,
    AuthorizationError,
    ConfigurationError,
    EntityNotFoundError,
    ServiceError,
)
from servicebus_pair.core.events import Event, Pinged
from servicebus_pair.core.protocol import backlog_prefixes, entity_of_session, is_session_queue, queues_in_use
from servicebus_pair.core.sdk import NamespaceClient
from servicebus_pair.spark.base.redaction import Redaction

_PERMISSION_ERRORS: Final = frozenset(
    kind.__name__ for kind in (AuthenticationError, AuthenticationSuspectError, AuthorizationError)
)
_NOT_FOUND: Final = EntityNotFoundError.__name__
_MIN_PING_INTERVAL: Final = timedelta(seconds=20)
_SESSION_TIMEOUT: Final = 30.0
# Each probe opens a link: a backlog for a thousand destinations must not open a thousand at once.
_MAX_PROBED_ENTITIES: Final = 32


def check_job(spark: SparkSession, *, rate: float | None, **counts: int | None) -> None:
    """Check the arguments of a job that sends, and that speculative execution is off.

    :raises ConfigurationError: an argument is too small, or speculation is on.
    """
    if rate is not None and not 0 < rate < inf:
        raise ConfigurationError(f"rate is {rate}: it must be more than 0 messages per second")
    for name, count in counts.items():
        if count is not None and count < 1:
            raise ConfigurationError(f"{name} is {count}: it must be at least 1")
    if spark.sparkContext.getConf().get("spark.speculation", "false").lower() == "true":
        raise ConfigurationError("spark.speculation is true: set it to false, a speculative task would send twice")


def select_queues(settings: PairSettings, queues: Sequence[str] | None) -> tuple[str, ...]:
    """Return the backlog queues that a job works on.

    :param queues: any backlog queues of the pair, including ones no longer in use; ``None`` selects all in use, with
        ``ordering="session"`` those that require sessions as well.
    :raises ConfigurationError: a queue is not a backlog queue of this pair.
    """
    if queues is None:
        return queues_in_use(settings.primary.namespace, settings.options)
    prefixes = backlog_prefixes(settings.primary.namespace)
    for queue in queues:
        if not queue.casefold().startswith(prefixes):
            raise ConfigurationError(
                f"queue {queue!r} is not a backlog queue of this pair: they begin with "
                f"{' or '.join(map(repr, prefixes))}"
            )
    return tuple({queue.casefold(): queue for queue in queues}.values())


@dataclass(frozen=True, slots=True)
class Access:
    """What the checks found.

    :param unavailable: error names by destination, for destinations that do not respond now.
    :param sessions: ids of the sessions in backlog queues that require them.
    """

    unavailable: Mapping[str, str]
    sessions: tuple[str, ...] = ()


def check_access(
    settings: PairSettings,
    queues: Sequence[str],
    *,
    redaction: Redaction,
    entities: Iterable[str] | None = None,
    sends: bool,
) -> Access:
    """Peek the backlog queues and, if the job ``sends``, open links to the destinations of their first messages.

    :param entities: check only these destinations.
    :raises ConfigurationError: a queue does not exist or cannot be read, a permission is missing, or no destination
        responds.
    """
    destinations = None if entities is None else list(entities)
    with SyncBridge() as bridge:
        try:
            access = bridge.run(_check(settings, queues, destinations, sends=sends))
        except ServiceError as error:
            raise ConfigurationError(
                redaction.clean(f"the backlog cannot be read ({type(error).__name__}: {error}); no task was started")
            ) from None
    forbidden = {entity: name for entity, name in access.unavailable.items() if name in _PERMISSION_ERRORS}
    if forbidden:
        raise ConfigurationError(
            f"these credentials lack the Send permission on the primary: {_format(forbidden)}; no task was started"
        )
    return access


async def _check(settings: PairSettings, queues: Sequence[str], entities: list[str] | None, *, sends: bool) -> Access:
    by_session = [queue for queue in queues if is_session_queue(settings.primary.namespace, queue)]
    unordered = [queue for queue in queues if queue not in by_session]
    sessions = await _list_sessions(settings, by_session)
    unavailable = await _find_unavailable(settings, unordered, sessions, entities, sends=sends)
    return Access(unavailable, sessions)


async def _list_sessions(settings: PairSettings, queues: Sequence[str]) -> tuple[str, ...]:
    client = NamespaceClient(settings.secondary)
    try:
        listed = await asyncio.gather(*(client.list_sessions(queue, timeout=_SESSION_TIMEOUT) for queue in queues))
    finally:
        await client.close()
    return tuple(sorted({session_id for ids in listed for session_id in ids}))


async def _find_unavailable(
    settings: PairSettings,
    queues: Sequence[str],
    sessions: Iterable[str],
    entities: list[str] | None,
    *,
    sends: bool,
) -> dict[str, str]:
    errors = _PingErrors()
    options = replace(
        settings.options,
        enable_syphon=False,
        ordering="none",
        # Opening a link proves what a ping proves, without a billed message.
        probe="link",
        # The interval bounds the wait for a link, and a short one would end it too early.
        ping_primary_interval=max(settings.options.ping_primary_interval, _MIN_PING_INTERVAL),
    )
    async with NamespacePair(settings.primary, settings.secondary, options, observers=[errors]) as pair:
        survey = await pair.syphon(queues, entities=entities).survey(first_page=True)
        named = {entity for entity in map(entity_of_session, sessions) if entity is not None}
        if entities is not None:
            named &= {entity.casefold() for entity in entities}
        known = {entity.casefold() for entity in survey.destinations}
        probed = sorted({*survey.destinations, *(named - known)})[:_MAX_PROBED_ENTITIES]
        if not sends or not probed:
            return {}
        await asyncio.gather(*(pair.ping(entity) for entity in probed))
    # The drain dead-letters messages whose destination does not exist, so that is no reason to stop here.
    unavailable = {entity: name for entity, name in errors.by_entity.items() if name != _NOT_FOUND}
    if len(unavailable) == len(probed) and not _PERMISSION_ERRORS & set(unavailable.values()):
        raise ConfigurationError(f"the primary does not respond: {_format(unavailable)}; no task was started")
    return unavailable


class _PingErrors:
    """Observer that collects failed pings."""

    def __init__(self) -> None:
        self.by_entity: dict[str, str] = {}

    def observe(self, event: Event) -> None:
        """Record the error of a failed ping."""
        if isinstance(event, Pinged) and event.error is not None:
            self.by_entity[event.entity] = event.error


def _format(errors: dict[str, str]) -> str:
    return ", ".join(f"{entity} ({name})" for entity, name in sorted(errors.items()))
