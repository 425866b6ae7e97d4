"""The receiver of the simulated SDK, with or without a session, and its list of sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusReceivedMessage
from azure.servicebus._pyamqp._decode import decode_payload
from azure.servicebus.exceptions import OperationTimeoutError

from servicebus_emulator.amqp.codec.delivery_encoder import encode_delivery
from servicebus_emulator.engine.model.errors import BrokerError, OperationNotAllowed, SessionLockLost
from servicebus_emulator.engine.model.message import Message
from servicebus_emulator.engine.model.session_locks import SessionLock
from servicebus_emulator.engine.namespace.entities import SubQueue
from servicebus_emulator.engine.queue.limits import receive_error
from servicebus_emulator.engine.queue.queue import MessageQueue
from tests.simulation.faults import Kind, Operation
from tests.simulation.link import Link
from tests.simulation.service import Receiving, Service

_DEFAULT_WAIT: Final = 60.0
_SILENT: Final = (Kind.SILENT, Kind.SILENT_DONE, Kind.SILENT_LATER)


class SessionBrowser(Link):
    def _attach(self) -> None:
        self._entity = self._service.entity(self._path)
        self._attached = self._service.incarnation

    async def list_sessions(self, *, timeout: float) -> list[str]:
        return await self._exchange(
            Operation.MANAGE, lambda: self._attached_entity().sub_queue(SubQueue.MAIN).session_ids(), timeout=timeout
        )


class Receiver(Link):
    def __init__(
        self,
        service: Service,
        path: str,
        *,
        dead_letter: bool,
        session_id: Any,
        max_wait_time: float | None,
    ) -> None:
        super().__init__(service, path)
        self._sub_queue = SubQueue.DEAD_LETTER if dead_letter else SubQueue.MAIN
        self._wanted_session = session_id
        self._max_wait_time = max_wait_time
        self._lock: SessionLock | None = None
        self._deliveries = 0
        self.session = None if session_id is None else _Session(self)

    async def _ensure_attached(self) -> None:
        if self._attached is None and self._wanted_session == NEXT_AVAILABLE_SESSION and self._wanted_session:
            await self._exchange(Operation.ATTACH, self._receivable)
            await self._wait_for_session()
        else:
            await super()._ensure_attached()

    def _receivable(self) -> MessageQueue:
        entity = self._service.entity(self._path)
        error = receive_error(entity.description)
        if error is not None:
            raise error
        queue = entity.sub_queue(self._sub_queue)
        if queue.settings.requires_session != (self._wanted_session is not None):
            raise OperationNotAllowed(f"{self._path!r} requires sessions, or does not; open the receiver accordingly")
        self._entity = entity
        return queue

    def _attach(self) -> None:
        queue = self._receivable()
        if self._wanted_session is not None:
            self._hold(queue, queue.accept_session(str(self._wanted_session)))
        self._attached = self._service.incarnation

    async def _wait_for_session(self) -> None:
        incarnation = self._service.incarnation
        lock = await self._wait(
            self._max_wait_time or _DEFAULT_WAIT, lambda found: self._receiving(found, limit=0, wants_session=True)
        )
        if lock is None:
            raise OperationTimeoutError(message="Timed out waiting for a session.")
        self._lock, self._attached = lock, incarnation

    def _hold(self, queue: MessageQueue, lock: SessionLock | None) -> None:
        assert lock is not None
        self._lock = lock
        self._service.accepted(queue, lock, self._process)

    def _detach(self) -> None:
        super()._detach()
        lock, self._lock = self._lock, None
        if lock is not None and self._entity is not None:
            self._service.close_session(self._queue, lock)

    @property
    def _queue(self) -> MessageQueue:
        assert self._entity is not None
        return self._entity.sub_queue(self._sub_queue)

    def _receiving(self, found: asyncio.Future[Any], *, limit: int, wants_session: bool = False) -> Receiving:
        assert self._entity is not None
        return Receiving(
            entity=self._entity,
            queue=self._queue,
            limit=limit,
            found=found,
            process=self._process,
            session_lock=self._lock,
            wants_session=wants_session,
        )

    async def _wait(self, seconds: float, receiving: Callable[[asyncio.Future[Any]], Receiving]) -> Any:
        """Wait until the service has something for this receiver; None when it has not, or the connection broke."""
        found = self._loop.create_future()
        waiting = receiving(found)
        self._service.receive(waiting)
        try:
            if not found.done():
                await asyncio.wait({found}, timeout=seconds)
            return found.result() if found.done() else None
        finally:
            self._service.stop_receiving(waiting)
            found.cancel()

    async def receive_messages(
        self, max_message_count: int | None = 1, max_wait_time: float | None = None
    ) -> list[ServiceBusReceivedMessage]:
        await self._ensure_attached()
        await self._may_be_killed()
        service, wait = self._service, max_wait_time or self._max_wait_time or _DEFAULT_WAIT
        if self._attached != service.incarnation:
            return await self._interrupted(wait)
        fault = service.faults.strike(Operation.RECEIVE, self._path, self._loop.time())
        if fault is not None:
            if fault.kind not in {Kind.SLOW_AFTER, Kind.SLOW_BEFORE}:
                return await self._interrupted(wait, silent=fault.kind in _SILENT)
            await asyncio.sleep(fault.delay)
        await self._transit()
        if self._attached != service.incarnation:
            return await self._interrupted(wait)
        try:
            found = await self._wait(wait, lambda future: self._receiving(future, limit=max_message_count or 1))
        except BrokerError as error:
            raise self._sdk_error(error, Operation.RECEIVE) from None
        await self._may_be_killed()
        if found is None:
            return []
        await self._transit()
        return [self._received(message) for message in found]

    async def _interrupted(self, wait: float, *, silent: bool = False) -> list[ServiceBusReceivedMessage]:
        """A receive that is interrupted may fail, or return nothing."""
        if not silent and self._service.random.random() < 0.5:
            await self._lost()
        await asyncio.sleep(wait)
        if not silent:
            self._detach()
        return []

    def _received(self, message: Message, *, peeked: bool = False) -> ServiceBusReceivedMessage:
        self._deliveries += 1
        token = b"" if message.lock is None else message.lock.token
        frame: Any = (0, self._deliveries, token)
        decoded = decode_payload(memoryview(encode_delivery(message)))
        return ServiceBusReceivedMessage(
            decoded, receiver=self, frame=None if peeked else frame, is_peeked_message=peeked
        )

    async def peek_messages(
        self, max_message_count: int = 1, *, sequence_number: int = 0, timeout: float | None = None
    ) -> list[ServiceBusReceivedMessage]:
        await self._ensure_attached()
        session_id = None if self._lock is None else self._lock.session_id

        def peek() -> list[ServiceBusReceivedMessage]:
            entity = self._attached_entity()
            error = receive_error(entity.description)
            if error is not None:
                raise error
            found = self._queue.peek(sequence_number, limit=max_message_count, session_id=session_id)
            return [self._received(message, peeked=True) for message in found]

        return await self._exchange(Operation.MANAGE, peek, timeout=timeout)

    async def complete_message(self, message: ServiceBusReceivedMessage) -> None:
        await self._settle(message, self._queue.complete)

    async def abandon_message(self, message: ServiceBusReceivedMessage) -> None:
        await self._settle(message, self._queue.abandon)

    async def defer_message(self, message: ServiceBusReceivedMessage) -> None:
        await self._settle(message, self._queue.defer)

    async def dead_letter_message(
        self, message: ServiceBusReceivedMessage, reason: str | None = None, error_description: str | None = None
    ) -> None:
        await self._settle(
            message, lambda token: self._queue.dead_letter(token, reason=reason, description=error_description)
        )

    async def renew_message_lock(self, message: ServiceBusReceivedMessage, *, timeout: float | None = None) -> datetime:
        until = await self._exchange(Operation.MANAGE, lambda: self._queue.renew_lock(_token(message)), timeout=timeout)
        message._expiry = datetime.fromtimestamp(until / 1000, UTC)
        return message._expiry

    async def _settle(self, message: ServiceBusReceivedMessage, settle: Callable[[bytes], None]) -> None:
        await self._exchange(Operation.SETTLE, lambda: settle(_token(message)))
        message._settled = True

    def held_lock(self) -> SessionLock:
        """:raises SessionLockLost: the receiver holds no session."""
        lock = self._lock
        if lock is None or not self._queue._sessions.is_current(lock):
            raise SessionLockLost("the session lock has expired")
        return lock


class _Session:
    """The session of a receiver."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver

    @property
    def session_id(self) -> str | None:
        lock = self._receiver._lock
        return None if lock is None else lock.session_id

    @property
    def locked_until_utc(self) -> datetime | None:
        lock = self._receiver._lock
        return None if lock is None else datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=lock.locked_until)

    async def renew_lock(self, *, timeout: float | None = None) -> datetime:
        receiver = self._receiver

        def renew() -> int:
            return receiver._queue.renew_session_lock(receiver.held_lock().session_id)

        until = await receiver._exchange(Operation.MANAGE, renew, timeout=timeout)
        return datetime.fromtimestamp(until / 1000, UTC)


def _token(message: ServiceBusReceivedMessage) -> bytes:
    return message._delivery_tag or b""
