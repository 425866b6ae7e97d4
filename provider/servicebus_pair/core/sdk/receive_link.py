"""Peek-lock receiver of one queue: receive, peek and settle."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

from azure.servicebus import ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusReceiver
from azure.servicebus.amqp import AmqpMessageBodyType
from azure.servicebus.exceptions import MessageAlreadySettled, MessageNotFoundError

from servicebus_pair.core.model.errors import InvalidMessageError, ServiceError, ServiceFaultError
from servicebus_pair.core.model.usage_meter import Operation
from servicebus_pair.core.protocol.message_outline import MessageOutline, OutlineReader
from servicebus_pair.core.sdk._private.capabilities import fast_path
from servicebus_pair.core.sdk._private.deferred_messages import remove_deferred
from servicebus_pair.core.sdk._private.peeking import peek_outlines
from servicebus_pair.core.sdk._private.receiver_patches import (
    PartialSettlementError,
    Settlement,
    can_settle_ranges,
    contiguous_ranges,
    drain_credit,
    has_buffered_messages,
    patch_receiver,
    release_ranges,
    settle_range,
)
from servicebus_pair.core.sdk.error_mapping import classify
from servicebus_pair.core.sdk.link import Link, LinkOwner
from servicebus_pair.core.sdk.received_message import OutlinedMessage, ReceivedMessage

_MAX_CONCURRENT_SETTLEMENTS: Final = 32
# The locks of buffered messages are already running, so a receive that starts with some waits for more only briefly.
_WAIT_WITH_BUFFERED_MESSAGES: Final = 0.2

# On the public path: how long a receive waits before it asks whether it should stop.
_PUBLIC_WAIT: Final = 0.25
# A reader goes on behind the last message, and no number is larger.
_LARGEST: Final = 2**63 - 1

_Messages: TypeAlias = Sequence[ServiceBusReceivedMessage]
_Outcomes: TypeAlias = dict[int, ServiceError | None]
"""The failure of each message, or ``None``, by the message's ``id()``."""


class ReceiveLink(Link):
    """A peek-lock receiver of one queue; its calls raise a classified ``ServiceError``, or return it for each message.

    :param should_stop: polled many times a second during a receive; once it returns True, the receive ends and takes
        no message.
    :ivar fell_silent: the last receive ended because nothing more came; only links that relay know that.
    :ivar outlines: if set, it reads peeked messages: each is an :class:`OutlinedMessage` where that is possible.
    """

    def __init__(
        self, client: LinkOwner, path: str, create_handler: Callable[[], Any], *, should_stop: Callable[[], bool]
    ) -> None:
        super().__init__(client, path, create_handler)
        self._should_stop = should_stop
        self.fell_silent = False
        self.outlines: OutlineReader | None = None

    async def receive(self, *, max_messages: int, max_wait_time: float, timeout: float) -> list[ReceivedMessage]:
        """Receive up to ``max_messages`` messages, waiting up to ``max_wait_time`` seconds for the first.

        An empty result does not prove that the service is healthy: a frozen peer also gives one. Messages that
        arrive while the link stops are released.
        """

        async def receive(receiver: ServiceBusReceiver) -> list[ServiceBusReceivedMessage]:
            if not fast_path():
                return await self._receive_publicly(receiver, max_messages, max_wait_time)
            count_bytes = self._client.meter.count_increments
            await patch_receiver(receiver, should_stop=self._should_stop, on_message_bytes=count_bytes)
            buffered = has_buffered_messages(receiver)
            wait = min(max_wait_time, _WAIT_WITH_BUFFERED_MESSAGES) if buffered else max_wait_time
            return await receiver.receive_messages(max_message_count=max_messages, max_wait_time=wait)

        received: list[ServiceBusReceivedMessage] = []
        try:
            received = await self._call("receive from", receive, timeout=max(max_wait_time, timeout))
        finally:
            # A receive that failed or was cancelled is billed as well.
            self._client.meter.count(Operation.RECEIVE if received else Operation.EMPTY_RECEIVE, len(received) or 1)
        if received and self._should_stop():
            await self._release(received, timeout=timeout)
            return []
        return [ReceivedMessage(each) for each in received]

    async def request(self, count: int, *, timeout: float) -> None:
        """Ask for messages that the next receive returns: only links that relay can."""

    async def release(self, messages: Sequence[ReceivedMessage], *, timeout: float) -> None:
        """Return messages to the queue without counting a delivery; on the public path one is counted.

        :raises ServiceError: the link has failed; the messages come again when their locks have expired.
        """
        await self._release(_inner(messages), timeout=timeout)

    async def renew_locks(self, messages: Sequence[ReceivedMessage], *, timeout: float) -> list[ServiceError | None]:
        """Renew the lock of each message; return for each its failure or ``None``."""

        def renew(receiver: ServiceBusReceiver, part: _Messages) -> Awaitable[Any]:
            [message] = part
            return receiver.renew_message_lock(message, timeout=timeout)

        inner = _inner(messages)
        outcomes = await self._settle([[each] for each in inner], renew, timeout, operation=Operation.RENEW)
        return [outcomes[id(each)] for each in inner]

    async def _receive_publicly(
        self, receiver: ServiceBusReceiver, max_messages: int, max_wait_time: float
    ) -> list[ServiceBusReceivedMessage]:
        """Receive in short waits: a longer one could not be stopped without losing the link."""
        await receiver.__aenter__()
        clock = asyncio.get_running_loop().time
        end = clock() + max_wait_time
        received: list[ServiceBusReceivedMessage] = []
        while not (received or self._should_stop()) and (remaining := end - clock()) > 0:
            wait = min(_PUBLIC_WAIT, remaining)
            received = await receiver.receive_messages(max_message_count=max_messages, max_wait_time=wait)
        for message in received:
            # The size is not published; that of the body is nearly all of it where increments are billed.
            if message.body_type is AmqpMessageBodyType.DATA:
                self._client.meter.count_increments(sum(map(len, message.body)))
        return received

    async def _release(self, messages: _Messages, *, timeout: float) -> None:
        if not self._can_settle_ranges():
            await self._settle_all(messages, "abandon", timeout=timeout)
            return
        self._client.meter.count(Operation.SETTLE, len(messages))
        await self._call("settle on", lambda receiver: release_ranges(receiver, messages), timeout=timeout)

    async def peek(self, *, max_messages: int, timeout: float, from_sequence_number: int = 1) -> list[ReceivedMessage]:
        """Return up to ``max_messages`` messages from a sequence number on, without locking them.

        The default is 1 because the SDK takes 0 for "after the last message peeked".

        :returns: in ascending order, so that a reader goes on behind the last one.
        :raises ServiceFaultError: the service repeats earlier messages, which would be read without end.
        """
        self._client.meter.count(Operation.MANAGE)
        if self.outlines is not None and fast_path():
            peek = partial(
                peek_outlines,
                reader=self.outlines,
                max_messages=max_messages,
                from_sequence_number=from_sequence_number,
                timeout=timeout,
            )
            found = await self._call("peek at", peek, timeout=timeout)
            return self._in_order(
                (
                    OutlinedMessage(each) if isinstance(each, MessageOutline) else ReceivedMessage(each)
                    for each in found
                ),
                first=from_sequence_number,
            )
        peeked: list[ServiceBusReceivedMessage] = await self._call(
            "peek at",
            lambda receiver: receiver.peek_messages(
                max_message_count=max_messages, sequence_number=from_sequence_number, timeout=timeout
            ),
            timeout=timeout,
        )
        return self._in_order(map(ReceivedMessage, peeked), first=from_sequence_number)

    def _in_order(self, peeked: Iterable[ReceivedMessage], *, first: int) -> list[ReceivedMessage]:
        ordered = sorted(peeked, key=lambda each: each.sequence_number)
        if ordered and not first <= (last := ordered[-1].sequence_number) < _LARGEST:
            raise ServiceFaultError(
                f"peek at {self.path} on {self._client.namespace}: from sequence number {first} on it returned {last} "
                "at most"
            )
        return ordered

    async def drain_credit(self, *, timeout: float) -> None:
        """Stop deliveries until the next receive; messages in transit are released without counting a delivery.

        On the public path they stay locked until the link closes, or for one lock duration.
        """
        if self._handler is not None and fast_path():
            await self._call("take credit back from", drain_credit, timeout=timeout)

    def detach_soon(self) -> None:
        """Detach in the background; the next call attaches again."""
        self._discard()

    async def complete(
        self,
        messages: Sequence[ReceivedMessage],
        *,
        timeout: float,
        request: int = 0,  # noqa: ARG002 - of links that relay
    ) -> list[ServiceError | None]:
        """Complete messages; return for each its failure or ``None``.

        Consecutive deliveries are settled together. Only messages that the service did not confirm have a failure.
        """
        return await self._settle_all(_inner(messages), "complete", timeout=timeout)

    async def abandon(self, messages: Sequence[ReceivedMessage], *, timeout: float) -> list[ServiceError | None]:
        """Return messages to the queue, counting a delivery; return for each its failure or ``None``."""
        return await self._settle_all(_inner(messages), "abandon", timeout=timeout)

    async def defer(self, messages: Sequence[ReceivedMessage], *, timeout: float) -> list[ServiceError | None]:
        """Set messages aside, to be received by sequence number only; return for each its failure or ``None``."""
        return await self._settle_all(_inner(messages), "defer", timeout=timeout)

    async def receive_deferred(self, numbers: Sequence[int], *, timeout: float) -> list[ReceivedMessage] | None:
        """Lock deferred messages by sequence number; ``None`` if one of them is not there or is locked."""

        async def receive(receiver: ServiceBusReceiver) -> list[ServiceBusReceivedMessage] | None:
            try:
                return await receiver.receive_deferred_messages(list(numbers), timeout=timeout)
            except MessageNotFoundError:
                return None

        self._client.meter.count(Operation.RECEIVE, len(numbers))
        received = await self._call("receive deferred messages from", receive, timeout=timeout)
        return None if received is None else [ReceivedMessage(each) for each in received]

    async def remove_deferred(self, numbers: Sequence[int], *, timeout: float) -> bool:
        """Remove deferred messages by sequence number; False if one of them is not there or is locked.

        On the fast path all or none are removed.
        """

        async def remove(receiver: ServiceBusReceiver) -> bool:
            try:
                if fast_path():
                    await remove_deferred(receiver, numbers, timeout=timeout)
                else:
                    for message in await receiver.receive_deferred_messages(list(numbers), timeout=timeout):
                        await receiver.complete_message(message)
            except MessageNotFoundError:
                return False
            return True

        self._client.meter.count(Operation.RECEIVE, len(numbers))
        return await self._call("remove deferred messages from", remove, timeout=timeout)

    async def dead_letter(
        self, message: ReceivedMessage, *, reason: str, description: str, timeout: float
    ) -> ServiceError | None:
        """Move one message to the dead-letter queue; return the failure or ``None``."""

        def settle(receiver: ServiceBusReceiver, part: _Messages) -> Awaitable[None]:
            [message] = part
            return receiver.dead_letter_message(message, reason=reason, error_description=description)

        inner = message.sdk_message
        return (await self._settle([[inner]], settle, timeout))[id(inner)]

    async def _settle_all(
        self, messages: _Messages, settlement: Settlement, *, timeout: float
    ) -> list[ServiceError | None]:
        def settle_one(receiver: ServiceBusReceiver, part: _Messages) -> Awaitable[None]:
            [message] = part
            match settlement:
                case "complete":
                    return receiver.complete_message(message)
                case "abandon":
                    return receiver.abandon_message(message)
                case "defer":
                    return receiver.defer_message(message)

        def settle_together(receiver: ServiceBusReceiver, part: _Messages) -> Awaitable[None]:
            return settle_range(receiver, part, settlement, timeout=timeout)

        if self._can_settle_ranges():
            outcomes = await self._settle(list(contiguous_ranges(messages)), settle_together, timeout)
        else:
            outcomes = await self._settle([[message] for message in messages], settle_one, timeout)
        return [outcomes[id(message)] for message in messages]

    def _can_settle_ranges(self) -> bool:
        return fast_path() and self._handler is not None and can_settle_ranges(self._handler)

    async def _settle(
        self,
        parts: Sequence[_Messages],
        settle: Callable[[ServiceBusReceiver, _Messages], Awaitable[Any]],
        timeout: float,
        *,
        operation: Operation = Operation.SETTLE,
    ) -> _Outcomes:
        """Settle all parts, 32 at a time; a failure of one does not stop the others."""
        slots = asyncio.Semaphore(_MAX_CONCURRENT_SETTLEMENTS)
        self._client.meter.count(operation, sum(map(len, parts)))

        async def settle_part(receiver: ServiceBusReceiver, part: _Messages) -> _Outcomes:
            async with slots:
                try:
                    await asyncio.wait_for(settle(receiver, part), timeout)
                except PartialSettlementError as partial:
                    return _outcomes(part, self._classify(partial.__cause__ or partial), partial.confirmed)
                except Exception as failure:  # noqa: BLE001 - reported per message
                    return _outcomes(part, self._classify(failure))
            return _outcomes(part, None)

        async def settle_parts(receiver: ServiceBusReceiver) -> list[_Outcomes]:
            return list(await asyncio.gather(*(settle_part(receiver, part) for part in parts)))

        rounds = 1 + len(parts) // _MAX_CONCURRENT_SETTLEMENTS
        try:
            outcomes = await self._call("settle on", settle_parts, timeout=timeout * rounds)
        except ServiceError as error:
            outcomes = [_outcomes(part, error) for part in parts]
        return {message: outcome for part in outcomes for message, outcome in part.items()}

    def _blame(self, failure: Exception, error: ServiceError) -> ServiceError:
        """Blame the service for what is no message of the caller: an answer of another type than the SDK believes."""
        if isinstance(error, InvalidMessageError) and not isinstance(failure, MessageAlreadySettled):
            return ServiceFaultError(str(error))
        return error

    def _classify(self, failure: BaseException) -> ServiceError:
        where = f"settle on {self.path} on {self._client.namespace}"
        return classify(failure, where=where, authenticated=self._client.authenticated)


def _inner(messages: Sequence[ReceivedMessage]) -> _Messages:
    return [message.sdk_message for message in messages]


def _outcomes(part: _Messages, error: ServiceError | None, confirmed: Collection[int] = ()) -> _Outcomes:
    return {id(message): None if id(message) in confirmed else error for message in part}
