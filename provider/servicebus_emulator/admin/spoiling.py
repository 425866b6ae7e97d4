"""What a fault does to a request over HTTP."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from servicebus_emulator.amqp.packets import lose_packets
from servicebus_emulator.engine.errors import BrokerError
from servicebus_emulator.faults import FaultKind, Operation, refusal_of

if TYPE_CHECKING:
    from aiohttp import web

    from servicebus_emulator.amqp.trouble import Trouble

__all__ = ["spoil"]


async def spoil(trouble: Trouble, *, request: web.Request, entity: str) -> BrokerError | None:
    """Let a fault have its way with a request; return the refusal to answer with, None = nothing happens to it.

    :param entity: the path of what the request is about.
    """
    struck = trouble.strike(Operation.ADMINISTER, entity=entity)
    if struck is None:
        return None
    match struck.fault.kind:
        case FaultKind.FREEZE:
            await trouble.wait_until_over(struck)
        case FaultKind.DROP:
            await _lose_packets(request, until=trouble.wait_until_over(struck))
        case FaultKind.RESET:
            if request.transport is not None:
                request.transport.abort()
            return BrokerError("a fault was set: reset")
        case FaultKind.KILL:
            trouble.kill()
    return refusal_of(struck.fault)


async def _lose_packets(request: web.Request, *, until: Awaitable[None]) -> None:
    transport = request.transport
    if transport is not None:
        lose_packets(transport.get_extra_info("socket"), lost=True)
    await until
    if transport is not None and not transport.is_closing():
        lose_packets(transport.get_extra_info("socket"), lost=False)
