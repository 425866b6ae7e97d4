"""Checks on the driver before any task starts: arguments, queue names, connectivity and permissions.

Nothing is received, locked or sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace
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
from servicebus_pair.core.protocol import backlog_prefixes, queues_in_use
from servicebus_pair.spark.base.redaction import Redaction

__all__ = ["check_access", "check_job", "select_queues"]

_PERMISSION_ERRORS: Final = frozenset(
    kind.__name__ for kind in (AuthenticationError, AuthenticationSuspectError, AuthorizationError)
)
_NOT_FOUND: Final = EntityNotFoundError.__name__
_MIN_PING_INTERVAL: Final = timedelta(seconds=20)
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


def check_access(
    settings: PairSettings,
    queues: Sequence[str],
    *,
    redaction: Redaction,
    entities: Iterable[str] | None = None,
    sends: bool,
) -> dict[str, str]:
    """Peek the backlog queues and, if the job ``sends``, open links to the destinations of their first messages.

    :param entities: check only these destinations.
    :returns: error names by destination, for destinations that do not respond now.
    :raises ConfigurationError: a queue does not exist or cannot be read, a permission is missing, or no destination
        responds.
    """
    destinations = None if entities is None else list(entities)
    with SyncBridge() as bridge:
        try:
            unavailable = bridge.run(_find_unavailable(settings, queues, destinations, sends=sends))
        except ServiceError as error:
            raise ConfigurationError(
                redaction.clean(f"the backlog cannot be read ({type(error).__name__}: {error}); no task was started")
            ) from None
    forbidden = {entity: name for entity, name in unavailable.items() if name in _PERMISSION_ERRORS}
    if forbidden:
        raise ConfigurationError(
            f"these credentials lack the Send permission on the primary: {_format(forbidden)}; no task was started"
        )
    return unavailable


async def _find_unavailable(
    settings: PairSettings, queues: Sequence[str], entities: list[str] | None, *, sends: bool
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
        if not sends or not survey.destinations:
            return {}
        probed = sorted(survey.destinations)[:_MAX_PROBED_ENTITIES]
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
