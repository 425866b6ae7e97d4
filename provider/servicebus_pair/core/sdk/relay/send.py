"""A sender of encoded batches to one entity, several at a time over one link."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

from servicebus_pair.core.model.usage_meter import Operation
from servicebus_pair.core.protocol.amqp_message import AmqpMessage
from servicebus_pair.core.protocol.relay_batch import RelayBatch
from servicebus_pair.core.protocol.relayed_message import RelayedMessage
from servicebus_pair.core.sdk._private.raw_sender import RawSender
from servicebus_pair.core.sdk.error_mapping import classify
from servicebus_pair.core.sdk.link import remaining_seconds
from servicebus_pair.core.sdk.relay.encoding import encode_message
from servicebus_pair.core.sdk.send_link import SendLink, SendSlot, noop


@dataclass(slots=True, eq=False)
class _Attachment:
    """An open sender of the SDK, and how many sends use it."""

    handler: Any
    raw: RawSender
    users: int = 0
    retired: bool = False


class RelaySendLink(SendLink):
    """A sender for one entity, whose outcomes are awaited side by side."""

    _attachment: _Attachment | None = None

    @property
    def in_use(self) -> bool:
        """True while a call uses the link."""
        return super().in_use or (self._attachment is not None and bool(self._attachment.users))

    def new_batch(self) -> RelayBatch:  # type: ignore[override]  # of encoded messages only
        """Return an empty batch with the limits of the link, which :meth:`open` has attached."""
        return RelayBatch(self.max_batch_bytes, max_message_bytes=self.max_message_bytes)

    def batch_key(self, message: RelayedMessage) -> Hashable:  # type: ignore[override]  # the same
        """Return the key that all messages of one batch must share."""
        key = message.partition_key
        return key if self.accepts_mixed_sessions else (key, message.session_id)

    def split_if_mixed(self, batch: RelayBatch) -> list[RelayBatch]:  # type: ignore[override]  # the same
        """Return the parts of a refused batch by session; none if it has one session only."""
        parts: dict[Hashable, list[RelayedMessage]] = {}
        for message in batch.messages:
            parts.setdefault((message.partition_key, message.session_id), []).append(message)
        if len(parts) == 1:
            return []
        self.accepts_mixed_sessions = False
        return [part for messages in parts.values() for part in batch.repack(messages)]

    async def send_in_slot(  # type: ignore[override]  # the same
        self, batch: RelayBatch, slot: SendSlot, on_start: Callable[[], None] = noop
    ) -> bool:
        """Send a batch, when ``slot`` allows it; several may be under way."""
        timeout = slot.attempt_timeout()
        if timeout is None:
            return False
        attachment, remaining = await self._attached_within(timeout)
        if not slot.still_wanted():
            return False
        on_start()
        sizes = [len(message.encoded) for message in batch.messages]
        self._client.meter.count_sizes(self._client.send_operation, sizes)
        await self._send_raw(attachment, batch, remaining)
        return True

    async def send_ping(self, message: AmqpMessage, *, timeout: float) -> None:
        """Send a ping outside any batch; it is counted as a ping."""
        attachment, remaining = await self._attached_within(timeout)
        batch = self.new_batch()
        batch.try_add(encode_message(message))
        self._client.meter.count(Operation.PING)
        await self._send_raw(attachment, batch, remaining)

    async def _attached_within(self, timeout: float) -> tuple[_Attachment, float]:
        started = asyncio.get_running_loop().time()
        async with self._lock:
            remaining = await self._ensure_attached(remaining_seconds(timeout, since=started))
            current = self._attachment
            if current is None or current.handler is not self._handler or not current.raw.is_usable:
                if current is not None and current.handler is self._handler:
                    self._discard()
                    remaining = await self._ensure_attached(remaining)
                self._attachment = current = _Attachment(self._handler, RawSender(self._handler))
            return current, remaining

    async def _send_raw(self, attachment: _Attachment, batch: RelayBatch, timeout: float) -> None:
        payload, message_format = batch.payload()
        attachment.users += 1
        try:
            await attachment.raw.send(payload, message_format=message_format, timeout=timeout)
        except asyncio.CancelledError:
            self._retire(attachment)
            raise
        except Exception as failure:
            if isinstance(failure, TimeoutError) or not attachment.raw.is_usable:
                self._retire(attachment)
            where = f"send to {self.path} on {self._client.namespace}"
            raise classify(failure, where=where, authenticated=self._client.authenticated) from failure
        finally:
            attachment.users -= 1
            if attachment.retired and not attachment.users:
                self._client.close_soon(attachment.handler)
        self._client.authenticated = True
        self._on_success()

    def _retire(self, attachment: _Attachment) -> None:
        """Use the link for no further sends; those under way may end."""
        if self._handler is attachment.handler:
            self._handler = self._attachment = None
        attachment.retired = True

    def _discard(self) -> None:
        attachment = self._attachment
        if attachment is not None and attachment.handler is self._handler and attachment.users:
            self._retire(attachment)
        else:
            super()._discard()
