"""Peek-lock receivers whose messages stay encoded, and are settled in runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

from azure.servicebus.aio import ServiceBusReceiver

from servicebus_pair.core.model.errors import LockLostError, ServiceError
from servicebus_pair.core.model.usage_meter import Operation
from servicebus_pair.core.protocol.encoded_message import broker_value
from servicebus_pair.core.sdk._private.frame_reader import mapped_error
from servicebus_pair.core.sdk._private.raw_receiver import RawReceiver, Settlement
from servicebus_pair.core.sdk.link import LinkOwner
from servicebus_pair.core.sdk.receive_link import ReceiveLink
from servicebus_pair.core.sdk.received_message import ReceivedMessage
from servicebus_pair.core.sdk.relay.delivery import RelayDelivery
from servicebus_pair.core.sdk.session_link import SessionLink

_LOCKED_UNTIL: Final = "x-opt-locked-until"
ResultT = TypeVar("ResultT")


class RelayReceiveLink(ReceiveLink):
    """A peek-lock receiver of one queue; the messages that it returns are :class:`RelayDelivery`.

    :ivar max_bytes: a receive ends with about so many bytes.
    """

    max_bytes = 2**24

    def __init__(
        self, client: LinkOwner, path: str, create_handler: Callable[[], Any], *, should_stop: Callable[[], bool]
    ) -> None:
        super().__init__(client, path, create_handler, should_stop=should_stop)
        self._raw: RawReceiver | None = None

    async def receive(self, *, max_messages: int, max_wait_time: float, timeout: float) -> list[ReceivedMessage]:
        """Receive up to ``max_messages`` messages, until there are no more for a moment; as in ``ReceiveLink``."""

        async def receive(raw: RawReceiver) -> list[tuple[int, bytes]]:
            found = await raw.receive(max_messages=max_messages, wait=max_wait_time, should_stop=self._should_stop)
            self.fell_silent = raw.fell_silent
            return found

        self.fell_silent = False
        received: list[tuple[int, bytes]] = []
        try:
            received = await self._call_raw("receive from", receive, timeout=max_wait_time + timeout)
        finally:
            # A receive that failed or was cancelled is billed as well.
            if received:
                self._client.meter.count_sizes(Operation.RECEIVE, [len(encoded) for _, encoded in received])
            else:
                self._client.meter.count(Operation.EMPTY_RECEIVE)
        if received and self._should_stop():
            self._client.meter.count(Operation.SETTLE, len(received))
            await self._call_raw(
                "settle on", lambda each: each.release(number for number, _ in received), timeout=timeout
            )
            return []
        # The first message was locked first.
        until = broker_value(received[0][1], _LOCKED_UNTIL) if received else None
        lock_ends = None if until is None else until / 1000
        return [
            RelayDelivery(encoded, delivery_id=number, receiver=self._raw, lock_ends=lock_ends)
            for number, encoded in received
        ]

    async def request(self, count: int, *, timeout: float) -> None:
        """Ask for ``count`` messages, which arrive until the next receive. :raises ServiceError: classified."""
        await self._call_raw("ask for messages of", lambda raw: raw.request(count), timeout=timeout)

    async def drain_credit(self, *, timeout: float) -> None:
        """Stop deliveries until the next receive; messages in transit are released without counting a delivery."""
        if self._raw_of(self._handler) is not None:
            await self._call_raw("take credit back from", RawReceiver.drain_credit, timeout=timeout)

    async def complete(
        self, messages: Sequence[ReceivedMessage], *, timeout: float, request: int = 0
    ) -> list[ServiceError | None]:
        """Complete messages and ask for ``request`` more, as in ``ReceiveLink``: they arrive with the confirmations."""
        return await self._settle_raw(messages, Settlement.COMPLETE, timeout=timeout, request=request)

    async def abandon(self, messages: Sequence[ReceivedMessage], *, timeout: float) -> list[ServiceError | None]:
        """Return messages to the queue, counting a delivery; return for each its failure or ``None``."""
        return await self._settle_raw(messages, Settlement.ABANDON, timeout=timeout)

    async def dead_letter(
        self, message: ReceivedMessage, *, reason: str, description: str, timeout: float
    ) -> ServiceError | None:
        """Move one message to the dead-letter queue; return the failure or ``None``."""
        error = (reason, description)
        [outcome] = await self._settle_raw([message], Settlement.DEAD_LETTER, error=error, timeout=timeout)
        return outcome

    async def _settle_raw(
        self,
        messages: Sequence[ReceivedMessage],
        settlement: Settlement,
        *,
        timeout: float,
        error: tuple[str, str] | None = None,
        request: int = 0,
    ) -> list[ServiceError | None]:
        raw = self._raw_of(self._handler)
        mine = [each for each in messages if isinstance(each, RelayDelivery) and each.receiver is raw]
        if raw is None or len(mine) < len(messages):
            where = f"settle on {self.path} on {self._client.namespace}"
            return [LockLostError(f"{where}: the link that delivered the messages is gone")] * len(messages)
        self._client.meter.count(Operation.SETTLE, len(messages))
        ids = [each.delivery_id for each in mine]
        try:
            failures = await self._call_raw(
                "settle on",
                lambda each: each.settle(ids, settlement, timeout=timeout, error=error, request=request),
                timeout=timeout,
            )
        except ServiceError as failure:
            return [failure] * len(messages)
        if not failures:
            return [None] * len(messages)
        errors = {number: self._classify(failure) for number, failure in failures.items()}
        return [errors.get(number) for number in ids]

    async def _call_raw(
        self, action: str, operation: Callable[[RawReceiver], Awaitable[ResultT]], *, timeout: float
    ) -> ResultT:
        async def call(receiver: ServiceBusReceiver) -> ResultT:
            await receiver.__aenter__()
            inner: Any = receiver
            self._raw = raw = self._raw_of(receiver) or RawReceiver(inner, max_bytes=self.max_bytes)
            try:
                return await operation(raw)
            except Exception as failure:
                raise mapped_error(inner, failure) from failure

        return await self._call(action, call, timeout=timeout)

    def _raw_of(self, handler: Any) -> RawReceiver | None:
        """Return what took over ``handler``; ``None`` if nothing has yet."""
        return self._raw if self._raw is not None and self._raw.receiver is handler else None


class RelaySessionLink(SessionLink, RelayReceiveLink):
    """A receiver of one session; the messages that it returns are :class:`RelayDelivery`."""
