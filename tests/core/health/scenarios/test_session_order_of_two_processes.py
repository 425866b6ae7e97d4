"""``ordering="session"`` between processes that share a store which lags (SPEC section 6)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from random import Random

import pytest

from servicebus_emulator import Fault, FaultKind
from servicebus_pair.core import NamespacePair, PairOptions
from tests.core.health.scenarios.test_session_order import numbered
from tests.core.support.lagging_store import LaggingStore
from tests.core.support.local_pair import endpoint, open_local_pair

pytestmark = pytest.mark.simulated

REFRESH = 5.0
OPTIONS = PairOptions(
    ordering="session",
    backlog_queue_count=2,
    failover_interval=timedelta(seconds=2),
    ping_primary_interval=timedelta(seconds=3),
    ping_timeout=timedelta(seconds=2),
    health_refresh=timedelta(seconds=REFRESH),
)
PATIENT = replace(OPTIONS, failover_interval=timedelta(minutes=1), attempt_timeout=timedelta(seconds=30))


async def drain(pair: NamespacePair, random: Random) -> None:
    while True:
        await asyncio.sleep(random.uniform(6, 12))
        await pair.syphon().drain()


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
