"""Moving the messages of one backlog queue: the small port under the syphon (SPEC section 6).

One step receives, translates, sends to the primary in batches and settles: a message is completed
only after the primary confirmed it, released on a failure that may pass, and dead-lettered when
nothing can ever deliver it.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from azure.servicebus import ServiceBusReceivedMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage

from servicebus_pair.core.batching import Packer, partition_key
from servicebus_pair.core.envelope import unwrap
from servicebus_pair.core.errors import (
    EntityNotFoundError,
    InvalidMessageError,
    MessageTooLargeError,
    ServiceError,
    UndeliverableError,
)
from servicebus_pair.core.events import DeadLettered, MessagesSyphoned
from servicebus_pair.core.results import DrainReport
from servicebus_pair.core.shared import Shared
from servicebus_pair.core.wire import WireBatch

__all__ = ["Mover", "Tally"]

_log = logging.getLogger(__name__)
_CALL_SECONDS: Final = 10.0


@dataclass(slots=True)
class Tally:
    """What was done with one queue so far; :meth:`report` freezes it."""

    moved: Counter[str] = field(default_factory=Counter)
    dead_lettered: Counter[str] = field(default_factory=Counter)
    duplicates_possible: int = 0
    left: int = 0
    failures: dict[str, str] = field(default_factory=dict)

    def report(self) -> DrainReport:
        """Answer a frozen copy."""
        return DrainReport(
            moved=dict(self.moved),
            dead_lettered=dict(self.dead_lettered),
            left=self.left,
            duplicates_possible=self.duplicates_possible,
            failures=dict(self.failures),
        )


@dataclass(frozen=True, slots=True)
class _Held:
    """One received message with its translation."""

    received: ServiceBusReceivedMessage
    message: AmqpAnnotatedMessage


class Mover:
    """Moves the messages of one backlog queue, one receive at a time.

    :param queue: path of the backlog queue.
    """

    def __init__(self, shared: Shared, queue: str) -> None:
        self.queue = queue
        self.tally = Tally()
        self._shared = shared
        self._most = shared.options.syphon_batch_size
        self._link = shared.secondary.receive_link(queue, prefetch=self._most)

    async def step(self, *, wait: float) -> int:
        """Receive once and settle everything received; failures of destinations go to the tally.

        :param wait: seconds to wait for the first message.
        :returns: how many were received; 0 is no proof that nothing is there.
        :raises ServiceError: the backlog queue itself cannot be read.
        """
        received = await self._link.receive(most=self._most, wait=wait, timeout=_CALL_SECONDS)
        for entity, held in (await self._sort(received)).items():
            await self._move(entity, held)
        return len(received)

    async def remaining(self) -> int:
        """Answer how many messages a peek still sees, at most one batch.

        :raises ServiceError: the backlog queue cannot be read.
        """
        return len(await self._link.peek(most=self._most, timeout=_CALL_SECONDS))

    async def close(self) -> None:
        """Detach; messages in hand that were not settled are released."""
        await self._link.close()

    async def _sort(self, received: Sequence[ServiceBusReceivedMessage]) -> dict[str, list[_Held]]:
        by_entity: dict[str, list[_Held]] = {}
        for message in received:
            try:
                unwrapped = unwrap(message.raw_amqp_message)
            except UndeliverableError as error:
                await self._bury(message, error)
            else:
                held = _Held(message, unwrapped.message)
                by_entity.setdefault(unwrapped.entity, []).append(held)
        return by_entity

    async def _move(self, entity: str, held: Sequence[_Held]) -> None:
        """Send what is held for ``entity``; afterwards nothing of it is held any more."""
        waiting = {id(each.message): each for each in held}
        try:
            for batch in await self._pack(entity, waiting):
                await self._shared.primary.send_link(entity).send(batch, timeout=_CALL_SECONDS)
                await self._confirmed(entity, batch, waiting)
        except EntityNotFoundError as error:
            for each in waiting.values():
                await self._bury(each.received, UndeliverableError(_reason(error), str(error)))
        except ServiceError as error:
            # What cannot be encoded was found while packing: any other refusal of a batch may pass.
            self.tally.failures[entity] = str(error)
            await self._release([each.received for each in waiting.values()])

    async def _pack(self, entity: str, waiting: dict[int, _Held]) -> list[WireBatch]:
        limit = await self._shared.primary.send_link(entity).open(timeout=_CALL_SECONDS)
        packer: Packer[WireBatch] = Packer(lambda: WireBatch(limit), key=partition_key)
        full: list[WireBatch | None] = []
        for key, each in list(waiting.items()):
            try:
                full.append(packer.add(each.message))
            except (MessageTooLargeError, InvalidMessageError) as error:
                del waiting[key]
                await self._bury(each.received, UndeliverableError(_reason(error), str(error)))
        return [*(batch for batch in full if batch is not None), *packer.rest()]

    async def _confirmed(self, entity: str, batch: WireBatch, waiting: dict[int, _Held]) -> None:
        """The primary has the batch: tell, then complete."""
        done = [waiting.pop(id(message)).received for message in batch.messages]
        at = self._shared.clock.now()
        self._shared.board.tell(MessagesSyphoned(entity, self.queue, tuple(batch.refs), at))
        self.tally.moved[entity] += len(done)
        answers = await self._link.complete(done, timeout=_CALL_SECONDS)
        lost = [answer for answer in answers if answer is not None]
        self.tally.duplicates_possible += len(lost)
        if lost:
            _log.warning(
                "backlog queue=%s entity=%s completions failed=%d of=%d, they may come again: %s",
                self.queue,
                entity,
                len(lost),
                len(done),
                lost[0],
            )

    async def _release(self, received: Sequence[ServiceBusReceivedMessage]) -> None:
        answers = await self._link.abandon(received, timeout=_CALL_SECONDS)
        failed = sum(answer is not None for answer in answers)
        if failed:
            _log.warning("backlog queue=%s not released=%d: their locks end by themselves", self.queue, failed)

    async def _bury(self, received: ServiceBusReceivedMessage, error: UndeliverableError) -> None:
        answer = await self._link.dead_letter(
            received, reason=error.reason, description=error.description, timeout=_CALL_SECONDS
        )
        if answer is not None:
            self.tally.failures[self.queue] = str(answer)
            return
        self.tally.dead_lettered[error.reason] += 1
        at = self._shared.clock.now()
        self._shared.board.tell(DeadLettered(self.queue, str(received.message_id), error.reason, at))


def _reason(error: ServiceError) -> str:
    """The dead-letter reason: the error's name, such as ``EntityNotFound``."""
    return type(error).__name__.removesuffix("Error")
