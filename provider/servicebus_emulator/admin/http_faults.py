"""Faults applied to HTTP requests."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from servicebus_emulator.amqp.transport.packet_loss import lose_packets
from servicebus_emulator.engine.model.errors import BrokerError
from servicebus_emulator.faults import FaultKind, Operation, refusal_of

if TYPE_CHECKING:
    from aiohttp import web

    from servicebus_emulator.amqp.broker.fault_injector import FaultInjector


async def apply_fault(fault_injector: FaultInjector, *, request: web.Request, entity: str) -> BrokerError | None:
    """Apply the fault that strikes a request, if any; return the error to answer with, or None to continue.

    :param entity: the path of the entity that the request is about.
    """
    struck = fault_injector.strike(Operation.ADMINISTER, entity=entity)
    if struck is None:
        return None
    match struck.fault.kind:
        case FaultKind.FREEZE:
            await fault_injector.wait_until_over(struck)
        case FaultKind.DROP:
            await _lose_packets(request, until=fault_injector.wait_until_over(struck))
        case FaultKind.RESET:
            if request.transport is not None:
                request.transport.abort()
            return BrokerError("a fault was set: reset")
        case FaultKind.KILL:
            fault_injector.kill()
    return refusal_of(struck.fault)


async def _lose_packets(request: web.Request, *, until: Awaitable[None]) -> None:
    transport = request.transport
    if transport is not None:
        lose_packets(transport.get_extra_info("socket"), lost=True)
    await until
    if transport is not None and not transport.is_closing():
        lose_packets(transport.get_extra_info("socket"), lost=False)
