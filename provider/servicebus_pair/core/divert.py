"""The way to the backlog: copies, a backlog queue of the rotation, the next one when it fails."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from azure.servicebus.amqp import AmqpAnnotatedMessage

from servicebus_pair.core.batching import Packer, partition_key
from servicebus_pair.core.clients import WireBatch
from servicebus_pair.core.envelope import wrap
from servicebus_pair.core.errors import (
    InvalidMessageError,
    MessageTooLargeError,
    NoBacklogQueueError,
    SendError,
    ServiceError,
    TimedOutError,
)
from servicebus_pair.core.events import MessagesAccepted, QueuePulled, Route
from servicebus_pair.core.results import SendResult
from servicebus_pair.core.shared import Shared

__all__ = ["LONGEST_ATTEMPT", "Divert"]

_log = logging.getLogger(__name__)
# Seconds one call may take when nothing else bounds it.
LONGEST_ATTEMPT: Final = 10.0


class Divert:
    """Delivers messages of one entity to a backlog queue; each sender has its own and keeps its queue."""

    def __init__(self, entity: str, shared: Shared) -> None:
        self._entity = entity
        self._shared = shared
        self._queue: str | None = None

    async def deliver(
        self,
        messages: Sequence[AmqpAnnotatedMessage],
        *,
        because: ServiceError | None,
        deadline: float | None,
    ) -> SendResult:
        """Send copies of ``messages`` to the backlog, all of them or an error that carries the rest.

        :param because: the primary's failure that led here, if this send saw it.
        :param deadline: on the pair's clock, seconds.
        :raises NoBacklogQueueError: no backlog queue took them; names both failures.
        :raises SendError: a copy does not fit the backlog, or the SDK refused it.
        """
        waiting = {id(copy := wrap(message, entity=self._entity)): (copy, message) for message in messages}
        parts: list[SendResult] = []
        tried: set[str] = set()
        last: ServiceError | None = None
        while waiting:
            queue = self._shared.rotation.choose(self._queue, without=tried)
            if queue is None:
                raise self._exhausted(because, last, parts, waiting)
            self._queue = queue
            tried.add(queue)
            try:
                for batch in await self._pack(queue, waiting, deadline):
                    parts.append(await self._send(queue, batch, deadline))
                    for copy in batch.messages:
                        del waiting[id(copy)]
            except (MessageTooLargeError, InvalidMessageError) as error:
                raise self._failed(error, parts, waiting) from error
            except ServiceError as error:
                if deadline is not None and self._shared.clock.now() >= deadline:
                    raise self._failed(error, parts, waiting) from error
                last = error
                self._pull(queue, error)
        return SendResult.total(parts)

    async def _pack(
        self,
        queue: str,
        waiting: dict[int, tuple[AmqpAnnotatedMessage, AmqpAnnotatedMessage]],
        deadline: float | None,
    ) -> list[WireBatch]:
        limit = await self._shared.secondary.send_link(queue).open(timeout=self._seconds(deadline))
        packer: Packer[WireBatch] = Packer(lambda: WireBatch(limit), key=partition_key)
        full = [packer.add(copy) for copy, _ in waiting.values()]
        return [*(batch for batch in full if batch is not None), *packer.rest()]

    async def _send(self, queue: str, batch: WireBatch, deadline: float | None) -> SendResult:
        await self._shared.secondary.send_link(queue).send(batch, timeout=self._seconds(deadline))
        at = self._shared.clock.now()
        self._shared.board.tell(MessagesAccepted(self._entity, Route.BACKLOG, queue, tuple(batch.refs), at))
        ids = tuple(ref.message_id for ref in batch.refs)
        return SendResult(diverted=len(batch), backlog_queues=(queue,), message_ids=ids)

    def _seconds(self, deadline: float | None) -> float:
        if deadline is None:
            return LONGEST_ATTEMPT
        left = deadline - self._shared.clock.now()
        if left <= 0:
            raise TimedOutError(f"divert of {self._entity}: the time given by the caller is over")
        return min(LONGEST_ATTEMPT, left)

    def _pull(self, queue: str, error: ServiceError) -> None:
        if self._shared.rotation.pull(queue):
            _log.warning("backlog queue=%s leaves the rotation: %s", queue, error)
            self._shared.board.tell(QueuePulled(queue, str(error), self._shared.clock.now()))

    def _failed(
        self,
        error: ServiceError,
        parts: list[SendResult],
        waiting: dict[int, tuple[AmqpAnnotatedMessage, AmqpAnnotatedMessage]],
    ) -> SendError:
        return SendError(
            f"diverting {self._entity} ended with {len(waiting)} messages unsent: {error}",
            cause=error,
            result=SendResult.total(parts),
            unsent=[message for _, message in waiting.values()],
        )

    def _exhausted(
        self,
        because: ServiceError | None,
        last: ServiceError | None,
        parts: list[SendResult],
        waiting: dict[int, tuple[AmqpAnnotatedMessage, AmqpAnnotatedMessage]],
    ) -> NoBacklogQueueError:
        health = self._shared.board.current(self._entity)
        primary = health.reason if because is None else str(because)
        cause = last if last is not None else because
        return NoBacklogQueueError(
            f"{self._entity} is failed over ({primary}) and no backlog queue took the "
            f"{len(waiting)} messages ({last}): they are in .unsent; provision the backlog or try again",
            cause=TimedOutError("no backlog queue is configured") if cause is None else cause,
            result=SendResult.total(parts),
            unsent=[message for _, message in waiting.values()],
        )
