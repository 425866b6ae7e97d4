"""An outage met by every way of sending at once: a batch, a single message and schedule, each on its own entity."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

from servicebus_emulator import Fault, FaultKind, Operation
from servicebus_emulator.engine.descriptions import QueueDescription
from servicebus_pair.core import SendResult
from servicebus_pair.core.sender import PairSender
from tests.core.breakable import GRACE, PING, Breakable, numbered
from tests.core.stopwatch import Stopwatch

__all__ = ["AT_ONCE", "FROM_THE_BEGINNING", "PACKETS_LOST", "UNDER_A_LIVE_LINK", "WAYS", "outage"]

K = FaultKind
LATER = datetime(2030, 1, 1, tzinfo=UTC)
AT_ONCE = timedelta(0)
BOTH = (Operation.SEND, Operation.MANAGE)
OPENING = (Operation.OPEN_SENDER,)
RESET_ONCE = Fault(kind=K.RESET, on=BOTH, count=3)

UNDER_A_LIVE_LINK = {
    "refuse": (Fault(kind=K.REFUSE), RESET_ONCE),
    "freeze": (Fault(kind=K.FREEZE),),
    "reset": (Fault(kind=K.RESET, on=(*BOTH, *OPENING)),),
    "no disposition": (Fault(kind=K.NO_DISPOSITION, on=BOTH),),
    "late disposition": (Fault(kind=K.LATE_DISPOSITION, on=BOTH, delay=20),),
    "released": (Fault(kind=K.RELEASED), Fault(kind=K.INTERNAL_ERROR, on=(Operation.MANAGE,))),
    "modified": (Fault(kind=K.MODIFIED), Fault(kind=K.INTERNAL_ERROR, on=(Operation.MANAGE,))),
    "internal error": (Fault(kind=K.INTERNAL_ERROR, on=BOTH),),
    "link closed": (Fault(kind=K.CLOSE_LINK), Fault(kind=K.CLOSE_CONNECTION, on=(Operation.MANAGE,))),
    "connection closed": (Fault(kind=K.CLOSE_CONNECTION, on=BOTH),),
    "slow": (Fault(kind=K.LATENCY, delay=8),),
    "narrow": (Fault(kind=K.BANDWIDTH, bytes_per_second=20),),
    "token service down": (Fault(kind=K.AUTH_FAILURE, status=503), RESET_ONCE),
    "token service silent": (Fault(kind=K.NO_DISPOSITION, on=(Operation.AUTHENTICATE,)), RESET_ONCE),
}
FROM_THE_BEGINNING = {
    "refuse": (Fault(kind=K.REFUSE),),
    "freeze": (Fault(kind=K.FREEZE),),
    "internal error": (Fault(kind=K.INTERNAL_ERROR, on=OPENING),),
    "token service silent": (Fault(kind=K.NO_DISPOSITION, on=(Operation.AUTHENTICATE,)),),
}

# By the kernel, which keeps a time of its own.
PACKETS_LOST = (Fault(kind=K.DROP),)

Way = Callable[[PairSender, int], Awaitable[SendResult]]


async def many(sender: PairSender, start: int) -> SendResult:
    return await sender.send(numbered(20, start=start))


async def one(sender: PairSender, start: int) -> SendResult:
    [message] = numbered(1, start=start)
    return await sender.send(message)


async def later(sender: PairSender, start: int) -> SendResult:
    return (await sender.schedule(numbered(2, start=start), LATER)).sent


# Each on an entity of its own, for health is kept per entity.
WAYS: dict[str, Way] = {"flights": many, "delays": one, "gates": later}


async def seconds_to_the_backlog(sender: PairSender, way: Way) -> float:
    async with Stopwatch() as watch:
        result = await way(sender, 100)
    assert (result.primary, result.diverted) == (0, result.sent)
    return watch.seconds


async def seconds_to_the_primary(sender: PairSender, way: Way) -> float:
    """Send until one is on the primary; none may be lost or raise meanwhile."""
    start = 200
    async with Stopwatch() as watch:
        while (await way(sender, start)).diverted:
            start += 50
            await asyncio.sleep(0.1)
    return watch.seconds


async def outage(
    breakable: Breakable, faults: tuple[Fault, ...], *, interval: timedelta, warm: bool, grace: float = GRACE
) -> None:
    """Break the primary and mend it: all ways divert within interval and ``grace`` (seconds), and are back in time."""
    for entity in set(WAYS) - {"flights"}:
        breakable.primary.namespace.create_queue(QueueDescription(entity))
    senders = {entity: breakable.pair.sender(entity) for entity in WAYS}
    if warm:
        for entity, way in WAYS.items():
            assert (await way(senders[entity], 0)).diverted == 0
    for fault in faults:
        breakable.primary.set_fault(fault)
    took = await asyncio.gather(*(seconds_to_the_backlog(senders[entity], way) for entity, way in WAYS.items()))
    assert max(took) < interval.total_seconds() + grace, dict(zip(WAYS, took, strict=True))
    breakable.primary.clear_faults()
    back = await asyncio.gather(*(seconds_to_the_primary(senders[entity], way) for entity, way in WAYS.items()))
    assert max(back) < PING + GRACE, dict(zip(WAYS, back, strict=True))
