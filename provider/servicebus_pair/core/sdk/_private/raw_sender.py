"""Sends encoded messages and batches over a link of azure-servicebus (7.15), several at a time.

The SDK numbers a delivery after its frames are written, and so mixes deliveries that are sent at the same time; and it
waits for the outcome of one before it sends the next. Here one delivery is written at a time, and the outcomes are
awaited side by side.

Used only where ``capabilities.fast_path()`` is true; so private names are imported on use.
"""

# ruff: noqa: SLF001 - private members are what this module is about

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

from servicebus_pair.core.protocol.amqp_sections import binary, join_list, section, uint
from servicebus_pair.core.sdk._private.frame_reader import (
    FrameReader,
    check_attached,
    mapped_error,
    stop_keep_alive,
)

_TRANSFER: Final = 0x14
_FRAME_HEADER: Final = struct.Struct(">IBBH")
_TRUE: Final = b"\x41"
_FALSE: Final = b"\x42"
# Header and transfer performative.
_FRAME_OVERHEAD: Final = 64
_LISTEN: Final = 0.2
_ACCEPTED: Final = "accepted"


class RawSender:
    """Takes over an open sender of the SDK; may be used by several tasks at a time."""

    def __init__(self, sender: Any) -> None:
        self._sender = sender
        self._handler = handler = sender._handler
        self._link = link = handler._link
        self._session = handler._session
        self._connection = handler._connection
        self._writing = asyncio.Lock()
        # Delivery count up to which the service has given credit.
        self._credit_limit: int = link.delivery_count + link.current_link_credit
        self._incoming_flow = link._incoming_flow
        link._incoming_flow = self._take_flow
        stop_keep_alive(handler)
        self._reader = FrameReader(handler._connection, lambda *_: False)

    async def send(self, payload: bytes, *, message_format: int, timeout: float) -> None:
        """Send one delivery and wait until it is accepted.

        :raises TimeoutError: there was no answer in time.
        :raises Exception: the SDK's: it was not accepted, or the link is lost.
        """
        try:
            async with asyncio.timeout(timeout):
                async with self._writing:
                    delivery = await self._write(payload, message_format)
                while not delivery.settled:
                    await self._listen()
        except Exception as failure:
            raise mapped_error(self._sender, failure) from failure
        if delivery.error is not None:
            raise mapped_error(self._sender, delivery.error) from delivery.error

    @property
    def is_usable(self) -> bool:
        """Whether the link is still attached."""
        try:
            check_attached(self._handler)
        except Exception:  # noqa: BLE001 - whatever the reason
            return False
        return True

    async def _write(self, payload: bytes, message_format: int) -> _Delivery:
        link, session = self._link, self._session
        check_attached(self._handler)
        while link.delivery_count >= self._credit_limit or session.remote_incoming_window <= 0:
            await self._listen()
        link.delivery_count += 1
        delivery = _Delivery(session.next_outgoing_id)
        frames = list(self._frames(payload, delivery.frame["delivery_id"], message_format))
        session.next_outgoing_id += 1
        session.remote_incoming_window -= len(frames)
        session.outgoing_window -= 1
        link._pending_deliveries.append(delivery)
        self._connection._last_frame_sent_time = time.time()
        await self._connection._transport.write(b"".join(frames))
        return delivery

    def _frames(self, payload: bytes, delivery_id: int, message_format: int) -> Iterator[bytes]:
        channel, handle = self._session.channel, uint(self._link.handle)
        tag = binary(struct.pack(">I", self._link.delivery_count & 0xFFFFFFFF))
        size = self._connection._remote_max_frame_size - _FRAME_OVERHEAD
        for start in range(0, len(payload) or size, size):
            part = payload[start : start + size]
            more = _TRUE if start + size < len(payload) else _FALSE
            fields = (handle, uint(delivery_id), tag, uint(message_format), _FALSE, more)
            performative = section(_TRANSFER, join_list(fields))
            yield _FRAME_HEADER.pack(8 + len(performative) + len(part), 2, 0, channel) + performative + part

    async def _listen(self) -> None:
        authenticator = self._handler._cbs_authenticator
        # The SDK would number a token's delivery like one that is written at the same time.
        if authenticator is not None and not self._writing.locked():
            async with self._writing:
                await authenticator.handle_token()
        await self._reader.listen(_LISTEN)
        check_attached(self._handler)

    async def _take_flow(self, frame: Any) -> None:
        delivery_count, credit = frame[5], frame[6]
        if frame[4] is not None and credit is not None and delivery_count is not None:
            self._credit_limit = delivery_count + credit
        await self._incoming_flow(frame)


class _Delivery:
    """What the SDK's sender link keeps of a delivery whose outcome it awaits.

    :ivar error: why it was not accepted.
    """

    sent = True
    timeout = None

    def __init__(self, delivery_id: int) -> None:
        self.frame = {"delivery_id": delivery_id}
        self.settled = False
        self.error: Exception | None = None

    async def on_settled(self, reason: Any, state: Any) -> None:
        """Take the outcome, in the SDK's decoded form."""
        from azure.servicebus._pyamqp.constants import LinkDeliverySettleReason
        from azure.servicebus._pyamqp.error import ErrorCondition, MessageException

        self.settled = True
        if reason is LinkDeliverySettleReason.DISPOSITION_RECEIVED and state and _ACCEPTED in state:
            return
        condition: Any = ErrorCondition.UnknownError
        description: Any = f"the service answered {state or reason.name}"
        match state:
            case {"rejected": [[condition, str() | bytes() as description, *_]]}:
                pass
            case {"rejected": [[condition, *_]]}:  # a description may be missing
                pass
        with suppress(ValueError):
            condition = ErrorCondition(condition)
        self.error = MessageException(condition, description=description)
