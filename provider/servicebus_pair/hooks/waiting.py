"""Waiting until the primary answers: what the sensor, the syphon operator and the trigger share."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from servicebus_pair.core import errors
from servicebus_pair.core.events import Event, Pinged

if TYPE_CHECKING:
    from servicebus_pair.core.pair import NamespacePair

__all__ = ["PrimaryWait", "check_interval"]

_log = logging.getLogger(__name__)
_ANSWERED: Final = "answered"


class PrimaryWait:
    """Which entities of the primary have answered a ping so far; an observer of the pair it waits on.

    An entity has answered when it accepted a ping, or when the service refused it for a reason
    that no waiting changes (no such entity, a right is missing): the primary is there.

    :param entities: paths of queues and topics.
    """

    def __init__(self, entities: Iterable[str]) -> None:
        self._missing = {entity.casefold() for entity in entities}
        self._progress = asyncio.Event()
        self.answered: list[str] = []
        self.refused: dict[str, str] = {}

    @property
    def done(self) -> bool:
        """True when nothing is left to wait for."""
        return not self._missing

    def observe(self, event: Event) -> None:
        """Take note of a ping, whoever sent it."""
        if not isinstance(event, Pinged) or event.entity.casefold() not in self._missing:
            return
        entity = event.entity.casefold()
        if event.error is None:
            self.answered.append(entity)
        elif _final(event.error):
            self.refused[entity] = event.error
        else:
            _log.info("entity=%s: no answer to a ping, %s after %.1f s", entity, event.error, event.seconds)
            return
        _log.info("entity=%s: the primary answers (%s)", entity, event.error or _ANSWERED)
        self._missing.discard(entity)
        self._progress.set()

    async def begin(self, pair: NamespacePair) -> None:
        """Learn what is shared of each entity and ping each once, all at the same time.

        :param pair: a pair of which this object is an observer.
        """
        for entity in sorted(self._missing):
            async with pair.sender(entity):
                pass  # entering it takes over the shared health
        await self._round(pair)

    async def wait(self, pair: NamespacePair, *, interval: float) -> None:
        """Ping until every entity has answered; entities known as failed over are pinged by the pair itself.

        :param interval: seconds between two rounds.
        """
        await self.begin(pair)
        while not self.done:
            self._progress.clear()
            try:
                await asyncio.wait_for(self._progress.wait(), interval)
            except TimeoutError:
                await self._round(pair, only_healthy=True)

    async def _round(self, pair: NamespacePair, *, only_healthy: bool = False) -> None:
        chosen = [each for each in self._missing if not (only_healthy and pair.health(each).failed_over)]
        await asyncio.gather(*(pair.ping(entity) for entity in chosen))


def check_interval(name: str, seconds: float) -> float:
    """Return ``seconds`` if it is a pause of at least one second.

    :raises ConfigurationError: naming the parameter, its value and what is allowed.
    """
    if not 1 <= seconds <= 3600:  # noqa: PLR2004  said in the message
        raise errors.ConfigurationError(f"{name} is {seconds!r}: allowed are 1 to 3600 seconds")
    return float(seconds)


def _final(error: str) -> bool:
    kind = getattr(errors, error, errors.ServiceFaultError)
    return not (kind.retriable or kind.fails_over)
