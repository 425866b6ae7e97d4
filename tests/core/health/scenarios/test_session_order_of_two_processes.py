"""``ordering="session"`` between processes that share a store which lags (SPEC section 6)."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import timedelta
from random import Random

import pytest

from servicebus_emulator import Fault, FaultKind, Operation
from servicebus_pair.core import NamespacePair, PairOptions
from servicebus_pair.core.model.errors import SendError
from tests.core.health.scenarios.test_session_order import arrived, numbered
from tests.core.support.lagging_store import LaggingStore
from tests.core.support.local_pair import endpoint, open_local_pair

pytestmark = pytest.mark.simulated

REFRESH = 5.0
COUNT = 100
OPTIONS = PairOptions(
    ordering="session",
    backlog_queue_count=2,
    failover_interval=timedelta(seconds=2),
    ping_primary_interval=timedelta(seconds=3),
    ping_timeout=timedelta(seconds=2),
    health_refresh=timedelta(seconds=REFRESH),
)
PATIENT = replace(OPTIONS, failover_interval=timedelta(minutes=1), attempt_timeout=timedelta(seconds=30))


async def fail_over_for_certain(pair: NamespacePair) -> None:
    """Fail over by hand; a failback that ends at that moment may win, while neither sees the other's write."""
    while True:
        await pair.fail_over("flights", reason="test", hold=timedelta(seconds=20))
        await asyncio.sleep(REFRESH)
        if pair.health("flights").failed_over:
            return


async def drain(pair: NamespacePair, random: Random) -> None:
    while True:
        await asyncio.sleep(random.uniform(6, 12))
        await pair.syphon().drain()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
async def test_section_6_messages_that_processes_send_in_turn_keep_their_order(seed: int) -> None:
    """Each message is sent by another process than the one before, which had returned."""
    random = Random(seed)  # noqa: S311 - a plan that can be repeated
    store = LaggingStore(random, lag=REFRESH / 2, latency=0.5)
    async with open_local_pair("flights", options=OPTIONS, store=store.of("0")) as both, AsyncExitStack() as opened:
        ends = endpoint(both.primary), endpoint(both.secondary)
        others = [NamespacePair(*ends, OPTIONS, store=store.of(name)) for name in ("1", "2")]
        pairs = [both.pair, *[await opened.enter_async_context(pair) for pair in others]]
        senders = [await opened.enter_async_context(pair.sender("flights")) for pair in pairs]

        async def disturb() -> None:
            while True:
                await asyncio.sleep(random.uniform(3, 25))
                if random.random() < 0.6:
                    await random.choice(pairs).fail_over("flights", reason="test")
                else:
                    broken = Fault(kind=FaultKind.INTERNAL_ERROR, on=(Operation.SEND,), duration=random.uniform(1, 20))
                    both.primary.set_fault(broken)

        background = [
            asyncio.create_task(work) for work in (disturb(), drain(pairs[0], random), drain(pairs[1], random))
        ]
        routes = set[bool]()
        for number in range(COUNT):
            if number == COUNT // 5:
                await fail_over_for_certain(pairs[0])
            unsent = numbered("a", number)
            while unsent:
                try:
                    result = await random.choice(senders).send(unsent)
                    unsent = []
                    routes.add(result.diverted > 0)
                except SendError as error:
                    unsent = list(error.unsent)
            await asyncio.sleep(random.expovariate(4))
        for task in background:
            task.cancel()
        await asyncio.wait(background)
        both.primary.clear_faults()
        await both.pair.syphon().drain()
        assert routes == {False, True}
        assert await arrived(both) == {"a": list(range(COUNT))}


async def test_section_6_an_attempt_may_take_longer_than_a_lease_that_is_renewed() -> None:
    store = LaggingStore(Random(0), lag=REFRESH / 2, latency=0.5)  # noqa: S311 - a plan that can be repeated
    async with (
        open_local_pair("flights", options=PATIENT, store=store.of("0")) as both,
        both.pair.sender("flights") as sender,
    ):
        await sender.send(numbered("a", 0))
        both.primary.set_fault(Fault(kind=FaultKind.LATE_DISPOSITION, delay=4, count=1))
        assert (await sender.send(numbered("a", 1))).primary == 1
        assert await both.primary_ids() == ["a/0", "a/1"]
        assert both.recorder.states == []


async def test_section_6_an_attempt_ends_with_its_lease() -> None:
    store = LaggingStore(Random(0), lag=REFRESH / 2, latency=0.5)  # noqa: S311 - a plan that can be repeated
    loop = asyncio.get_running_loop()
    async with (
        open_local_pair("flights", options=PATIENT, store=store.of("0")) as both,
        NamespacePair(endpoint(both.primary), endpoint(both.secondary), PATIENT, store=store.of("1")) as other,
        both.pair.sender("flights") as sender,
    ):
        await sender.send(numbered("a", 0))
        both.primary.set_fault(Fault(kind=FaultKind.NO_DISPOSITION))
        sending = asyncio.create_task(sender.send(numbered("a", 1)))
        await asyncio.sleep(1)
        began = loop.time()
        await other.fail_over("flights", reason="test", hold=timedelta(minutes=5))
        assert (await sending).diverted == 1
        # What the other process wrote is seen, the lease ends, and the change settles.
        assert loop.time() - began < 3 * REFRESH
