"""The syphon (SPEC section 6): moves messages from the backlog queues to their entities.

Per backlog queue: receive in peek-lock, group by destination, translate back, send to the primary
in batches, and complete only what the primary confirmed. At least once: a message whose completion
is not confirmed may come again, and is counted as a possible duplicate.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from azure.servicebus import ServiceBusReceivedMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage

from servicebus_pair.core.batching import Packer, partition_key
from servicebus_pair.core.clients import ReceiveLink, WireBatch
from servicebus_pair.core.envelope import unwrap
from servicebus_pair.core.errors import (
    EntityNotFoundError,
    InvalidMessageError,
    MessageTooLargeError,
    PairError,
    ServiceError,
    UndeliverableError,
)
from servicebus_pair.core.events import DeadLettered, MessagesSyphoned
from servicebus_pair.core.results import DrainReport
from servicebus_pair.core.shared import Shared

__all__ = ["Progress", "Syphon"]

_log = logging.getLogger(__name__)
_CALL_SECONDS: Final = 10.0
_FIRST_WAIT_SECONDS: Final = 2.0
_LONGEST_REST_SECONDS: Final = 120.0
_FAILURES_BEFORE_GIVING_UP: Final = 5


class Progress(Protocol):
    """Called after every batch with what one drain has done so far."""

    def __call__(self, report: DrainReport, /) -> None: ...


@dataclass(slots=True)
class _Tally:
    """What one queue's drain has done; turned into a frozen report at the end."""

    moved: Counter[str] = field(default_factory=Counter)
    dead_lettered: Counter[str] = field(default_factory=Counter)
    duplicates_possible: int = 0
    left: int = 0
    failures: dict[str, str] = field(default_factory=dict)

    def report(self) -> DrainReport:
        return DrainReport(
            dict(self.moved),
            dict(self.dead_lettered),
            self.left,
            self.duplicates_possible,
            dict(self.failures),
        )


@dataclass(frozen=True, slots=True)
class _Held:
    """One received message with its translation."""

    received: ServiceBusReceivedMessage
    message: AmqpAnnotatedMessage


class Syphon:
    """Moves messages of some backlog queues; several syphons may run at once anywhere.

    :param queues: paths of backlog queues on the secondary.
    """

    def __init__(self, shared: Shared, queues: Sequence[str]) -> None:
        self._shared = shared
        self._queues = tuple(queues)
        self._retry = shared.options.syphon_retry_interval.total_seconds()
        self._most = shared.options.syphon_batch_size

    async def drain(self, *, progress: Progress | None = None) -> DrainReport:
        """Move messages until every queue is empty or keeps failing.

        Empty is believed only when a receive brings nothing *and* a peek answers that nothing is
        there, since a frozen service answers a receive with nothing too.

        :param progress: called after each batch with the sum so far.
        """
        tallies = {queue: _Tally() for queue in self._queues}

        def tell() -> None:
            if progress is not None:
                progress(_total(tallies.values()))

        await asyncio.gather(*(self._drain_queue(queue, tally, tell) for queue, tally in tallies.items()))
        return _total(tallies.values())

    async def run(self) -> None:
        """Move messages for as long as the task lives, polling each queue for ``syphon_long_poll``.

        Cancel the task to stop; messages in hand that the primary did not confirm are released.
        """
        await asyncio.gather(*(self._run_queue(queue) for queue in self._queues))

    async def _run_queue(self, queue: str) -> None:
        wait = self._shared.options.syphon_long_poll.total_seconds()
        rest = self._retry
        while True:
            tally = _Tally()
            link = self._link(queue)
            try:
                while not tally.failures:
                    await self._step(queue, link, tally, wait)
                    rest = self._retry if tally.moved else rest
            except ServiceError as error:
                _log.warning("backlog queue=%s: %s; next try in %.0f s", queue, error, rest)
            finally:
                await link.close()
            await self._shared.clock.sleep(rest)
            rest = min(rest * 2, _LONGEST_REST_SECONDS)

    def _link(self, queue: str) -> ReceiveLink:
        return self._shared.secondary.receive_link(queue, prefetch=self._most)

    async def _drain_queue(self, queue: str, tally: _Tally, tell: Callable[[], None]) -> None:
        link = self._link(queue)
        failed = 0
        try:
            while failed < _FAILURES_BEFORE_GIVING_UP:
                tally.failures.clear()
                try:
                    if not await self._step(queue, link, tally, _FIRST_WAIT_SECONDS):
                        tally.left = len(await link.peek(most=self._most, timeout=_CALL_SECONDS))
                        return
                except ServiceError as error:
                    tally.failures[queue] = str(error)
                tell()
                if not tally.failures:
                    failed = 0
                    continue
                failed += 1
                await self._shared.clock.sleep(min(self._retry * 2 ** (failed - 1), _LONGEST_REST_SECONDS))
        finally:
            await link.close()

    async def _step(self, queue: str, link: ReceiveLink, tally: _Tally, wait: float) -> bool:
        """Receive once and settle everything received; answer whether anything came."""
        received = await link.receive(most=self._most, wait=wait, timeout=_CALL_SECONDS)
        if not received:
            return False
        for entity, held in (await self._sort(queue, link, received, tally)).items():
            await self._move(queue, link, entity, held, tally)
        _log.info(
            "backlog queue=%s received=%d moved=%d dead_lettered=%d",
            queue,
            len(received),
            tally.moved.total(),
            tally.dead_lettered.total(),
        )
        return True

    async def _sort(
        self,
        queue: str,
        link: ReceiveLink,
        received: Sequence[ServiceBusReceivedMessage],
        tally: _Tally,
    ) -> dict[str, list[_Held]]:
        by_entity: dict[str, list[_Held]] = {}
        for message in received:
            try:
                unwrapped = unwrap(message.raw_amqp_message)
            except UndeliverableError as error:
                await self._bury(queue, link, message, error, tally)
                continue
            by_entity.setdefault(unwrapped.entity, []).append(_Held(message, unwrapped.message))
        return by_entity

    async def _move(self, queue: str, link: ReceiveLink, entity: str, held: Sequence[_Held], tally: _Tally) -> None:
        """Send what is held for ``entity``; every message is completed, released or dead-lettered."""
        waiting = {id(each.message): each for each in held}
        try:
            batches = await self._pack(queue, link, entity, waiting, tally)
            for batch in batches:
                await self._shared.primary.send_link(entity).send(batch, timeout=_CALL_SECONDS)
                await self._confirmed(queue, link, entity, batch, waiting, tally)
        except (EntityNotFoundError, InvalidMessageError) as error:
            undeliverable = UndeliverableError(type(error).__name__.removesuffix("Error"), str(error))
            for each in waiting.values():
                await self._bury(queue, link, each.received, undeliverable, tally)
        except PairError as error:
            tally.failures[entity] = str(error)
            await self._release(link, [each.received for each in waiting.values()])

    async def _pack(
        self,
        queue: str,
        link: ReceiveLink,
        entity: str,
        waiting: dict[int, _Held],
        tally: _Tally,
    ) -> list[WireBatch]:
        limit = await self._shared.primary.send_link(entity).open(timeout=_CALL_SECONDS)
        packer: Packer[WireBatch] = Packer(lambda: WireBatch(limit), key=partition_key)
        full: list[WireBatch | None] = []
        for key, each in list(waiting.items()):
            try:
                full.append(packer.add(each.message))
            except MessageTooLargeError as error:
                del waiting[key]
                await self._bury(queue, link, each.received, UndeliverableError("TooLarge", str(error)), tally)
        return [*(batch for batch in full if batch is not None), *packer.rest()]

    async def _confirmed(
        self,
        queue: str,
        link: ReceiveLink,
        entity: str,
        batch: WireBatch,
        waiting: dict[int, _Held],
        tally: _Tally,
    ) -> None:
        """The primary has the batch: tell, then complete."""
        done = [waiting.pop(id(message)).received for message in batch.messages]
        self._shared.board.tell(MessagesSyphoned(entity, queue, tuple(batch.refs), self._shared.clock.now()))
        tally.moved[entity] += len(done)
        answers = await link.complete(done, timeout=_CALL_SECONDS)
        lost = [answer for answer in answers if answer is not None]
        tally.duplicates_possible += len(lost)
        if lost:
            _log.warning(
                "backlog queue=%s entity=%s: %d of %d completions failed, these messages may come again: %s",
                queue,
                entity,
                len(lost),
                len(done),
                lost[0],
            )

    async def _release(self, link: ReceiveLink, received: Sequence[ServiceBusReceivedMessage]) -> None:
        answers = await link.abandon(received, timeout=_CALL_SECONDS)
        failed = sum(answer is not None for answer in answers)
        if failed:
            _log.warning("%d messages were not released; their locks end by themselves", failed)

    async def _bury(
        self,
        queue: str,
        link: ReceiveLink,
        received: ServiceBusReceivedMessage,
        error: UndeliverableError,
        tally: _Tally,
    ) -> None:
        answer = await link.dead_letter(
            received, reason=error.reason, description=error.description, timeout=_CALL_SECONDS
        )
        if answer is not None:
            tally.failures[queue] = str(answer)
            return
        tally.dead_lettered[error.reason] += 1
        at = self._shared.clock.now()
        self._shared.board.tell(DeadLettered(queue, str(received.message_id), error.reason, at))


def _total(tallies: Iterable[_Tally]) -> DrainReport:
    return sum((tally.report() for tally in tallies), DrainReport())
