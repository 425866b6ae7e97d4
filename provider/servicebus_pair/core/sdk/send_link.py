"""Sender for one entity; serializes concurrent use of its AMQP link."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from math import inf, isfinite
from typing import Any, Final

from azure.servicebus.aio import ServiceBusSender

from servicebus_pair.core.model.errors import (
    AuthenticationError,
    AuthenticationSuspectError,
    RefusedError,
    ServiceError,
    ServiceFaultError,
)
from servicebus_pair.core.model.logs import get_logger
from servicebus_pair.core.model.usage_meter import Operation
from servicebus_pair.core.protocol.amqp_message import AmqpMessage
from servicebus_pair.core.protocol.batching import is_mixed, partition_key, session_key, split_by_session
from servicebus_pair.core.sdk._private.capabilities import fast_path
from servicebus_pair.core.sdk._private.sender_patches import patch_sender, send_preencoded
from servicebus_pair.core.sdk.link import Link, remaining_seconds
from servicebus_pair.core.sdk.message_batch import EncodedBatch, takes_preencoded
from servicebus_pair.core.sdk.messages import to_sdk

_log = get_logger(__name__)
STANDARD_BATCH_BYTES: Final = 262_144
"""The largest batch of the Standard tier, which every tier accepts."""
# Service Bus quotas: batches of the Premium tier, and the largest message that an entity can be set to take.
_PREMIUM_BATCH_BYTES: Final = 1_048_576
_MAX_MESSAGE_BYTES: Final = 104_857_600


def noop() -> None:
    """Do nothing."""


@dataclass(frozen=True, slots=True)
class SendSlot:
    """Decisions that a caller defers until the shared link is free, which may take long.

    :param attempt_timeout: returns the seconds that the attempt may take, or ``None`` to skip it.
    :param still_wanted: asked again once the link is attached; False skips the attempt.
    :param wait_seconds: how long to wait for the link before the attempt is skipped.
    """

    attempt_timeout: Callable[[], float | None]
    still_wanted: Callable[[], bool] = lambda: True
    wait_seconds: float = inf


class SendLink(Link):
    """A sender for one entity, shared by this process.

    Timeouts are in seconds, and each call raises a classified ``ServiceError``.
    """

    _max_batch_bytes = 0
    _max_message_bytes = 0
    _takes_preencoded: bool | None = None
    accepts_mixed_sessions = True
    """Whether a batch may mix sessions; set to False by the first caller whose batch is refused for that."""

    @property
    def max_batch_bytes(self) -> int:
        """Maximum size of a batch, as the service reported when the link was last attached; 0 before."""
        return self._max_batch_bytes

    @property
    def max_message_bytes(self) -> int:
        """Maximum size of a message outside a batch, which may be larger; 0 before the link was attached."""
        return self._max_message_bytes

    @property
    def is_open(self) -> bool:
        """True when the link is attached and its size limits are known."""
        return self.attached and bool(self._max_batch_bytes)

    @property
    def is_connected(self) -> bool:
        """True when the link holds a connection, alive or not."""
        return self._handler is not None

    @property
    def in_use(self) -> bool:
        """True while a call uses the link."""
        return self._lock.locked()

    def disconnect(self) -> None:
        """Close the connection in the background; the next call opens another one. Only while not in use."""
        self._discard()

    async def open(self, *, timeout: float) -> int:
        """Attach if needed and return the maximum size of a batch in bytes."""
        await self.open_in_slot(SendSlot(attempt_timeout=lambda: timeout))
        return self._max_batch_bytes

    async def open_in_slot(self, slot: SendSlot) -> int | None:
        """Like :meth:`open`, when ``slot`` allows it; ``None`` when the attempt was skipped."""
        if self.is_open:
            return self._max_batch_bytes
        timeout = await self._enter(slot)
        if timeout is None:
            return None
        try:
            await self._ensure_attached(timeout)
            return self._max_batch_bytes
        finally:
            self._lock.release()

    async def reopen(self, *, timeout: float) -> None:
        """Attach a new link, which proves that the entity accepts senders."""
        async with self._lock:
            self._discard()
            await self._attach(timeout)

    def new_batch(self) -> EncodedBatch:
        """Return an empty batch with the limits of the link, or of the Standard tier before it was attached."""
        return EncodedBatch(
            self._max_batch_bytes or STANDARD_BATCH_BYTES,
            max_message_bytes=self._max_message_bytes,
            preencodes=self._takes_preencoded,
        )

    def batch_key(self, message: AmqpMessage) -> Hashable:
        """Return the key that all messages of one batch must share."""
        return partition_key(message) if self.accepts_mixed_sessions else session_key(message)

    def refuses_mixture(self, error: ServiceError, messages: Sequence[AmqpMessage]) -> bool:
        """Return whether ``error`` refused a batch of these messages because they are of several sessions.

        Partitioned and session entities refuse such a batch (SPEC section 4); from then on, :meth:`batch_key` keeps
        sessions apart.
        """
        if not isinstance(error, RefusedError) or not is_mixed(messages):
            return False
        if self.accepts_mixed_sessions:
            _log.info("entity=%s refused a batch of several sessions: it gets one session per batch now", self.path)
            self.accepts_mixed_sessions = False
        return True

    def split_if_mixed(self, batch: EncodedBatch) -> list[EncodedBatch]:
        """Return the parts of a refused batch by session; none if it has one session only."""
        if not self.refuses_mixture(RefusedError(""), batch.messages):
            return []
        return [part for messages in split_by_session(batch.messages) for part in batch.repack(messages)]

    async def send(self, batch: EncodedBatch, *, timeout: float) -> None:
        """Send one batch and wait for its acceptance. At least once: after an error it may have been stored."""
        await self.send_in_slot(batch, SendSlot(attempt_timeout=lambda: timeout))

    async def send_in_slot(self, batch: EncodedBatch, slot: SendSlot, on_start: Callable[[], None] = noop) -> bool:
        """Like :meth:`send`, when ``slot`` allows it.

        :param on_start: called right before the first byte: from then on a failure leaves the messages in doubt.
        :returns: False when the attempt was skipped and nothing was sent.
        :raises ServiceError: classified; the batch may have been stored if ``on_start`` was called.
        """
        timeout = await self._enter(slot)
        if timeout is None:
            return False
        try:
            was_attached = self.attached
            remaining = timeout if was_attached else await self._ensure_attached(timeout)
            if not (was_attached or slot.still_wanted()):
                return False
            on_start()
            self._client.meter.count_sizes(self._client.send_operation, batch.sizes)
            sending = partial(self._send, batch=batch, timeout=remaining)
            await self._attempt("send to", sending, timeout=remaining, is_open=True)
            return True
        finally:
            self._lock.release()

    async def schedule_in_slot(
        self, batch: EncodedBatch, slot: SendSlot, on_start: Callable[[], None] = noop, *, at: datetime
    ) -> list[int] | None:
        """Schedule messages for ``at``, when ``slot`` allows it.

        :param on_start: as in :meth:`send_in_slot`.
        :returns: their sequence numbers; ``None`` when the attempt was skipped and nothing was scheduled.
        :raises ServiceError: classified; the messages may have been stored if ``on_start`` was called.
        """
        timeout = await self._enter(slot)
        if timeout is None:
            return None
        try:
            remaining = await self._ensure_attached(timeout)
            if not slot.still_wanted():
                return None
            on_start()
            self._client.meter.count_sizes(Operation.MANAGE, batch.sizes)
            scheduling = partial(_schedule, batch=batch, at=at, timeout=remaining)
            return await self._attempt("schedule on", scheduling, timeout=remaining)
        finally:
            self._lock.release()

    async def cancel_scheduled(self, sequence_numbers: Sequence[int], *, timeout: float) -> None:
        """Cancel scheduled messages. :raises ServiceError: classified; any of them may still be scheduled."""
        numbers = list(sequence_numbers)
        async with self._lock:
            remaining = await self._ensure_attached(timeout)
            self._client.meter.count(Operation.MANAGE, len(numbers))
            await self._attempt(
                "cancel on",
                lambda sender: sender.cancel_scheduled_messages(numbers, timeout=remaining),
                timeout=remaining,
            )

    async def send_ping(self, message: AmqpMessage, *, timeout: float) -> None:
        """Send a ping outside any batch; it is counted as a ping."""
        async with self._lock:
            remaining = await self._ensure_attached(timeout)
            self._client.meter.count(Operation.PING)
            await self._attempt(
                "send to", lambda sender: sender.send_messages(to_sdk(message), timeout=remaining), timeout=remaining
            )

    def _on_success(self) -> None:
        self._last_used = asyncio.get_running_loop().time()
        if self._client.idle_links.crowded:
            self._client.idle_links.trim(self)

    def _send(self, sender: ServiceBusSender, *, batch: EncodedBatch, timeout: float) -> Awaitable[None]:
        encoded = batch.encoded_form if self._takes_preencoded else None
        if encoded is None:
            return sender.send_messages(batch.public_form, timeout=timeout)
        return send_preencoded(sender, encoded, timeout=timeout)

    async def _ensure_attached(self, timeout: float) -> float:
        """Attach if needed and return what remains of ``timeout``."""
        if self.attached:
            return timeout
        self._discard()
        started = asyncio.get_running_loop().time()
        await self._attach(timeout)
        return remaining_seconds(timeout, since=started)

    async def _enter(self, slot: SendSlot) -> float | None:
        """Take the lock, which the caller releases, and return the attempt's timeout; ``None`` to skip it."""
        if self._lock.locked():
            try:
                async with asyncio.timeout(slot.wait_seconds if isfinite(slot.wait_seconds) else None):
                    await self._lock.acquire()
            except TimeoutError:
                return None
        else:
            await self._lock.acquire()
        timeout = None
        try:
            timeout = slot.attempt_timeout()
        finally:
            if timeout is None:
                self._lock.release()
        return timeout

    async def _attach(self, timeout: float) -> None:
        async def attach(sender: ServiceBusSender) -> tuple[int, int]:
            batch = await sender.create_message_batch()
            self._client.idle_links.connected(self)
            self._takes_preencoded = takes_preencoded()
            if fast_path():
                patch_sender(sender)
                inner: Any = sender
                return batch.max_size_in_bytes, int(inner._max_message_size_on_link)  # noqa: SLF001 - fast path
            # The SDK publishes the limit of batches only. Where that is the one of the Premium tier, a message may be
            # larger, by a setting of the entity; the service knows it.
            large = batch.max_size_in_bytes >= _PREMIUM_BATCH_BYTES
            return batch.max_size_in_bytes, _MAX_MESSAGE_BYTES if large else batch.max_size_in_bytes

        started = asyncio.get_running_loop().time()
        try:
            self._max_batch_bytes, self._max_message_bytes = await self._attempt(
                "open a link to", attach, timeout=timeout
            )
        except (AuthenticationError, AuthenticationSuspectError) as error:
            await self._raise_explained(error, timeout=timeout, since=started)


async def _schedule(sender: ServiceBusSender, *, batch: EncodedBatch, at: datetime, timeout: float) -> list[int]:
    """Return a sequence number for each message. :raises ServiceFaultError: the service gave something else."""
    given: Any = await sender.schedule_messages([to_sdk(each) for each in batch.messages], at, timeout=timeout)
    numbers: list[int] = given if isinstance(given, list) and all(type(each) is int for each in given) else []
    if len(numbers) != len(batch.messages):
        raise ServiceFaultError(f"the service gave {len(batch.messages)} messages {len(numbers)} sequence numbers")
    return numbers
