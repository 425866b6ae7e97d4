"""What the driver looks at before any task begins: whether both namespaces answer, with the rights that a job needs.

Nothing is received, locked or sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Final

from servicebus_pair.core.backlog import backlog_prefix, backlog_queues
from servicebus_pair.core.blocking import Bridge
from servicebus_pair.core.configuration import PairSettings
from servicebus_pair.core.errors import (
    AuthenticationError,
    AuthenticationSuspectError,
    AuthorizationError,
    ConfigurationError,
    EntityNotFoundError,
    ServiceError,
)
from servicebus_pair.core.events import Event, Pinged
from servicebus_pair.core.pair import NamespacePair
from servicebus_pair.spark.redaction import Redaction

__all__ = ["chosen_queues", "look"]

_REFUSALS: Final = frozenset(
    kind.__name__ for kind in (AuthenticationError, AuthenticationSuspectError, AuthorizationError)
)
_PATIENCE: Final = timedelta(seconds=20)
# Each is a link: a backlog for a thousand destinations is to open no thousand at once.
_MOST_ASKED: Final = 32
_ABSENT: Final = EntityNotFoundError.__name__


def chosen_queues(settings: PairSettings, queues: Sequence[str] | None) -> tuple[str, ...]:
    """Answer the backlog queues that a job works on: all in use when none is named; others of the pair may be named.

    :raises ConfigurationError: one is not a backlog queue of this pair.
    """
    if queues is None:
        return backlog_queues(settings.primary.namespace, settings.options.backlog_queue_count)
    prefix = backlog_prefix(settings.primary.namespace).casefold()
    for queue in queues:
        if not queue.casefold().startswith(prefix):
            raise ConfigurationError(f"queue {queue!r} is not a backlog queue of this pair: they begin with {prefix!r}")
    return tuple({queue.casefold(): queue for queue in queues}.values())


def look(
    settings: PairSettings,
    queues: Sequence[str],
    *,
    redaction: Redaction,
    entities: Iterable[str] | None = None,
    sends: bool,
) -> dict[str, str]:
    """Peek into ``queues``, and, where the job ``sends``, open links to some of what their first messages are going to.

    :param entities: look at these destinations only.
    :returns: destinations that do not answer now, with the name of the error; others do.
    :raises ConfigurationError: a queue does not exist or cannot be read, a right is missing, or no destination answers.
    """
    wanted = None if entities is None else list(entities)
    with Bridge() as bridge:
        try:
            silent = bridge.run(_look(settings, queues, wanted, sends=sends))
        except ServiceError as error:
            raise ConfigurationError(
                redaction.clean(f"the backlog cannot be read ({type(error).__name__}: {error}); no task was begun")
            ) from None
    refused = {entity: name for entity, name in silent.items() if name in _REFUSALS}
    if refused:
        raise ConfigurationError(
            f"the primary refuses these credentials the right to send: {_listed(refused)}; no task was begun"
        )
    return silent


async def _look(
    settings: PairSettings, queues: Sequence[str], entities: list[str] | None, *, sends: bool
) -> dict[str, str]:
    answers = _Answers()
    # A link tells what a ping does, and is no message; a short interval would cut its answer short.
    interval = max(settings.options.ping_primary_interval, _PATIENCE)
    options = replace(
        settings.options, enable_syphon=False, ordering="none", probe="link", ping_primary_interval=interval
    )
    async with NamespacePair(settings.primary, settings.secondary, options, observers=[answers]) as pair:
        survey = await pair.syphon(queues, entities=entities).survey(first_page=True)
        if not sends or not survey.destinations:
            return {}
        asked = sorted(survey.destinations)[:_MOST_ASKED]
        await asyncio.gather(*(pair.ping(entity) for entity in asked))
    silent = {entity: name for entity, name in answers.failed.items() if name != _ABSENT}
    if len(silent) == len(asked) and not _REFUSALS & set(silent.values()):
        raise ConfigurationError(f"the primary does not answer: {_listed(silent)}; no task was begun")
    return silent


class _Answers:
    """An observer of what did not answer."""

    def __init__(self) -> None:
        self.failed: dict[str, str] = {}

    def observe(self, event: Event) -> None:
        """Note a link that could not be opened."""
        if isinstance(event, Pinged) and event.error is not None:
            self.failed[event.entity] = event.error


def _listed(failures: dict[str, str]) -> str:
    return ", ".join(f"{entity} ({name})" for entity, name in sorted(failures.items()))
