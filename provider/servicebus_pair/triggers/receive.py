"""``ServiceBusReceiveTrigger``: starts a DAG run for each message, or batch of messages, of an entity."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Hashable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from servicebus_pair.airflow_runtime.airflow_version import AdvanceItem, AdvanceOutcome, SharedStreamProducer
from servicebus_pair.airflow_runtime.reserved_keys import RESERVED_KEYS
from servicebus_pair.airflow_runtime.validators import duration, entity_path, flag, integer, optional, text
from servicebus_pair.airflow_runtime.waiting.deferral import PairTrigger
from servicebus_pair.airflow_runtime.waiting.pair_cache import shared_pair
from servicebus_pair.core.errors import PairError, ServiceError
from servicebus_pair.core.model import get_logger
from servicebus_pair.hooks.servicebus_pair import DEFAULT_CONN_ID, ServiceBusPairHook

if TYPE_CHECKING:
    from servicebus_pair.core import InboundMessage, PairReceiver

__all__ = ["ServiceBusReceiveTrigger"]

_log = get_logger(__name__)
# After an error that waiting does not mend, such as a missing entity: Airflow would restart a trigger that ends every
# 2 s, forever.
_RETRY_SECONDS: Final = 60.0
# A batch that could not be stored comes again; not at once, because the reason may last.
_FAILED_PAUSE: Final = 1.0
# Events that wait for the metadata database, with their messages locked.
_MAX_OUTSTANDING: Final = 64
# Where Airflow does not confirm that an event is stored: it does so every second or two.
_UNCONFIRMED_SECONDS: Final = 10.0
_MAX_AT_ONCE: Final = 8
# Beyond ``linger``, while there are always more.
_MORE_SECONDS: Final = 0.1
_TOO_LARGE: Final = "TooLargeForEvent"
_linger = duration(timedelta(0), timedelta(minutes=1))


@dataclass(frozen=True, slots=True)
class _Batch:
    receiver: PairReceiver
    messages: Sequence[InboundMessage]


class _MessageStream(SharedStreamProducer):
    """The messages of one entity as payloads of events; settles them once Airflow has stored the events."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self._conn_id: str = arguments["servicebus_pair_conn_id"]
        self._entity: str = arguments["entity"]
        self._session_id: str | None = arguments["session_id"]
        self._dead_letter: bool = arguments["dead_letter"]
        self._max_messages: int = arguments["max_messages"]
        self._linger: float = arguments["linger"]
        self._max_bytes: int = arguments["max_event_bytes"]
        self._slots = asyncio.Semaphore(_MAX_OUTSTANDING)
        self._opened = AsyncExitStack()
        self._receiver: PairReceiver | None = None

    async def open_stream(self) -> AsyncIterator[tuple[dict[str, Any], _Batch]]:
        """Yield the payload of an event and its messages, forever."""
        while True:
            try:
                receiver = await self._open()
                received = await self._receive(receiver)
                batches = [
                    _Batch(receiver, part) for part in self._split(await self._without_large(receiver, received))
                ]
            except Exception as error:  # noqa: BLE001  see _RETRY_SECONDS
                _log.log(
                    logging.ERROR,
                    "conn_id=%s entity=%s: cannot receive, again in %.0f s: %s",
                    self._conn_id,
                    self._entity,
                    _RETRY_SECONDS,
                    error,
                    exc_info=not isinstance(error, PairError),
                )
                await self.aclose()
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            for batch in batches:
                await self._slots.acquire()
                yield {"entity": self._entity, "messages": [dict(each.fields) for each in batch.messages]}, batch

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        """Complete the messages whose events are stored, and return the others to the entity."""
        for item in batch:
            receiver, messages = item.broker_payload.receiver, item.broker_payload.messages
            try:
                if item.outcome.rejected:
                    await receiver.dead_letter(
                        messages, reason="RejectedByTrigger", description="a trigger refused the message"
                    )
                elif item.outcome.is_clean:
                    await receiver.complete(messages)
                else:
                    _log.warning("entity=%s: events not stored, messages=%d come again", self._entity, len(messages))
                    await asyncio.sleep(_FAILED_PAUSE)
                    await receiver.release(messages)
            except PairError as error:
                _log.warning("entity=%s: messages=%d may come again: %s", self._entity, len(messages), error)
            finally:
                self._slots.release()

    async def aclose(self) -> None:
        """Return the messages that were not settled to the entity, and close."""
        opened, self._opened, self._receiver = self._opened, AsyncExitStack(), None
        await opened.aclose()

    async def _open(self) -> PairReceiver:
        if self._receiver is None:
            shared = await self._opened.enter_async_context(shared_pair(ServiceBusPairHook(self._conn_id)))
            receiver = shared.pair.receiver(self._entity, session_id=self._session_id, dead_letter=self._dead_letter)
            receiver.reserved_keys = RESERVED_KEYS
            self._receiver = await self._opened.enter_async_context(receiver)
        return self._receiver

    async def _receive(self, receiver: PairReceiver) -> list[InboundMessage]:
        """Receive until there is enough for an event, first one message and then a few at a time.

        A message may have 100 MB, and all that were asked for are in memory at once.
        """
        clock, most = asyncio.get_running_loop().time, 1
        received = found = await receiver.receive()
        total, end = sum(map(_size, found)), clock() + self._linger
        while len(received) < self._max_messages and total < self._max_bytes:
            wait = max(end - clock(), _MORE_SECONDS if len(found) == most else 0.0)
            most = min(2 * most, _MAX_AT_ONCE, self._max_messages - len(received))
            try:
                found = await receiver.receive(max_messages=most, max_wait=wait, wait_for_primary=False)
            except ServiceError:
                break  # the next call meets the failure again
            if not found:
                break
            received, total = [*received, *found], total + sum(map(_size, found))
        return received

    async def _without_large(self, receiver: PairReceiver, messages: Sequence[InboundMessage]) -> list[InboundMessage]:
        large = [message for message in messages if _size(message) > self._max_bytes]
        if large and self._dead_letter:
            _log.error("entity=%s: dead letters=%d are too large for an event", self._entity, len(large))
        elif large:
            description = f"the event would have more than max_event_bytes={self._max_bytes} bytes"
            _log.error("entity=%s: messages=%d are dead-lettered: %s", self._entity, len(large), description)
            await receiver.dead_letter(large, reason=_TOO_LARGE, description=description)
        return [message for message in messages if message not in large]

    def _split(self, messages: Sequence[InboundMessage]) -> Iterator[list[InboundMessage]]:
        """Split messages into events of at most ``max_event_bytes``."""
        part: list[InboundMessage] = []
        total = 0
        for message in messages:
            size = _size(message)
            if part and total + size > self._max_bytes:
                yield part
                part, total = [], 0
            part.append(message)
            total += size
        if part:
            yield part


def _size(message: InboundMessage) -> int:
    return len(json.dumps(message.fields))


class ServiceBusReceiveTrigger(PairTrigger, BaseEventTrigger):
    """Fires an event for each message of an entity, or for each batch; for an ``AssetWatcher``.

    A message is received under a lock, which is renewed, and completed only after Airflow has stored its event in the
    metadata database. At least once: when the triggerer dies in between, the message comes again. While the primary is
    down, the trigger waits until a ping is answered.

    Triggers with equal parameters share one receiver in a triggerer, and each gets every message; those that differ
    compete for messages. A message that is too large for an event, or has values that JSON cannot hold, is
    dead-lettered with a reason.

    Before Airflow 3.3 a message is completed 10 s after its event was fired, so an event that is not stored by then is
    lost; and every trigger has a receiver of its own.

    The event is ``{"entity": path, "messages": [{"body": ..., "message_id": ..., ..., "broker": {...}}]}``.

    :param entity: path of a queue, or ``topic/Subscriptions/name``.
    :param max_messages: messages of one event, 1 to 1000.
    :param linger: how long a batch waits for more messages after the first: a ``timedelta`` or seconds, at most a
        minute.
    :param session_id: receive one session; ``"*"`` for one after the other.
    :param dead_letter: receive from the dead-letter queue.
    :param max_event_bytes: size of an event as JSON, 1,000 to 16,777,216.
    :param servicebus_pair_conn_id: the connection of type ``servicebus_pair``; needs the Listen right on the primary.
    :raises ConfigurationError: a parameter is invalid.
    """

    def __init__(
        self,
        *,
        entity: str,
        servicebus_pair_conn_id: str = DEFAULT_CONN_ID,
        max_messages: int = 1,
        linger: timedelta | float = 1.0,
        session_id: str | None = None,
        dead_letter: bool = False,
        max_event_bytes: int = 262_144,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.servicebus_pair_conn_id = text("servicebus_pair_conn_id", servicebus_pair_conn_id)
        self.entity = entity_path("entity", entity)
        self.max_messages = integer(1, 1000)("max_messages", max_messages)
        self.linger = _linger("linger", linger).total_seconds()
        self.session_id = optional(text)("session_id", session_id)
        self.dead_letter = flag("dead_letter", dead_letter)
        self.max_event_bytes = integer(1000, 2**24)("max_event_bytes", max_event_bytes)
        self.check_arguments()

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and arguments that recreate this trigger; they contain no secrets."""
        return f"{type(self).__module__}.{type(self).__qualname__}", self._arguments()

    def _arguments(self) -> dict[str, Any]:
        return {
            "servicebus_pair_conn_id": self.servicebus_pair_conn_id,
            "entity": self.entity,
            "max_messages": self.max_messages,
            "linger": self.linger,
            "session_id": self.session_id,
            "dead_letter": self.dead_letter,
            "max_event_bytes": self.max_event_bytes,
        }

    def shared_stream_key(self) -> Hashable:
        """Return what triggers that share a receiver have in common."""
        return ("servicebus_pair", *(self._arguments() | {"entity": self.entity.casefold()}).values())

    @classmethod
    def create_shared_stream_producer(cls, kwargs: dict[str, Any]) -> SharedStreamProducer:
        """Return the receiver that Airflow tells which events it has stored."""
        return _MessageStream(kwargs)

    async def filter_shared_stream(self, shared_stream: AsyncIterator[Any]) -> AsyncIterator[TriggerEvent]:
        """Fire an event for each batch."""
        async for payload in shared_stream:
            # No await in between: a trigger that is cancelled there would count as one that took the batch.
            yield TriggerEvent(payload)  # type: ignore[no-untyped-call]

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Receive without Airflow's confirmation: a message is completed 10 s after its event was fired.

        Airflow uses :meth:`filter_shared_stream` instead, from 3.3 on. A triggerer that dies within these seconds
        loses nothing; an event that it cannot store for longer is lost.
        """
        stream = _MessageStream(self._arguments())
        settling: set[asyncio.Task[None]] = set()

        async def settle(batch: _Batch) -> None:
            await asyncio.sleep(_UNCONFIRMED_SECONDS)
            await stream.advance([AdvanceItem(batch, AdvanceOutcome(acked=1, failed=0))])

        try:
            async for payload, batch in stream.open_stream():
                yield TriggerEvent(payload)  # type: ignore[no-untyped-call]
                task = asyncio.create_task(settle(batch))
                settling.add(task)
                task.add_done_callback(settling.discard)
        finally:
            for task in settling:
                task.cancel()
            await stream.aclose()
