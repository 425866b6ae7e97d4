"""Sends received backlog messages to one entity of the primary, and isolates refused messages (SPEC section 6)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from math import inf, isfinite
from typing import Final

from servicebus_pair.core.health.prober import ping_message
from servicebus_pair.core.model.errors import (
    InvalidMessageError,
    MessageTooLargeError,
    RefusedError,
    RejectedError,
    ServiceError,
    TimedOutError,
    UndeliverableError,
)
from servicebus_pair.core.model.events import MessagesSyphoned
from servicebus_pair.core.model.results import DrainReport
from servicebus_pair.core.protocol.backlog_message import unreadable
from servicebus_pair.core.protocol.batching import BatchPacker
from servicebus_pair.core.sdk.send_link import SendSlot
from servicebus_pair.core.syphon.backlog_entry import BacklogEntry
from servicebus_pair.core.syphon.drain_context import DrainContext
from servicebus_pair.core.syphon.policies.batch_size import next_batch_size
from servicebus_pair.core.syphon.ports import Destination, OutgoingBatch

# Seconds. No send is started with less time before the locks end: the messages could not be settled.
_MIN_SEND_TIMEOUT: Final = 0.5
# Share of a lock that one send may take.
_ATTEMPT_SHARE: Final = 0.5
# Refusals that concern a message and not the entity.
_MESSAGE_ERRORS: Final = (RefusedError, RejectedError, MessageTooLargeError)
# Attempts of a message alone that the service rejects, before it is given up. A rejection may also be an error of the
# service that strikes at random: among so many, with an accepted probe between any two, it would have to strike each
# attempt and no probe.
_MAX_REJECTIONS: Final = 8
# Before each of them, as a share of what one send may take: a second if locks last a minute.
_REJECTION_PAUSE_SHARE: Final = 1 / 30


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


@dataclass(frozen=True, slots=True)
class _Limits:
    """Where a batch goes, until when it may be sent (clock), and how many seconds one attempt may take."""

    destination: Destination
    entity: str
    send_before: float
    max_attempt: float


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
        self._longest_lock = 0.0
        self._context = context
        self._queue = queue
        self._counters = counters
        self._dead_letter = dead_letter

    async def send(
        self,
        destination: Destination,
        entries: dict[int, BacklogEntry],
        *,
        send_before: float | None = None,
        lock_seconds: float | None = None,
    ) -> None:
        """Send entries for one entity; those sent or dead-lettered are removed from ``entries``.

        If the service refuses or rejects a batch for one of its messages, the batch is halved until that message is
        alone. It is dead-lettered and the others arrive; a rejected one only if the service rejects it eight times, and
        accepts a probe between any two of these attempts.

        :param entries: by the identity (``id``) of the message to send.
        :param send_before: in place of the entries' own, if one lock holds for all of them; as is ``lock_seconds``.
        :raises LocksExpiringError: the locks would end before the messages are settled.
        :raises ServiceError: the entity accepts no more.
        """
        if send_before is None:
            send_before = min(entry.send_before for entry in entries.values())
        if lock_seconds is None:
            # Of messages that waited in the link's buffer, less is left of the locks than of the others.
            self._longest_lock = max(self._longest_lock, *(entry.lock_seconds for entry in entries.values()))
            lock_seconds = self._longest_lock
        limits = _Limits(
            destination,
            entity=next(iter(entries.values())).entity,
            send_before=send_before,
            max_attempt=_ATTEMPT_SHARE * lock_seconds,
        )
        await destination.open(timeout=self._timeout(limits))
        for batch in await self._pack(destination, entries):
            await self._send_batch(batch, entries, limits)

    def next_batch_size(self, size: int, *, count: int, seconds: float, shrink: bool) -> int:
        """Return how many messages to receive or send at a time, after a batch of at most ``size``.

        :param count: how many messages that one had.
        :param seconds: how long it took.
        :param shrink: it was too large for its locks.
        """
        context = self._context
        limit = min(context.max_batch_messages, context.max_batch_bytes // self.recent_max_bytes)
        self.recent_max_bytes = max(1, self.recent_max_bytes * 3 // 4)
        share = seconds / context.slow_batch_seconds
        return next_batch_size(size, limit=limit, full=count >= size, share=share, shrink=shrink)

    async def _send_batch(self, batch: OutgoingBatch, entries: dict[int, BacklogEntry], limits: _Limits) -> None:
        try:
            await self._attempt(batch, limits)
        except _MESSAGE_ERRORS as error:
            parts = limits.destination.split_if_mixed(batch) if isinstance(error, RefusedError) else ()
            if parts or len(batch) > 1:
                for part in parts or batch.split():
                    await self._send_batch(part, entries, limits)
                return
            entry = entries[id(batch.messages[0])]
            if isinstance(error, RejectedError) and await self._retry_rejected(batch, entry, limits):
                self._record(batch, entries)
                return
            del entries[id(entry.message)]
            await self._dead_letter(entry, UndeliverableError(dead_letter_reason(error), str(error)))
        else:
            self._record(batch, entries)

    async def _retry_rejected(self, batch: OutgoingBatch, entry: BacklogEntry, limits: _Limits) -> bool:
        """Return whether a message that was rejected alone is accepted at last, if the entity accepts others.

        :raises ServiceError: the entity does not: the failure is not the message's.
        :raises LocksExpiringError: there is no time left to find out; what is known is kept for the next delivery.
        """
        known, message = self._context.rejections, (self._queue, entry.received.sequence_number)
        known[message] += 1
        accepted = False
        try:
            while known[message] < _MAX_REJECTIONS and not accepted:
                await self._context.clock.sleep(_REJECTION_PAUSE_SHARE * limits.max_attempt)
                if self._context.paused:
                    raise LocksExpiringError
                await self._probe(limits)
                accepted = await self._accepts(batch, limits)
                known[message] += 1
        except ServiceError:
            del known[message]
            raise
        del known[message]
        return accepted

    async def _accepts(self, batch: OutgoingBatch, limits: _Limits) -> bool:
        try:
            await self._attempt(batch, limits)
        except RejectedError:
            return False
        return True

    async def _probe(self, limits: _Limits) -> None:
        """:raises ServiceError: the entity accepts nothing else either."""
        timeout = self._timeout(limits)
        if self._context.pings:
            await limits.destination.send_ping(ping_message(), timeout=timeout)
        else:
            await limits.destination.reopen(timeout=timeout)

    async def _attempt(self, batch: OutgoingBatch, limits: _Limits) -> None:
        """Send a batch, with the time that confirmations from the entity have been taking.

        :raises LocksExpiringError: the link was free too late.
        :raises ServiceError: the batch was not confirmed.
        """
        started = timeout = -inf

        def take_turn() -> float | None:
            nonlocal started, timeout
            started = self._context.clock.now()
            try:
                timeout = self._timeout(limits)
            except LocksExpiringError:
                return None
            return timeout

        try:
            sent = await limits.destination.send_in_slot(batch, SendSlot(attempt_timeout=take_turn))
        except (ServiceError, asyncio.CancelledError) as error:
            if isfinite(started) and (not isinstance(error, ServiceError) or error.may_be_stored):
                self._counters.duplicates_possible += len(batch)
            if isinstance(error, TimedOutError):
                self._context.attempts.record_timeout(limits.entity, timeout)
            raise
        if not sent:
            raise LocksExpiringError
        self._context.attempts.record_confirmation(limits.entity, self._context.clock.now() - started)

    def _record(self, batch: OutgoingBatch, entries: dict[int, BacklogEntry]) -> None:
        sent = [entries.pop(id(message)) for message in batch.messages]
        entity, refs = sent[0].entity, tuple(batch.refs)
        self.confirmed += sent
        self._context.emit(MessagesSyphoned(entity, self._queue, refs, self._context.clock.now()))
        self._counters.moved[entity] += len(sent)
        self.recent_max_bytes = max(self.recent_max_bytes, *(ref.size_bytes for ref in refs))

    def _timeout(self, limits: _Limits) -> float:
        """Return how long the next call may take. :raises LocksExpiringError: too little time remains."""
        attempts = self._context.attempts
        wanted = min(attempts.current(limits.entity), limits.max_attempt)
        remaining = limits.send_before - self._context.clock.now()
        if remaining < (wanted if attempts.is_lengthened(limits.entity) else _MIN_SEND_TIMEOUT):
            raise LocksExpiringError
        return min(wanted, remaining)

    async def _pack(self, destination: Destination, entries: dict[int, BacklogEntry]) -> list[OutgoingBatch]:
        packer: BatchPacker[OutgoingBatch] = BatchPacker(destination.new_batch, key=destination.batch_key)
        full: list[OutgoingBatch | None] = []
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
