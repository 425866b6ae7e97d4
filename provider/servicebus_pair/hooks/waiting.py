"""Waiting until the primary answers: what the sensor, the syphon operator and the trigger share."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from contextvars import copy_context
from typing import Final

from servicebus_pair.core import errors
from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.core.events import Event, Pinged
from servicebus_pair.hooks.sharing import WatchedPair

__all__ = ["SHORTEST_DEFERRAL_SECONDS", "PrimaryWait", "check_interval", "check_names"]

_log = logging.getLogger(__name__)
_ANSWERED: Final = "answered"
# A task that resumes before the executor has seen it leave is failed by the scheduler (measured, Airflow 3.3.2).
SHORTEST_DEFERRAL_SECONDS: Final = 3.0


class PrimaryWait:
    """Which entities of the primary have answered a ping so far; a listener of the pair it waits on.

    An entity has answered when it accepted a ping, or when the service refused it for a reason
    that no waiting changes (no such entity, a right is missing): the primary is there.

    What it logs goes where the task that made it logs, whoever else pinged.

    :param entities: paths of queues and topics.
    """

    def __init__(self, entities: Iterable[str]) -> None:
        # Airflow finds a trigger's log by the context; that of the ping belongs to none of those who wait.
        self._context = copy_context()
        self._missing = {entity.casefold() for entity in entities}
        self._progress = asyncio.Event()
        self._unanswered: Counter[str] = Counter()
        self.answered: list[str] = []
        self.refused: dict[str, str] = {}

    @property
    def done(self) -> bool:
        """True when nothing is left to wait for."""
        return not self._missing

    def observe(self, event: Event) -> None:
        """Take note of a ping, whoever sent it."""
        if isinstance(event, Pinged) and event.entity.casefold() in self._missing:
            self._context.run(self._note, event.entity.casefold(), event)

    def _note(self, entity: str, event: Pinged) -> None:
        if event.error is None:
            self.answered.append(entity)
        elif _final(event.error):
            self.refused[entity] = event.error
        else:
            self._unanswered[entity] += 1
            self._tell(entity, event)
            return
        _log.info("entity=%s: the primary answers (%s)", entity, event.error or _ANSWERED)
        self._missing.discard(entity)
        self._progress.set()

    def _tell(self, entity: str, event: Pinged) -> None:
        count = self._unanswered[entity]
        # Ever rarer: pings 1, 2, 4, 8 and so on, since an outage may last for hours.
        level = logging.INFO if count & (count - 1) == 0 else logging.DEBUG
        _log.log(level, "entity=%s: no answer to ping %d, %s after %.1f s", entity, count, event.error, event.seconds)

    async def begin(self, watched: WatchedPair, *, interval: float) -> None:
        """Ping each entity once, all at the same time; a ping that others have just sent serves too.

        :param watched: a pair to which this object listens.
        :param interval: seconds for which a ping's answer is believed.
        """
        await self._round(watched, interval)

    async def wait(self, watched: WatchedPair, *, interval: float) -> None:
        """Ping until every entity has answered; entities known as failed over are pinged by the pair itself.

        :param interval: seconds between two rounds.
        """
        await self.begin(watched, interval=interval)
        while not self.done:
            self._progress.clear()
            try:
                await asyncio.wait_for(self._progress.wait(), interval)
            except TimeoutError:
                await self._round(watched, interval, only_healthy=True)

    async def _round(self, watched: WatchedPair, interval: float, *, only_healthy: bool = False) -> None:
        chosen = []
        for entity in tuple(self._missing):
            known = watched.last_ping(entity, young=interval)
            if known is not None:
                self.observe(known)
            elif not (only_healthy and watched.pair.health(entity).failed_over):
                chosen.append(entity)
        await asyncio.gather(*(watched.ping(entity) for entity in chosen))


def check_interval(name: str, seconds: object) -> float:
    """Return ``seconds`` if it is a number, and a pause of a second to an hour.

    :raises ConfigurationError: naming the parameter, its value and what is allowed.
    """
    if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not 1 <= seconds <= 3600:  # noqa: PLR2004
        raise ConfigurationError(f"{name} is {seconds!r}: allowed are 1 to 3600 seconds")
    return float(seconds)


def check_names(name: str, values: object) -> Sequence[str]:
    """Return ``values`` if it is a list of paths, as a rendered template may not be.

    :raises ConfigurationError: naming the parameter, its value and what is allowed.
    """
    if not isinstance(values, list | tuple) or not all(isinstance(value, str) and value for value in values):
        raise ConfigurationError(f"{name} is {values!r}: it must be a list of paths of at least one character")
    return values


def _final(error: str) -> bool:
    kind = getattr(errors, error, errors.ServiceFaultError)
    return not (kind.retriable or kind.fails_over)
