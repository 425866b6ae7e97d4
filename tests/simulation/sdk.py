"""The public interface of azure-servicebus over a namespace in memory.

Errors are made by the SDK's own table from what the service would say. What a fault looks like was measured
(EMULATOR.md section 2): some calls ignore their timeout, an interrupted receive returns nothing, and a lost answer
leaves open whether the operation was carried out.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from math import inf
from typing import Any, Final, Self, TypeVar
from unittest.mock import patch

from azure.servicebus import (
    NEXT_AVAILABLE_SESSION,
    ServiceBusMessage,
    ServiceBusMessageBatch,
    ServiceBusReceivedMessage,
    ServiceBusSubQueue,
)
from azure.servicebus._pyamqp._decode import decode_payload
from azure.servicebus._pyamqp._encode import encode_payload
from azure.servicebus._pyamqp.error import AMQPLinkError, MessageException
from azure.servicebus.aio._transport._pyamqp_transport_async import PyamqpTransportAsync
from azure.servicebus.exceptions import (
    OperationTimeoutError,
    ServiceBusAuthenticationError,
    ServiceBusConnectionError,
    ServiceBusError,
)

from servicebus_emulator.amqp.codec.delivery_encoder import encode_delivery
from servicebus_emulator.engine.model.errors import (
    BrokerError,
    EntityDisabled,
    EntityNotFound,
    OperationNotAllowed,
    SessionLockLost,
)
from servicebus_emulator.engine.model.message import Message
from servicebus_emulator.engine.model.session_locks import SessionLock
from servicebus_emulator.engine.namespace.entities import QueueEntity, SubQueue
from servicebus_emulator.engine.namespace.entity_registry import deleted_error
from servicebus_emulator.engine.queue.limits import max_batch_bytes, max_message_bytes, receive_error
from servicebus_emulator.engine.queue.queue import MessageQueue
from servicebus_pair.core.model.errors import UnreachableError
from servicebus_pair.core.model.options import Endpoint
from servicebus_pair.core.sdk import entity_lookup, message_batch, namespace_client, receive_link, send_link
from servicebus_pair.core.sdk._private.capabilities import PATH_VARIABLE, fast_path
from servicebus_pair.core.sdk._private.message_encoding import EncodedMessage
from tests.simulated_time import current_process
from tests.simulation.faults import REFUSALS, Fault, Kind, Operation
from tests.simulation.service import Receiving, Service

__all__ = ["replaced_sdk"]

_log = logging.getLogger(__name__)
ResultT = TypeVar("ResultT")
# One way, in seconds.
_LATENCY: Final = (0.001, 0.02)
# The share of operations of which client and service learn at different times.
_SLOW_ANSWERS: Final = 0.25
_DEFAULT_WAIT: Final = 60.0
# The place of the data in a message in the SDK's internal form.
_DATA: Final = 5
_SILENT: Final = (Kind.SILENT, Kind.SILENT_DONE, Kind.SILENT_LATER)
_LOST: Final = (Kind.REFUSED, Kind.LOST_BEFORE, Kind.LOST_AFTER)


@contextmanager
def replaced_sdk(services: dict[str, Service], *, preencoded: bool = False) -> Iterator[None]:
    """Let clients of the pair connect to services by the first label of their host.

    Only the public interface of the SDK is offered, so the pair must not use its inside. A receive that does so waits
    in short steps, to be stopped in between; here it waits at once, as idle receives are most of a year.

    :param preencoded: the pair encodes messages itself, as on the versions of the SDK that it was tested with.
    """
    with ExitStack() as stack:
        if preencoded:
            for module in (message_batch, send_link):
                stack.enter_context(patch.object(module, "fast_path", lambda: True))
            stack.enter_context(patch.object(send_link, "patch_sender", lambda _: None))
            stack.enter_context(patch.object(send_link, "send_preencoded", _send_preencoded))
        stack.enter_context(_public_sdk(services))
        yield


@contextmanager
def _public_sdk(services: dict[str, Service]) -> Iterator[None]:
    with (
        patch.object(namespace_client, "ServiceBusClient", _Clients(services)),
        patch.object(namespace_client, "shared_ssl_context", lambda *_, **__: None),
        patch.object(entity_lookup, "administration_for", _Administrations(services)),
        patch.dict(os.environ, {PATH_VARIABLE: "public"}),
        patch.object(receive_link, "_PUBLIC_WAIT", inf),
    ):
        fast_path.cache_clear()
        try:
            yield
        finally:
            fast_path.cache_clear()


class _Clients:
    """In place of the class ``azure.servicebus.aio.ServiceBusClient``."""

    def __init__(self, services: dict[str, Service]) -> None:
        self._services = services

    def from_connection_string(self, connection_string: str, **_: Any) -> _Client:
        host = connection_string.partition("sb://")[2]
        return _Client(self._services[host.partition(".")[0]])


class _Client:
    def __init__(self, service: Service) -> None:
        self._service = service

    async def __aenter__(self) -> Self:
        return self

    async def close(self) -> None:
        """Nothing is left to close."""

    def get_queue_sender(self, path: str, **_: Any) -> _Sender:
        return _Sender(self._service, path)

    get_topic_sender = get_queue_sender

    def get_queue_receiver(self, path: str, **options: Any) -> _Receiver:
        return _Receiver(
            self._service,
            path,
            dead_letter=options.get("sub_queue") in {ServiceBusSubQueue.DEAD_LETTER, "deadletter"},
            session_id=options.get("session_id"),
            max_wait_time=options.get("max_wait_time"),
        )

    async def list_queue_sessions(self, path: str, *, timeout: float) -> AsyncIterator[str]:
        async with _Browser(self._service, path) as browser:
            for session_id in await browser.list_sessions(timeout=timeout):
                yield session_id


class _Administrations:
    """In place of ``administration_for``: the SDK's client would ask the network."""

    def __init__(self, services: dict[str, Service]) -> None:
        self._services = services

    def __call__(self, endpoint: Endpoint, **_: Any) -> _Administration:
        return _Administration(self._services[endpoint.host.partition(".")[0]])


class _Administration(AbstractAsyncContextManager["_Administration"]):
    def __init__(self, service: Service) -> None:
        self._service = service

    async def __aexit__(self, *_: object) -> None:
        """Nothing is left to close."""

    async def entity_exists(self, path: str) -> bool:
        service = self._service
        await asyncio.sleep(service.random.uniform(*_LATENCY))
        if service.faults.strike(Operation.MANAGE, path, service.loop.time()) is not None:
            raise UnreachableError("the administration did not answer")
        try:
            service.entity(path)
        except EntityNotFound:
            return False
        return True


class _Link:
    """A sender, receiver or session browser: attaches on first use, and again after it was lost."""

    def __init__(self, service: Service, path: str) -> None:
        self._service = service
        self._path = path
        self._loop = service.loop
        self._process: Any = current_process()
        # The incarnation of the service to which the link is attached.
        self._attached: int | None = None
        self._entity: QueueEntity | None = None

    async def __aenter__(self) -> Self:
        await self._ensure_attached()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        if self._attached is not None:
            self._detach()
            await asyncio.sleep(self._service.random.uniform(*_LATENCY))

    async def _ensure_attached(self) -> None:
        if self._attached is None:
            await self._exchange(Operation.ATTACH, self._attach)

    def _attach(self) -> None:
        raise NotImplementedError

    def _detach(self) -> None:
        self._attached = None

    async def _exchange(
        self, operation: Operation, act: Callable[[], ResultT], *, timeout: float | None = None
    ) -> ResultT:
        """Carry out an operation and return its result, unless a fault strikes it.

        :raises ServiceBusError: as the SDK would.
        """
        await self._may_be_killed()
        service = self._service
        if operation is not Operation.ATTACH and self._attached != service.incarnation:
            await self._lost()
        fault = service.faults.strike(operation, self._path, self._loop.time())
        try:
            if fault is not None:
                return await self._struck(fault, operation, act, timeout)
            await self._transit()
            result = act()
            await self._may_be_killed()
            if service.random.random() < _SLOW_ANSWERS:
                await self._transit()
        except BrokerError as error:
            raise self._sdk_error(error, operation) from None
        return result

    async def _struck(
        self, fault: Fault, operation: Operation, act: Callable[[], ResultT], timeout: float | None
    ) -> ResultT:
        kind = fault.kind
        await self._transit()
        if kind is Kind.LOST_AFTER or kind is Kind.SILENT_DONE:
            with suppress(BrokerError):
                act()
            await self._may_be_killed()
        if kind in _LOST:
            await self._lost()
        if kind is Kind.TOKEN:
            raise ServiceBusAuthenticationError(message="CBS Token authentication failed.")
        if kind is Kind.NOT_FOUND and operation is not Operation.ATTACH:
            # The service detaches the link, and the SDK loses the condition.
            await self._lost()
        if kind in REFUSALS:
            error, description = REFUSALS[kind]
            raise error(description)
        if kind is Kind.SLOW_AFTER:
            result = act()
            await self._wait_at_most(fault.delay, timeout)
            return result
        later = self._loop.create_future()
        if kind is Kind.SLOW_BEFORE:
            self._loop.call_later(fault.delay, _settle, later, act, context=self._loop.world)
        elif kind is Kind.SILENT_LATER:
            self._loop.call_at(fault.until, _settle, self._loop.create_future(), act, context=self._loop.world)
        if kind is Kind.HANGS or timeout is None:
            return await later
        return await self._answered(later, timeout)

    async def _answered(self, later: asyncio.Future[ResultT], timeout: float) -> ResultT:
        await asyncio.wait({later}, timeout=timeout)
        if not later.done():
            raise OperationTimeoutError(message="Operation timed out.")
        return later.result()

    async def _wait_at_most(self, delay: float, timeout: float | None) -> None:
        if timeout is not None and delay > timeout:
            await asyncio.sleep(timeout)
            raise OperationTimeoutError(message="Operation timed out.")
        await asyncio.sleep(delay)

    async def _transit(self) -> None:
        await asyncio.sleep(self._service.random.uniform(*_LATENCY))

    async def _may_be_killed(self) -> None:
        if self._process is not None and self._process.burn_down():
            await self._loop.create_future()

    async def _lost(self) -> None:
        self._detach()
        await asyncio.sleep(0.005)
        raise ServiceBusConnectionError(message="The connection was lost.")

    def _sdk_error(self, error: BrokerError, operation: Operation) -> ServiceBusError:
        kind = AMQPLinkError if operation is Operation.ATTACH else MessageException
        failure = kind(condition=error.condition.encode(), description=str(error).encode())
        found: ServiceBusError = PyamqpTransportAsync.create_servicebus_exception(_log, failure)
        if found._shutdown_handler:
            self._detach()
        return found

    def _attached_entity(self) -> QueueEntity:
        """:raises BrokerError: the entity was deleted."""
        entity = self._entity
        if entity is None:
            raise OperationNotAllowed("not attached")
        error = deleted_error(entity)
        if error is not None:
            raise error
        return entity


class _Sender(_Link):
    _max_message_size_on_link = 0

    def _attach(self) -> None:
        entity = self._service.entity(self._path)
        status = entity.description.status
        if not status.accepts_sends:
            raise EntityDisabled(f"{self._path!r} has status {status.value}")
        self._entity = entity
        self._max_message_size_on_link = max_message_bytes(entity.description)
        self._attached = self._service.incarnation

    async def create_message_batch(self, max_size_in_bytes: int | None = None) -> ServiceBusMessageBatch:
        await self._ensure_attached()
        entity = self._entity
        assert entity is not None
        return ServiceBusMessageBatch(max_size_in_bytes or max_batch_bytes(entity.description))

    async def send_messages(self, message: Any, *, timeout: float | None = None) -> None:
        await self.send_encoded(_encoded(message), timeout=timeout)

    async def send_encoded(self, encoded: Sequence[bytes], *, timeout: float | None) -> None:
        await self._ensure_attached()
        await self._exchange(
            Operation.SEND, lambda: self._service.send(self._attached_entity(), encoded), timeout=timeout
        )

    async def schedule_messages(
        self, messages: Any, schedule_time_utc: datetime, *, timeout: float | None = None
    ) -> list[int]:
        await self._ensure_attached()
        given = messages if isinstance(messages, list) else [messages]
        for each in given:
            each.scheduled_enqueue_time_utc = schedule_time_utc
        encoded = [part for each in given for part in _encoded(each)]
        return await self._exchange(
            Operation.MANAGE, lambda: self._service.schedule(self._attached_entity(), encoded), timeout=timeout
        )

    async def cancel_scheduled_messages(self, sequence_numbers: Any, *, timeout: float | None = None) -> None:
        await self._ensure_attached()
        numbers = [sequence_numbers] if isinstance(sequence_numbers, int) else list(sequence_numbers)
        await self._exchange(Operation.MANAGE, lambda: self._attached_entity().cancel(numbers), timeout=timeout)


class _Browser(_Link):
    def _attach(self) -> None:
        self._entity = self._service.entity(self._path)
        self._attached = self._service.incarnation

    async def list_sessions(self, *, timeout: float) -> list[str]:
        return await self._exchange(
            Operation.MANAGE, lambda: self._attached_entity().sub_queue(SubQueue.MAIN).session_ids(), timeout=timeout
        )


class _Receiver(_Link):
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

    def __init__(self, receiver: _Receiver) -> None:
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


async def _send_preencoded(sender: _Sender, message: EncodedMessage | list[Any], *, timeout: float) -> None:
    """In place of the function that gives the SDK an encoded message, or a batch in its internal form."""
    parts = [message.encoded] if isinstance(message, EncodedMessage) else message[_DATA]
    await sender.send_encoded([bytes(each) for each in parts], timeout=timeout)


def _settle(future: asyncio.Future[Any], act: Callable[[], Any]) -> None:
    """Carry out an operation whose client may have gone."""
    try:
        result = act()
    except BrokerError as error:
        if not future.done():
            future.set_exception(error)
            future.exception()  # retrieved, should nobody wait for it
    else:
        if not future.done():
            future.set_result(result)


def _token(message: ServiceBusReceivedMessage) -> bytes:
    return message._delivery_tag or b""


def _encoded(message: Any) -> Sequence[bytes]:
    if isinstance(message, ServiceBusMessageBatch):
        return [bytes(each) for each in message._message[_DATA]]
    if isinstance(message, list):
        return [part for each in message for part in _encoded(each)]
    annotated = message.raw_amqp_message if isinstance(message, ServiceBusMessage) else message
    output = bytearray()
    encode_payload(output, PyamqpTransportAsync.to_outgoing_amqp_message(annotated))
    return [bytes(output)]
