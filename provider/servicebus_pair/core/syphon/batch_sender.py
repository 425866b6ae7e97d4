"""Sends received backlog messages to one entity of the primary, and isolates refused messages (SPEC section 6)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from servicebus_pair.core.model.errors import (
    InvalidMessageError,
    MessageTooLargeError,
    RefusedError,
    ServiceError,
    UndeliverableError,
)
from servicebus_pair.core.model.events import MessagesSyphoned
from servicebus_pair.core.model.results import DrainReport
from servicebus_pair.core.protocol.backlog_message import unreadable
from servicebus_pair.core.protocol.batching import BatchPacker
from servicebus_pair.core.sdk._private.batch_encoding import EncodedBatch
from servicebus_pair.core.syphon.backlog_entry import BacklogEntry
from servicebus_pair.core.syphon.drain_context import DrainContext
from servicebus_pair.core.syphon.ports import Destination

__all__ = ["CALL_TIMEOUT", "BatchSender", "DrainCounters", "LocksExpiringError", "dead_letter_reason"]

# Seconds.
CALL_TIMEOUT: Final = 10.0
# No send is started with less time before the locks end: the messages could not be settled.
_MIN_SEND_TIMEOUT: Final = 0.5
# Refusals that concern a message and not the entity.
_MESSAGE_ERRORS: Final = (RefusedError, MessageTooLargeError)


@dataclass(slots=True)
class DrainCounters:
    """What was done with one queue so far."""

    moved: Counter[str] = field(default_factory=Counter)
    dead_lettered: Counter[str] = field(default_factory=Counter)
    duplicates_possible: int = 0
    left: int = 0
    failures: dict[str, str] = field(default_factory=dict)

    @property
    def done(self) -> int:
        """Messages moved or dead-lettered."""
        return self.moved.total() + self.dead_lettered.total()

    def report(self) -> DrainReport:
        """Return a frozen copy."""
        return DrainReport(
            moved=dict(self.moved),
            dead_lettered=dict(self.dead_lettered),
            left=self.left,
            duplicates_possible=self.duplicates_possible,
            failures=dict(self.failures),
        )


class LocksExpiringError(Exception):
    """The messages could be sent, but not settled within their locks."""


class BatchSender:
    """Sends entries of one backlog queue and collects those that the primary confirmed.

    :param dead_letter: called for an entry that can never be delivered.
    :ivar confirmed: entries accepted by the primary; the queue worker completes them and clears the list.
    :ivar recent_max_bytes: size of the largest message sent recently.
    """

    def __init__(
        self,
        context: DrainContext,
        queue: str,
        *,
        counters: DrainCounters,
        dead_letter: Callable[[BacklogEntry, UndeliverableError], Awaitable[None]],
    ) -> None:
        self.confirmed: list[BacklogEntry] = []
        self.recent_max_bytes = 1
        self._context = context
        self._queue = queue
        self._counters = counters
        self._dead_letter = dead_letter

    async def send(self, destination: Destination, entries: dict[int, BacklogEntry]) -> None:
        """Send entries for one entity; those sent or dead-lettered are removed from ``entries``.

        If the service refuses a batch for one of its messages, the batch is halved until that message is alone; it
        is dead-lettered and the others arrive.

        :param entries: by the identity (``id``) of the message to send.
        :raises LocksExpiringError: the locks would end before the messages are settled.
        :raises ServiceError: the entity accepts no more.
        """
        send_before = min(entry.send_before for entry in entries.values())
        limit = await destination.open(timeout=self._timeout(send_before))
        for batch in await self._pack(limit, destination, entries):
            await self._send_batch(destination, batch, entries, send_before)

    async def _send_batch(
        self, destination: Destination, batch: EncodedBatch, entries: dict[int, BacklogEntry], send_before: float
    ) -> None:
        try:
            await destination.send(batch, timeout=self._timeout(send_before))
        except _MESSAGE_ERRORS as error:
            parts = [part for _, part in destination.split_if_mixed(batch)] if isinstance(error, RefusedError) else []
            if not parts and len(batch) == 1:
                refused = entries.pop(id(batch.messages[0]))
                await self._dead_letter(refused, UndeliverableError(dead_letter_reason(error), str(error)))
                return
            for part in parts or batch.split():
                await self._send_batch(destination, part, entries, send_before)
        except (ServiceError, asyncio.CancelledError) as error:
            if not isinstance(error, ServiceError) or error.may_be_stored:
                self._counters.duplicates_possible += len(batch)
            raise
        else:
            self._record(batch, [entries.pop(id(message)) for message in batch.messages])

    def _record(self, batch: EncodedBatch, sent: list[BacklogEntry]) -> None:
        entity = sent[0].entity
        self.confirmed += sent
        self._context.emit(MessagesSyphoned(entity, self._queue, tuple(batch.refs), self._context.clock.now()))
        self._counters.moved[entity] += len(sent)
        self.recent_max_bytes = max(self.recent_max_bytes, *(ref.size_bytes for ref in batch.refs))

    def _timeout(self, send_before: float) -> float:
        remaining = send_before - self._context.clock.now()
        if remaining < _MIN_SEND_TIMEOUT:
            raise LocksExpiringError
        return min(CALL_TIMEOUT, remaining)

    async def _pack(self, limit: int, destination: Destination, entries: dict[int, BacklogEntry]) -> list[EncodedBatch]:
        new_batch = partial(EncodedBatch, limit, max_message_bytes=destination.max_message_bytes)
        packer: BatchPacker[EncodedBatch] = BatchPacker(new_batch, key=destination.batch_key)
        full: list[EncodedBatch | None] = []
        for key, entry in list(entries.items()):
            try:
                full.append(packer.add(entry.message))
            except (MessageTooLargeError, InvalidMessageError) as error:
                del entries[key]
                await self._dead_letter(entry, UndeliverableError(dead_letter_reason(error), str(error)))
            except Exception as error:  # noqa: BLE001 - no message may stop the others
                del entries[key]
                await self._dead_letter(entry, unreadable(error))
        return [*(batch for batch in full if batch is not None), *packer.flush()]


def dead_letter_reason(error: ServiceError) -> str:
    """Return the dead-letter reason: the error's name, such as ``EntityNotFound``."""
    return type(error).__name__.removesuffix("Error")
