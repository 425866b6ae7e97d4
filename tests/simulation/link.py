"""What senders and receivers of the simulated SDK share: they attach, exchange, and are struck by faults."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Self, TypeVar

from azure.servicebus._pyamqp.error import AMQPLinkError, MessageException
from azure.servicebus.aio._transport._pyamqp_transport_async import PyamqpTransportAsync
from azure.servicebus.exceptions import (
    OperationTimeoutError,
    ServiceBusAuthenticationError,
    ServiceBusConnectionError,
    ServiceBusError,
)

from servicebus_emulator.engine.model.errors import BrokerError, OperationNotAllowed
from servicebus_emulator.engine.namespace.entities import QueueEntity
from servicebus_emulator.engine.namespace.entity_registry import deleted_error
from tests.simulated_time import current_process
from tests.simulation.faults import REFUSALS, Fault, Kind, Operation
from tests.simulation.service import Service

_log = logging.getLogger(__name__)
ResultT = TypeVar("ResultT")
# One way, in seconds.
LATENCY: Final = (0.001, 0.02)
# The share of operations of which client and service learn at different times.
_SLOW_ANSWERS: Final = 0.25
_LOST: Final = (Kind.REFUSED, Kind.LOST_BEFORE, Kind.LOST_AFTER)


class Link:
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
            await asyncio.sleep(self._service.random.uniform(*LATENCY))

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
        later: asyncio.Future[ResultT] = self._loop.create_future()
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
        await asyncio.sleep(self._service.random.uniform(*LATENCY))

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
