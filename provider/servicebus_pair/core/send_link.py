"""The sender of one entity of one namespace, and whose turn on it is whose."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import inf
from typing import Final, TypeVar

from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusSender

from servicebus_pair.core.errors import AuthenticationError, AuthenticationSuspectError
from servicebus_pair.core.handing_over import send_encoded, takes_encoded
from servicebus_pair.core.link import Link
from servicebus_pair.core.meter import Operation
from servicebus_pair.core.wire import WireBatch

__all__ = ["SendLink", "Turn"]

# What a call is given when opening the link has used up its time.
_SHORTEST_SECONDS: Final = 0.1

ResultT = TypeVar("ResultT")


def _nothing() -> None:
    """Stand in where nobody needs to know."""


def _always() -> bool:
    """Stand in where nothing changes what is wanted."""
    return True


@dataclass(frozen=True, slots=True)
class Turn:
    """What a sender decides when its turn on a shared link has come, which may be long after it asked.

    :param seconds: how long the attempt may take from now on; ``None`` to leave it.
    :param wanted: asked again once the link is attached, which may have taken long; False to leave it.
    :param starting: told right before the first byte: from then on a failure leaves the messages in doubt.
    :param patience: how many seconds the turn is waited for before it is left.
    """

    seconds: Callable[[], float | None]
    wanted: Callable[[], bool] = _always
    starting: Callable[[], None] = _nothing
    patience: float = inf


class SendLink(Link):
    """A sender of one entity of one namespace, shared by everything in this process."""

    _limit = 0
    _largest = 0
    _direct = False
    takes_mixture = True
    """False once the entity refused a batch of several sessions; learned by who sends, kept for all."""

    @property
    def batch_limit(self) -> int:
        """Most bytes of a batch, as the service said when the link was opened last; 0 before."""
        return self._limit

    @property
    def message_limit(self) -> int:
        """Most bytes of a message outside a batch, which can be more; 0 before the link was opened."""
        return self._largest

    async def open(self, *, timeout: float) -> int:
        """Attach if needed and answer the most bytes of a batch.

        :param timeout: seconds.
        :raises ServiceError: classified.
        """
        await self.open_in_turn(Turn(seconds=lambda: timeout))
        return self._limit

    async def open_in_turn(self, turn: Turn) -> int | None:
        """As :meth:`open`, but as ``turn`` allows once the link is free; ``None`` when the turn was left."""

        async def attach(seconds: float) -> int:
            if not self.is_open:
                await self._attached_within(seconds)
            return self._limit

        return self._limit if self.is_open else await self._in_turn(turn, attach)

    async def reopen(self, *, timeout: float) -> None:
        """Attach anew, whatever the link has now: proof that the entity takes senders.

        :param timeout: seconds.
        :raises ServiceError: classified.
        """
        async with self._lock:
            self._discard()
            await self._attach(timeout)

    @property
    def attached(self) -> bool:
        """True when the last call, not too long ago, left a working link."""
        return self._handler is not None and not self._idle

    @property
    def is_open(self) -> bool:
        """True when the link is attached and its limits are known."""
        return self.attached and self._limit > 0

    async def send(self, batch: WireBatch, *, timeout: float) -> None:
        """Send one batch and wait for its acceptance. At least once: after an error it may be stored.

        :param timeout: seconds.
        :raises ServiceError: classified.
        """
        await self.send_in_turn(batch, Turn(seconds=lambda: timeout))

    async def send_in_turn(self, batch: WireBatch, turn: Turn) -> bool:
        """Send one batch as ``turn`` allows once the link is free, and wait for its acceptance.

        :returns: False when the turn was left: nothing was sent.
        :raises ServiceError: classified; the batch is in doubt if ``turn.starting`` was told.
        """

        async def send(seconds: float) -> bool:
            left = await self._attached_within(seconds)
            if not turn.wanted():
                return False
            turn.starting()
            self._client.meter.count_sizes(self._client.sends, (ref.size_bytes for ref in batch.refs))
            await self._attempt(
                "send to",
                lambda sender: self._hand_over(sender, batch, timeout=left),
                timeout=left,
                open_already=True,
            )
            return True

        return bool(await self._in_turn(turn, send))

    async def schedule_in_turn(self, batch: WireBatch, turn: Turn, *, at: datetime) -> list[int] | None:
        """Schedule messages as :meth:`send_in_turn` sends them, and answer their sequence numbers.

        :returns: ``None`` when the turn was left: nothing was scheduled.
        :raises ServiceError: classified.
        """

        async def schedule(seconds: float) -> list[int] | None:
            left = await self._attached_within(seconds)
            if not turn.wanted():
                return None
            turn.starting()
            self._client.meter.count_sizes(Operation.MANAGE, (ref.size_bytes for ref in batch.refs))
            return await self._attempt(
                "schedule on",
                lambda sender: sender.schedule_messages(batch.messages, at, timeout=left),
                timeout=left,
            )

        return await self._in_turn(turn, schedule)

    async def cancel_scheduled(self, sequence_numbers: Sequence[int], *, timeout: float) -> None:
        """Cancel scheduled messages. :raises ServiceError: classified; then all of them may still be there."""
        numbers = list(sequence_numbers)
        async with self._lock:
            left = await self._attached_within(timeout)
            self._client.meter.count(Operation.MANAGE, len(numbers))
            await self._attempt(
                "cancel on", lambda sender: sender.cancel_scheduled_messages(numbers, timeout=left), timeout=left
            )

    async def send_one(self, message: ServiceBusMessage, *, timeout: float) -> None:
        """Send a single message outside any batch, as a ping is sent; it is counted as one.

        :param timeout: seconds.
        :raises ServiceError: classified.
        """
        async with self._lock:
            left = await self._attached_within(timeout)
            self._client.meter.count(Operation.PING)
            await self._attempt("send to", lambda sender: sender.send_messages(message, timeout=left), timeout=left)

    def _hand_over(self, sender: ServiceBusSender, batch: WireBatch, *, timeout: float) -> Awaitable[None]:
        alone = batch.alone if self._direct else None
        if alone is None:
            return sender.send_messages(batch.wire, timeout=timeout)
        return send_encoded(sender, alone, timeout=timeout)

    async def _attached_within(self, seconds: float) -> float:
        """Attach if needed, and answer what is left of ``seconds``."""
        if self.attached:
            return seconds
        self._discard()
        began = asyncio.get_running_loop().time()
        await self._attach(seconds)
        return max(_SHORTEST_SECONDS, seconds - (asyncio.get_running_loop().time() - began))

    async def _in_turn(self, turn: Turn, act: Callable[[float], Awaitable[ResultT]]) -> ResultT | None:
        if self._lock.locked():
            try:
                async with asyncio.timeout(None if turn.patience == inf else turn.patience):
                    await self._lock.acquire()
            except TimeoutError:
                return None
        else:
            await self._lock.acquire()
        try:
            seconds = turn.seconds()
            return None if seconds is None else await act(seconds)
        finally:
            self._lock.release()

    async def _attach(self, timeout: float) -> None:
        async def attach(sender: ServiceBusSender) -> tuple[int, int]:
            batch = await sender.create_message_batch()
            self._direct = takes_encoded(sender)
            # The SDK shows the limit of batches only. Without the other one, large messages are refused here.
            return batch.max_size_in_bytes, int(getattr(sender, "_max_message_size_on_link", 0))

        began = asyncio.get_running_loop().time()
        try:
            self._limit, self._largest = await self._attempt("open a link to", attach, timeout=timeout)
        except (AuthenticationError, AuthenticationSuspectError) as error:
            left = max(_SHORTEST_SECONDS, timeout - (asyncio.get_running_loop().time() - began))
            explained = await self._client.explain(error, self.path, seconds=left)
            if explained is error:
                raise  # an error that is its own cause has no end
            raise explained from error
