"""``PairReceiver``: receives from an entity of the primary under a lock, and waits while the primary is down."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Collection, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final, Self

from servicebus_pair.core.health.prober import Prober
from servicebus_pair.core.model.errors import ConfigurationError, LockLostError, PairError, ServiceError
from servicebus_pair.core.model.interfaces import Clock
from servicebus_pair.core.model.logs import get_logger
from servicebus_pair.core.protocol.amqp_message import is_ping
from servicebus_pair.core.receive.message_fields import UnreadableMessageError, check_keys, message_fields
from servicebus_pair.core.receive.message_locks import MessageLocks
from servicebus_pair.core.sdk.namespace_client import NamespaceClient
from servicebus_pair.core.sdk.receive_link import ReceiveLink
from servicebus_pair.core.sdk.received_message import ReceivedMessage
from servicebus_pair.core.sdk.session_link import SessionLink

_log = get_logger(__name__)
NEXT_SESSION: Final = "*"
"""Stands for the next session that has messages and no other receiver."""
_CALL_TIMEOUT: Final = 10.0
# The longest wait of one call: it can be stopped at any time, but an accept of a session cannot.
_LONGEST_WAIT: Final = 60.0
_LONGEST_ACCEPT: Final = 30.0
# How long one session of several is waited on.
_SESSION_WAIT: Final = 1.0
_FIRST_PAUSE: Final = 1.0
# A receive that ends at once with nothing must not be repeated without a pause.
_EMPTY_PAUSE: Final = 0.05
_MAX_LINK_MESSAGES: Final = 500
_STOP_TIMEOUT: Final = 2.0
_UNREADABLE: Final = "Unreadable"
_SUBSCRIPTION: Final = re.compile("/subscriptions/", re.IGNORECASE)


@dataclass(frozen=True, slots=True, eq=False)
class InboundMessage:
    """A message that a :class:`PairReceiver` holds under a lock.

    :ivar fields: ``body`` and the fields that are set, as plain values; ``broker`` has what the broker says of it.
    """

    fields: Mapping[str, Any] = field(repr=False)
    received: ReceivedMessage = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiveContext:
    """What a receiver needs of its pair."""

    client: NamespaceClient
    prober: Prober
    clock: Clock
    ping_interval: float


class PairReceiver:
    """Receives from one queue or subscription of the primary; an asynchronous context manager.

    At least once: a message is gone only when :meth:`complete` was confirmed. Locks are renewed until a message is
    settled; messages that are still held when the receiver closes are returned to the queue.

    While the primary does not answer, :meth:`receive` waits: it logs that once, pings at growing intervals up to
    ``ping_primary_interval``, and goes on when a ping is answered. A ping that the service refuses for lack of rights
    is an answer, too.

    :param entity: path of a queue, or ``topic/Subscriptions/name``.
    :param session_id: receive one session; :data:`NEXT_SESSION` for one after the other.
    :param dead_letter: receive from the dead-letter queue.
    :ivar reserved_keys: a message with one of these, in its properties or in a map of its body, is unreadable.
    """

    def __init__(
        self, entity: str, context: ReceiveContext, *, session_id: str | None = None, dead_letter: bool = False
    ) -> None:
        self.entity = entity
        if session_id is not None and dead_letter:
            raise ConfigurationError("session_id is given with dead_letter: dead letters have no sessions")
        self._context = context
        self._clock = context.clock
        self._session_id = session_id
        self._dead_letter = dead_letter
        self.reserved_keys: Collection[str] = frozenset()
        self._link: ReceiveLink | None = None
        self._urgent = 0
        self._locks = MessageLocks(self._renew, entity=entity, clock=context.clock)
        self._aside: set[ReceivedMessage] = set()
        self._keeping: asyncio.Task[None] | None = None
        self._down_since: float | None = None
        self._pause = _FIRST_PAUSE

    async def __aenter__(self) -> Self:
        self._keeping = asyncio.create_task(self._locks.keep(), name="keep locks")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._keeping is not None:
            self._keeping.cancel()
            with suppress(asyncio.CancelledError):
                await self._keeping
        try:
            await self._return(self._locks.held())
        finally:
            link, self._link = self._link, None
            if link is not None:
                await link.close()

    async def receive(
        self,
        *,
        max_messages: int = 1,
        max_wait: float = inf,
        linger: float = 0.0,
        properties: Mapping[str, Any] | None = None,
        wait_for_primary: bool = True,
    ) -> list[InboundMessage]:
        """Receive up to ``max_messages``.

        A message with a value that JSON cannot hold, or a reserved key, is dead-lettered as ``Unreadable``; among the
        dead letters it stays where it is.

        :param max_wait: seconds until the first message; the time during which the primary is down does not count.
        :param linger: seconds to wait for more once there is one.
        :param properties: take only messages with these application properties; the others stay locked until the
            receiver closes, so that they do not come again meanwhile.
        :param wait_for_primary: while the primary is down, wait instead of raising.
        :raises ServiceError: the primary refuses to deliver, or is down and is not waited for.
        """
        taken: list[InboundMessage] = []
        end = self._clock.now() + max_wait
        while len(taken) < max_messages and (left := end - self._clock.now()) > 0:
            try:
                found = await self._receive_some(max_messages - len(taken), min(left, _LONGEST_WAIT))
            except ServiceError as error:
                if taken:
                    break  # the next call meets the failure again
                if not (wait_for_primary and _passes(error)):
                    raise
                end += await self._wait_for_primary(error)
                continue
            self._note_answer()
            found = [message for message in found if self._matches(message, properties)]
            if found and not taken:
                end = self._clock.now() + linger
            taken += found
        return taken

    async def complete(self, messages: Sequence[InboundMessage]) -> int:
        """Remove messages from the entity for good; return how many were not confirmed and may come again."""
        return await self._settle(messages, "complete")

    async def abandon(self, messages: Sequence[InboundMessage]) -> int:
        """Return messages to the entity, counting a delivery; the broker dead-letters what fails too often."""
        return await self._settle(messages, "abandon")

    async def release(self, messages: Sequence[InboundMessage]) -> None:
        """Return messages to the entity without counting a delivery; on the public path of the SDK one is counted."""
        await self._return([message.received for message in messages])

    async def dead_letter(self, messages: Sequence[InboundMessage], *, reason: str, description: str) -> int:
        """Move messages to the dead-letter queue; return how many were not confirmed."""
        return await self._dead_letter_received(
            [message.received for message in messages], reason=reason, description=description
        )

    async def _receive_some(self, most: int, wait: float) -> list[InboundMessage]:
        started = self._clock.now()
        link = await self._open_link(wait)
        if link is None:
            await self._after_nothing(self._clock.now() - started)
            return []
        try:
            received = await self._uncancelled(
                link.receive(
                    max_messages=min(most, _MAX_LINK_MESSAGES),
                    max_wait_time=min(wait, _SESSION_WAIT) if self._session_id == NEXT_SESSION else wait,
                    timeout=_CALL_TIMEOUT,
                )
            )
        except LockLostError:  # of the session, with its messages
            self._locks.drop(self._locks.held())
            await self._close_link()
            return []
        if not received:
            await self._after_nothing(self._clock.now() - started)
        self._locks.hold(received)
        pings = [each for each in received if each.decode_error is None and is_ping(each.content_type)]
        if pings:
            await self._settle_received(pings, "complete")
        return [message for each in received if each not in pings for message in await self._readable(each)]

    async def _uncancelled(self, call: Coroutine[Any, Any, list[ReceivedMessage]]) -> list[ReceivedMessage]:
        """Await a receive; when cancelled, end it first: a receive that is cancelled costs the link and its locks."""
        receiving = asyncio.ensure_future(call)
        try:
            return await asyncio.shield(receiving)
        except asyncio.CancelledError:
            async with self._interrupting():
                await asyncio.wait({receiving}, timeout=_STOP_TIMEOUT)
            if not receiving.done():
                receiving.cancel()
            elif not receiving.cancelled() and receiving.exception() is None:
                self._locks.hold(receiving.result())  # and returned when the receiver closes
            raise

    async def _after_nothing(self, seconds: float) -> None:
        if self._session_id == NEXT_SESSION and not self._locks:
            await self._close_link()  # the session is empty: accept another one
        if seconds < _EMPTY_PAUSE:
            await self._clock.sleep(_EMPTY_PAUSE)

    async def _open_link(self, wait: float) -> ReceiveLink | None:
        if self._link is not None:
            return self._link
        client = self._context.client
        if self._session_id is None:
            self._link = client.receive_link(
                self.entity, dead_letter=self._dead_letter, should_stop=lambda: self._urgent > 0
            )
            return self._link
        wanted = None if self._session_id == NEXT_SESSION else self._session_id
        session = client.session_link(
            self.entity,
            session_id=wanted,
            wait=min(wait, _LONGEST_ACCEPT),
            should_stop=lambda: self._urgent > 0,
        )
        try:
            accepted = await session.accept(timeout=_CALL_TIMEOUT)
        except BaseException:
            await session.close()
            raise
        if accepted is None:
            await session.close()
            return None
        self._link = session
        return session

    async def _close_link(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            await link.close()

    async def _readable(self, received: ReceivedMessage) -> list[InboundMessage]:
        try:
            fields = _all_fields(received)
            check_keys(fields, self.reserved_keys)
        except UnreadableMessageError as error:
            if self._dead_letter:
                self._aside.add(received)
            else:
                _log.warning("entity=%s: a message is dead-lettered, because it is unreadable: %s", self.entity, error)
                await self._dead_letter_received([received], reason=_UNREADABLE, description=str(error))
            return []
        return [InboundMessage(fields, received)]

    def _matches(self, message: InboundMessage, properties: Mapping[str, Any] | None) -> bool:
        found = message.fields.get("application_properties", {})
        if not properties or all(name in found and found[name] == value for name, value in properties.items()):
            return True
        self._aside.add(message.received)
        return False

    async def _settle(self, messages: Sequence[InboundMessage], action: str) -> int:
        return await self._settle_received([message.received for message in messages], action)

    async def _settle_received(self, messages: Sequence[ReceivedMessage], action: str) -> int:
        link = self._link
        if not messages or link is None:
            return len(messages)
        async with self._interrupting():
            settle = {"complete": link.complete, "abandon": link.abandon}[action]
            outcomes = await settle(messages, timeout=_CALL_TIMEOUT)
        return self._settled(messages, outcomes, action)

    async def _dead_letter_received(self, messages: Sequence[ReceivedMessage], *, reason: str, description: str) -> int:
        link = self._link
        if link is None:
            return len(messages)
        async with self._interrupting():
            outcomes = [
                await link.dead_letter(message, reason=reason, description=description, timeout=_CALL_TIMEOUT)
                for message in messages
            ]
        return self._settled(messages, outcomes, "dead-letter")

    def _settled(
        self, messages: Sequence[ReceivedMessage], outcomes: Sequence[ServiceError | None], action: str
    ) -> int:
        self._locks.drop(messages)
        failed = [error for error in outcomes if error is not None]
        if failed:
            _log.warning(
                "entity=%s: %s was not confirmed for messages=%d, which may come again: %s",
                self.entity,
                action,
                len(failed),
                failed[0],
            )
        return len(failed)

    async def _return(self, messages: Sequence[ReceivedMessage]) -> None:
        self._locks.drop(messages)
        self._aside.difference_update(messages)
        link = self._link
        if not messages or link is None:
            return
        try:
            async with self._interrupting():
                await link.release(messages, timeout=_CALL_TIMEOUT)
        except PairError as error:
            _log.info(
                "entity=%s: messages=%d come again when their locks expire: %s", self.entity, len(messages), error
            )

    async def _renew(self, messages: Sequence[ReceivedMessage]) -> Sequence[ServiceError | None]:
        link = self._link
        if link is None:
            return [None] * len(messages)
        async with self._interrupting():
            if not isinstance(link, SessionLink):
                return await link.renew_locks(messages, timeout=_CALL_TIMEOUT)
            try:
                await link.renew(timeout=_CALL_TIMEOUT)
            except ServiceError as error:
                return [error] * len(messages)
            return [None] * len(messages)

    @asynccontextmanager
    async def _interrupting(self) -> AsyncIterator[None]:
        """End a receive that is waiting: it occupies the link."""
        self._urgent += 1
        try:
            yield
        finally:
            self._urgent -= 1

    async def _wait_for_primary(self, error: ServiceError) -> float:
        """Wait until the entity answers a ping; return the seconds that this took."""
        started = self._clock.now()
        await self._close_link()
        if self._down_since is None:
            self._down_since, self._pause = started, _FIRST_PAUSE
            _log.warning("entity=%s: receiving waits until the primary answers a ping: %s", self.entity, error)
        while True:
            await self._clock.sleep(min(self._context.ping_interval, self._pause))
            self._pause *= 2
            queue_or_topic, *_ = _SUBSCRIPTION.split(self.entity)
            failure = await self._context.prober.probe(queue_or_topic, timeout=_CALL_TIMEOUT)
            if failure is None or not _passes(failure):
                return self._clock.now() - started

    def _note_answer(self) -> None:
        if self._down_since is not None:
            seconds = self._clock.now() - self._down_since
            _log.warning("entity=%s: the primary answers again after %.0f s: receiving goes on", self.entity, seconds)
            self._down_since = None


def _passes(error: ServiceError) -> bool:
    return error.retriable or error.triggers_failover


def _all_fields(received: ReceivedMessage) -> dict[str, Any]:
    if received.decode_error is not None:
        raise UnreadableMessageError(received.decode_error)
    return {**message_fields(received.amqp), "broker": _broker_fields(received)}


def _broker_fields(received: ReceivedMessage) -> dict[str, Any]:
    enqueued = received.enqueued_time
    fields = {
        "sequence_number": received.sequence_number,
        "enqueued_time": None if enqueued is None else enqueued.isoformat(),
        "delivery_count": received.delivery_count,
        "dead_letter_reason": received.dead_letter_reason,
        "dead_letter_description": received.dead_letter_error_description,
        "dead_letter_source": received.dead_letter_source,
    }
    return {name: value for name, value in fields.items() if value is not None}
