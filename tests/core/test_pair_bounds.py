"""Bounded time, however and by whatever way one sends (SPEC section 4).

From the first failing send to the first message in the backlog at most ``failover_interval`` + 2 s under
every fault; from a healthy primary to the first new send on it at most ``ping_primary_interval`` + 2 s.
``test_pair_faults`` proves the same of batches with an interval of some seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from servicebus_emulator import Emulator, Fault, FaultKind, HostedNamespace, Operation
from servicebus_emulator.engine.descriptions import QueueDescription
from servicebus_pair.core import Endpoint, NamespacePair, PairOptions, SendResult
from servicebus_pair.core.sender import PairSender
from tests.core.breakable import GRACE, PING, QUICK, Breakable, Recorder, breakable_pair, numbered

K = FaultKind
LATER = datetime(2030, 1, 1, tzinfo=UTC)
AT_ONCE = timedelta(0)
# Three ways at once, both namespaces and the test share one thread: a machine under load lags behind.
LAG = 0.5
BOTH = (Operation.SEND, Operation.MANAGE)
OPENING = (Operation.OPEN_SENDER,)
RESET_ONCE = Fault(kind=K.RESET, on=BOTH, count=3)

UNDER_A_LIVE_LINK = {
    "refuse": (Fault(kind=K.REFUSE), RESET_ONCE),
    "freeze": (Fault(kind=K.FREEZE),),
    "packets lost": (Fault(kind=K.DROP),),
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
    "packets lost": (Fault(kind=K.DROP),),
    "internal error": (Fault(kind=K.INTERNAL_ERROR, on=OPENING),),
    "token service silent": (Fault(kind=K.NO_DISPOSITION, on=(Operation.AUTHENTICATE,)),),
}

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


def now() -> float:
    return asyncio.get_running_loop().time()


async def seconds_to_the_backlog(sender: PairSender, way: Way) -> float:
    began = now()
    result = await way(sender, 100)
    took = now() - began
    assert (result.primary, result.diverted) == (0, result.sent)
    return took


async def seconds_to_the_primary(sender: PairSender, way: Way, mended: float) -> float:
    """Send until one is on the primary; none may be lost or raise meanwhile."""
    start = 200
    while (await way(sender, start)).diverted:
        start += 50
        await asyncio.sleep(0.1)
    return now() - mended


async def outage(breakable: Breakable, faults: tuple[Fault, ...], *, interval: timedelta, warm: bool) -> None:
    for entity in set(WAYS) - {"flights"}:
        breakable.primary.namespace.create_queue(QueueDescription(entity))
    senders = {entity: breakable.pair.sender(entity) for entity in WAYS}
    if warm:
        for entity, way in WAYS.items():
            assert (await way(senders[entity], 0)).diverted == 0
    for fault in faults:
        breakable.primary.set_fault(fault)
    took = await asyncio.gather(*(seconds_to_the_backlog(senders[entity], way) for entity, way in WAYS.items()))
    assert max(took) < interval.total_seconds() + GRACE + LAG, dict(zip(WAYS, took, strict=True))
    breakable.primary.clear_faults()
    mended = now()
    back = await asyncio.gather(*(seconds_to_the_primary(senders[entity], way, mended) for entity, way in WAYS.items()))
    assert max(back) < PING + GRACE + LAG, dict(zip(WAYS, back, strict=True))


@pytest.mark.parametrize("faults", UNDER_A_LIVE_LINK.values(), ids=UNDER_A_LIVE_LINK.keys())
async def test_section_2_with_an_interval_of_zero_every_way_of_sending_diverts_within_two_seconds(
    faults: tuple[Fault, ...],
) -> None:
    async with breakable_pair(failover_interval=AT_ONCE) as breakable:
        await outage(breakable, faults, interval=AT_ONCE, warm=True)


@pytest.mark.parametrize("faults", FROM_THE_BEGINNING.values(), ids=FROM_THE_BEGINNING.keys())
async def test_section_2_with_an_interval_of_zero_an_outage_from_the_beginning_is_no_slower(
    faults: tuple[Fault, ...],
) -> None:
    async with breakable_pair(failover_interval=AT_ONCE) as breakable:
        await outage(breakable, faults, interval=AT_ONCE, warm=False)


@pytest.mark.parametrize("name", ["refuse", "freeze", "no disposition", "internal error", "released"])
async def test_section_4_single_and_scheduled_messages_keep_the_bounds_of_batches(
    breakable: Breakable, name: str
) -> None:
    await outage(breakable, UNDER_A_LIVE_LINK[name], interval=QUICK.failover_interval, warm=True)


def over(hosted: HostedNamespace, way_in: str) -> Endpoint:
    """The endpoint of a namespace that is reached by TLS or WebSocket, or by one in the other."""
    tls = "TLS" in way_in
    return Endpoint.from_connection_string(
        hosted.tls_connection_string if tls else hosted.connection_string,
        namespace=hosted.name,
        administration=f"{hosted.host}:{hosted.amqp_port if tls else hosted.admin_port}",
        transport="websocket" if "WebSocket" in way_in else "amqp",
        address=hosted.endpoint_address,
        ca_file=str(hosted.ca_file) if tls else None,
    )


@asynccontextmanager
async def reached_by(way_in: str, options: PairOptions) -> AsyncIterator[Breakable]:
    async with Emulator(["contoso", "contoso-dr"]) as emulator:
        primary, secondary = emulator["contoso"], emulator["contoso-dr"]
        primary.namespace.create_queue(QueueDescription("flights"))
        recorder = Recorder()
        async with NamespacePair(over(primary, way_in), over(secondary, way_in), options, observers=[recorder]) as pair:
            await pair.provision()
            yield Breakable(primary, secondary, pair, recorder)
            primary.clear_faults()


# azure-servicebus 7.15 asks aiohttp for a WebSocket in clear with ssl=None.
@pytest.mark.filterwarnings("ignore:ssl=None is deprecated:DeprecationWarning")
@pytest.mark.parametrize(
    ("way_in", "interval"), [("TLS", 0), ("WebSocket", 0), ("WebSocket under TLS", 0), ("WebSocket under TLS", 2)]
)
async def test_section_4_over_tls_and_websocket_the_bounds_are_the_same(way_in: str, interval: int) -> None:
    options = replace(QUICK, failover_interval=timedelta(seconds=interval))
    async with reached_by(way_in, options) as breakable:
        await outage(breakable, UNDER_A_LIVE_LINK["freeze"], interval=options.failover_interval, warm=True)
        drained = await breakable.pair.syphon().drain()
        assert set(drained.moved) == set(WAYS)
        assert drained.empty
