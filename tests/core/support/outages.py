"""Faults of the primary, and checks that sends survive them (SPEC section 4)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime

from servicebus_emulator import Fault, FaultKind, Operation
from servicebus_emulator.engine.model.descriptions import QueueDescription
from servicebus_pair.core import HealthState, SendResult
from servicebus_pair.core.send.sender import PairSender
from tests.core.support.local_pair import FAILOVER_MARGIN, PING_INTERVAL, LocalPair, numbered
from tests.core.support.stopwatch import Stopwatch

K = FaultKind
FAR_FUTURE = datetime(2030, 1, 1, tzinfo=UTC)
BOTH = (Operation.SEND, Operation.MANAGE)
OPENING = (Operation.OPEN_SENDER,)
AUTHENTICATING = (Operation.AUTHENTICATE,)
RESET_ONCE = Fault(kind=K.RESET, on=BOTH, count=3)

FAULTS_ON_OPEN_LINK = {
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
    "latency": (Fault(kind=K.LATENCY, delay=8),),
    "low bandwidth": (Fault(kind=K.BANDWIDTH, bytes_per_second=20),),
    "token refused": (Fault(kind=K.AUTH_FAILURE, status=401), RESET_ONCE),
    "token service down": (Fault(kind=K.AUTH_FAILURE, status=503), RESET_ONCE),
    "token service silent": (Fault(kind=K.NO_DISPOSITION, on=AUTHENTICATING), RESET_ONCE),
}
FAULTS_WHILE_CONNECTING = {
    "refuse": (Fault(kind=K.REFUSE),),
    "freeze": (Fault(kind=K.FREEZE),),
    "reset": (Fault(kind=K.RESET, on=(Operation.CONNECT,)),),
    "internal error": (Fault(kind=K.INTERNAL_ERROR, on=OPENING),),
    "connection closed": (Fault(kind=K.CLOSE_CONNECTION, on=OPENING),),
    "token service silent": (Fault(kind=K.NO_DISPOSITION, on=AUTHENTICATING),),
}


async def assert_diverts_and_recovers(local_pair: LocalPair, faults: Iterable[Fault], *, open_link: bool) -> None:
    """Send under faults, clear them, drain, and check that everything arrived in time.

    :param open_link: send once before the outage, so that a link is open.
    """
    interval = local_pair.pair.options.failover_interval.total_seconds()
    async with local_pair.pair.sender("flights") as sender:
        if open_link:
            assert (await sender.send(numbered(10))).primary == 10
        for fault in faults:
            local_pair.primary.set_fault(fault)
        async with Stopwatch() as failing:
            result = await sender.send(numbered(10, start=10))
        assert (result.primary, result.diverted) == (0, 10)
        assert failing.seconds < interval + FAILOVER_MARGIN
        assert local_pair.pair.health("flights").failed_over
        local_pair.primary.clear_faults()
        async with Stopwatch() as recovering:
            await asyncio.wait_for(local_pair.recorder.recovered.wait(), 15)
            back = await sender.send(numbered(10, start=20))
        assert recovering.seconds < PING_INTERVAL + FAILOVER_MARGIN
        assert (back.primary, back.diverted) == (10, 0)
    drained = await local_pair.pair.syphon().drain()
    assert drained.moved == {"flights": 10}
    # At least once: a message that the client had to consider lost may have arrived too.
    assert set(await local_pair.primary_ids()) >= {f"m{n}" for n in range(0 if open_link else 10, 30)}
    # If a single call hangs for the whole interval, the entity is never seen as suspect.
    states = [state for state in local_pair.recorder.states if state is not HealthState.SUSPECT]
    assert states == [HealthState.FAILED_OVER, HealthState.HEALTHY]


async def send_batch(sender: PairSender, start: int) -> SendResult:
    return await sender.send(numbered(20, start=start))


async def send_one(sender: PairSender, start: int) -> SendResult:
    [message] = numbered(1, start=start)
    return await sender.send(message)


async def schedule(sender: PairSender, start: int) -> SendResult:
    return (await sender.schedule(numbered(2, start=start), FAR_FUTURE)).sent


# One entity each, because health is kept per entity.
OPERATIONS: dict[str, Callable[[PairSender, int], Awaitable[SendResult]]] = {
    "flights": send_batch,
    "delays": send_one,
    "gates": schedule,
}


async def assert_all_operations_divert(
    local_pair: LocalPair, faults: Iterable[Fault], *, open_link: bool, margin: float = FAILOVER_MARGIN
) -> None:
    """Check that a batch, a single message and a schedule, sent at once, divert and return to the primary in time.

    :param margin: seconds allowed beyond the failover interval.
    """
    for entity in set(OPERATIONS) - {"flights"}:
        local_pair.primary.namespace.create_queue(QueueDescription(entity))
    senders = {entity: local_pair.pair.sender(entity) for entity in OPERATIONS}

    async def seconds_to_divert(entity: str) -> float:
        async with Stopwatch() as watch:
            result = await OPERATIONS[entity](senders[entity], 100)
        assert (result.primary, result.diverted) == (0, result.sent)
        return watch.seconds

    async def seconds_to_recover(entity: str) -> float:
        start = 200
        async with Stopwatch() as watch:
            while (await OPERATIONS[entity](senders[entity], start)).diverted:
                start += 50
                await asyncio.sleep(0.1)
        return watch.seconds

    if open_link:
        for entity, operation in OPERATIONS.items():
            assert (await operation(senders[entity], 0)).diverted == 0
    for fault in faults:
        local_pair.primary.set_fault(fault)
    took = await asyncio.gather(*map(seconds_to_divert, OPERATIONS))
    interval = local_pair.pair.options.failover_interval.total_seconds()
    assert max(took) < interval + margin, dict(zip(OPERATIONS, took, strict=True))
    local_pair.primary.clear_faults()
    took = await asyncio.gather(*map(seconds_to_recover, OPERATIONS))
    assert max(took) < PING_INTERVAL + FAILOVER_MARGIN, dict(zip(OPERATIONS, took, strict=True))
