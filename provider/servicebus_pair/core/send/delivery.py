"""One send from its first message to its end: what is taken, packed and accounted for (SPEC section 4)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from math import isfinite

from servicebus_pair.core.model.errors import SendCancelledError, SendError
from servicebus_pair.core.model.logs import get_logger
from servicebus_pair.core.model.results import SendResult
from servicebus_pair.core.protocol.amqp_message import AmqpMessage, check_message
from servicebus_pair.core.protocol.batching import BatchPacker
from servicebus_pair.core.sdk.messages import InputMessages, to_application
from servicebus_pair.core.send.backlog_copies import UnencodedBatch
from servicebus_pair.core.send.batch_delivery import BatchDelivery
from servicebus_pair.core.send.delivery_state import DeliveryState, SendOperation, TrackedBatch
from servicebus_pair.core.send.sender_context import SenderContext
from servicebus_pair.core.send.timeouts import Deadline

_log = get_logger(__name__)


class Delivery:
    """The delivery of one send: takes its messages, packs them, and keeps its account; used once.

    :param operation: sends or schedules a batch over the sender's link.
    :param timeout: seconds for the whole send; ``None`` for no limit.
    """

    def __init__(
        self, sender: SenderContext, *, operation: SendOperation, state: DeliveryState, timeout: float | None
    ) -> None:
        self._sender = sender
        self._link = sender.link
        self._state = state
        self._deadline = sender.no_deadline if timeout is None else Deadline(sender.pair.clock, timeout=timeout)
        self._batches = BatchDelivery(sender, operation=operation, state=state, deadline=self._deadline)
        self._packer: BatchPacker[TrackedBatch | UnencodedBatch] = BatchPacker(
            self._batches.new_batch, key=lambda tracked: self._link.batch_key(tracked.message)
        )

    async def run(self, messages: InputMessages) -> SendResult:
        """Deliver all of ``messages``.

        :raises SendError: with the messages that are accepted, unsent, refused and in doubt.
        :raises CancelledError: its cause carries the same, see ``find_send_error``.
        """
        try:
            for message in messages.available():
                await self._pack(message)
            if messages.is_stream:
                stream = messages.stream()
                while (streamed := await self._next(stream)) is not None:
                    await self._pack(streamed)
            for batch in self._packer.flush():
                await self._batches.deliver(batch)
            self._raise_if_refused()
        except (asyncio.CancelledError, Exception) as error:
            send_error = self._send_error(error, messages)
            if isinstance(error, asyncio.CancelledError):
                # asyncio.timeout recognizes its own cancellation only by exactly this class.
                raise asyncio.CancelledError(*error.args) from send_error
            raise send_error from error
        return self._state.result()

    async def _next(self, stream: AsyncIterator[AmqpMessage]) -> AmqpMessage | None:
        """Return the next message of a stream; ``None`` at its end.

        :raises SendTimeoutError: the stream took longer than the caller allows for the send.
        """
        remaining = self._deadline.remaining()
        limit = asyncio.timeout(remaining if isfinite(remaining) else None)
        try:
            async with limit:
                return await anext(stream, None)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise self._deadline.timeout_error(last=None) from error

    async def _pack(self, message: AmqpMessage) -> None:
        tracked = self._state.take(message)
        try:
            check_message(message)
        except Exception as error:  # noqa: BLE001 - see refuse
            self._batches.refuse(tracked, error)
            return
        if self._packer.is_empty and not self._link.is_open:
            await self._batches.open_link()
        try:
            full = self._packer.add(tracked)
        except Exception as error:  # noqa: BLE001 - see refuse
            self._batches.refuse(tracked, error)
            return
        if full is not None:
            await self._batches.deliver(full)

    def _raise_if_refused(self) -> None:
        for refused in self._state.refused:
            if refused.verdict is not None:
                raise refused.verdict

    def _send_error(self, error: BaseException, messages: InputMessages) -> SendError:
        state = self._state
        result, in_doubt, refused = state.result(), state.in_doubt, state.refused
        unsent = [*map(to_application, state.unsent), *messages.remaining()]
        summary = (
            f"sending to {self._sender.entity} ended with {result.primary} messages on the primary, "
            f"{result.diverted} in the backlog, {len(unsent)} unsent, {len(in_doubt)} of them in doubt"
            + (f" and {len(refused)} refused" if refused else "")
        )
        _log.warning("%s: %s", summary, type(error).__name__)
        kind, cause = SendError, error
        match error:
            case SendError():
                kind, cause = type(error), error.cause
            case asyncio.CancelledError():
                kind = SendCancelledError
        reason = str(error) or type(error).__name__
        account = kind(
            f"{summary}: {reason}", cause=cause, result=result, unsent=unsent, in_doubt=[*map(to_application, in_doubt)]
        )
        account.refused = tuple(to_application(each.message) for each in refused)
        account.verdicts = tuple(dict.fromkeys(str(each.verdict) for each in refused))
        account.sequence_numbers = tuple(state.sequence_numbers)
        return account
