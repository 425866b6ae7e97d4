"""Sending what is in hand to one entity of the primary: packed, halved where a message is refused (SPEC section 6)."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from servicebus_pair.core.batching import Packer, partition_key
from servicebus_pair.core.errors import (
    InvalidMessageError,
    MessageTooLargeError,
    RefusedError,
    ServiceError,
    UndeliverableError,
)
from servicebus_pair.core.events import MessagesSyphoned
from servicebus_pair.core.parcels import Parcel
from servicebus_pair.core.results import DrainReport
from servicebus_pair.core.splitting import is_mixed, session_key
from servicebus_pair.core.transport import Destination
from servicebus_pair.core.wire import WireBatch
from servicebus_pair.core.workshop import Workshop

__all__ = ["CALL_SECONDS", "Dispatch", "LocksEndError", "Tally", "dead_letter_reason"]

_log = logging.getLogger(__name__)
CALL_SECONDS: Final = 10.0
# Below this a send is not begun: what is left of the lock would not do for the settlement.
_SHORTEST_SEND: Final = 0.5
# What the service says of the message and not of the entity.
_OF_THE_MESSAGE: Final = (RefusedError, MessageTooLargeError)


@dataclass(slots=True)
class Tally:
    """What was done with one queue so far; :meth:`report` freezes it."""

    moved: Counter[str] = field(default_factory=Counter)
    dead_lettered: Counter[str] = field(default_factory=Counter)
    duplicates_possible: int = 0
    left: int = 0
    failures: dict[str, str] = field(default_factory=dict)

    @property
    def done(self) -> int:
        """Messages that left the queue, either way."""
        return self.moved.total() + self.dead_lettered.total()

    def report(self) -> DrainReport:
        """Answer a frozen copy."""
        return DrainReport(
            moved=dict(self.moved),
            dead_lettered=dict(self.dead_lettered),
            left=self.left,
            duplicates_possible=self.duplicates_possible,
            failures=dict(self.failures),
        )


class LocksEndError(Exception):
    """What is in hand could be sent, but not settled well inside its locks."""


class _MixtureRefusedError(Exception):
    """A batch with several sessions was refused, perhaps for that."""


class Dispatch:
    """Sends parcels of one backlog queue, and takes note of what the primary confirmed.

    :param bury: told of a parcel that can never be delivered.
    :ivar confirmed: what the primary has; whoever completes it takes it away.
    :ivar largest: most bytes of a message lately.
    """

    def __init__(
        self, shop: Workshop, queue: str, *, tally: Tally, bury: Callable[[Parcel, UndeliverableError], Awaitable[None]]
    ) -> None:
        self.confirmed: list[Parcel] = []
        self.largest = 1
        self._shop = shop
        self._queue = queue
        self._tally = tally
        self._bury = bury

    async def send(self, destination: Destination, waiting: dict[int, Parcel]) -> None:
        """Send what is waiting for one entity, by the identity of its message; what is settled leaves ``waiting``.

        One message that the service refuses is buried, and its neighbours arrive: it is found by halving, and
        what is refused alone (``amqp:not-allowed`` for one without session where sessions are required) would be
        for ever.

        :raises LocksEndError: the locks would not last.
        :raises ServiceError: the entity took no more.
        """
        until = min(parcel.good_until for parcel in waiting.values())
        limit = await destination.open(timeout=self._seconds(until))
        try:
            for batch in await self._pack(limit, destination, waiting):
                await self._send_batch(destination, batch, waiting, until)
        except _MixtureRefusedError:
            entity = next(iter(waiting.values())).entity
            _log.info("entity=%s takes one session a batch: so it is sent from now on", entity)
            destination.takes_mixture = False
            # What is left is packed anew, and no batch is mixed any more.
            await self.send(destination, waiting)

    async def _send_batch(
        self, destination: Destination, batch: WireBatch, waiting: dict[int, Parcel], until: float
    ) -> None:
        try:
            await destination.send(batch, timeout=self._seconds(until))
        except _OF_THE_MESSAGE as error:
            if isinstance(error, RefusedError) and is_mixed(batch.messages):
                raise _MixtureRefusedError from error
            if len(batch) == 1:
                refused = waiting.pop(id(batch.messages[0]))
                await self._bury(refused, UndeliverableError(dead_letter_reason(error), str(error)))
                return
            for half in batch.halves():
                await self._send_batch(destination, half, waiting, until)
        except (ServiceError, asyncio.CancelledError) as error:
            if not isinstance(error, ServiceError) or error.may_be_stored:
                self._tally.duplicates_possible += len(batch)
            raise
        else:
            self._sent(batch, [waiting.pop(id(message)) for message in batch.messages])

    def _sent(self, batch: WireBatch, done: list[Parcel]) -> None:
        entity = done[0].entity
        self.confirmed += done
        self._shop.tell(MessagesSyphoned(entity, self._queue, tuple(batch.refs), self._shop.clock.now()))
        self._tally.moved[entity] += len(done)
        self.largest = max(self.largest, *(ref.size_bytes for ref in batch.refs))

    def _seconds(self, until: float) -> float:
        left = until - self._shop.clock.now()
        if left < _SHORTEST_SEND:
            raise LocksEndError
        return min(CALL_SECONDS, left)

    async def _pack(self, limit: int, destination: Destination, waiting: dict[int, Parcel]) -> list[WireBatch]:
        key = partition_key if destination.takes_mixture else session_key
        packer: Packer[WireBatch] = Packer(partial(WireBatch, limit, largest=destination.message_limit), key=key)
        full: list[WireBatch | None] = []
        for place, parcel in list(waiting.items()):
            try:
                full.append(packer.add(parcel.message))
            except (MessageTooLargeError, InvalidMessageError) as error:
                del waiting[place]
                await self._bury(parcel, UndeliverableError(dead_letter_reason(error), str(error)))
        return [*(batch for batch in full if batch is not None), *packer.rest()]


def dead_letter_reason(error: ServiceError) -> str:
    """The dead-letter reason: the error's name, such as ``EntityNotFound``."""
    return type(error).__name__.removesuffix("Error")
