"""``ordering="session"``: when an entity fails back while messages keep coming (SPEC section 6)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from servicebus_emulator import Fault, FaultKind
from servicebus_pair.core import Endpoint, HealthState, NamespacePair, PairOptions
from servicebus_pair.core.model.errors import SendError
from servicebus_pair.core.model.events import HealthChanged
from servicebus_pair.core.model.interfaces import InMemoryHealthStore
from tests.core.health.scenarios.test_session_order import arrived, numbered
from tests.core.support.local_pair import LocalPair, endpoint, open_local_pair

pytestmark = pytest.mark.simulated

SESSIONS = "abcdefgh"
# Messages a second, sent and at most moved.
TRAFFIC = 20
RATE = 60
OPTIONS = PairOptions(
    ordering="session",
    backlog_queue_count=3,
    failover_interval=timedelta(seconds=2),
    ping_primary_interval=timedelta(seconds=2),
    ping_timeout=timedelta(seconds=2),
    syphon_retry_interval=timedelta(seconds=1),
)


@dataclass
class Traffic:
    """20 messages a second over eight sessions, each of which has one send at a time."""

    pair: NamespacePair
    sent: int = 0
    ended: bool = False

    async def run(self) -> None:
        async with self.pair.sender("flights") as sender:

            async def send(session: str) -> None:
                number = 0
                while not self.ended:
                    unsent = numbered(session, number)
                    while unsent:
                        try:
                            await sender.send(unsent)
                            unsent = []
                        except SendError as error:
                            unsent = list(error.unsent)
                    number += 1
                    self.sent += 1
                    await asyncio.sleep(len(SESSIONS) / TRAFFIC)

            await asyncio.gather(*map(send, SESSIONS))


def seconds_in(both: LocalPair, state: HealthState) -> float:
    """How long the entity was in a state that has ended, added up."""
    changes: list[HealthChanged] = both.recorder.of(HealthChanged)
    return sum(end.at - begun.at for begun, end in pairwise(changes) if begun.after.state is state)


@asynccontextmanager
async def serving(
    where: str, pair: NamespacePair, store: InMemoryHealthStore | None, ends: tuple[Endpoint, Endpoint]
) -> AsyncIterator[None]:
    """Syphons in the pair that sends, or in two other processes, each of which serves some of the sessions."""
    async with AsyncExitStack() as opened:
        pairs = [pair]
        if where == "two others":
            others = [NamespacePair(*ends, OPTIONS, store=store) for _ in range(2)]
            pairs = [await opened.enter_async_context(each) for each in others]
        for each in pairs:
            syphon = each.syphon(rate=RATE / len(pairs))
            moving = asyncio.create_task(syphon.run())
            opened.push_async_callback(asyncio.wait, {moving})
            opened.callback(syphon.stop)
        yield


@asynccontextmanager
async def steady_traffic(where: str) -> AsyncIterator[tuple[LocalPair, Any, Traffic]]:
    store = None if where == "here" else InMemoryHealthStore()
    async with open_local_pair("flights", options=OPTIONS, store=store) as both:
        traffic = Traffic(both.pair)
        sending = asyncio.create_task(traffic.run())
        await asyncio.sleep(1)
        syphons = serving(where, both.pair, store, (endpoint(both.primary), endpoint(both.secondary)))
        yield both, syphons, traffic
        traffic.ended = True
        await sending
        await both.pair.syphon().drain()
        # Nothing is lost, and each session is in order.
        for numbers in (await arrived(both)).values():
            assert numbers == list(range(len(numbers)))
        assert len(set(await both.primary_ids())) == traffic.sent


@pytest.mark.parametrize(("where", "longest"), [("here", 10), ("two others", 20)])
async def test_section_6_an_entity_fails_back_although_its_backlog_is_never_seen_empty(
    where: str, longest: float
) -> None:
    loop = asyncio.get_running_loop()
    async with steady_traffic(where) as (both, syphons, _), syphons:
        both.primary.set_fault(Fault(kind=FaultKind.FREEZE))
        await asyncio.sleep(20)
        assert both.pair.health("flights").failed_over
        both.primary.clear_faults()
        began = loop.time()
        both.recorder.recovered.clear()
        await asyncio.wait_for(both.recorder.recovered.wait(), 600)
        assert loop.time() - began < longest
        # The sends were held once, for as long as it takes that all processes have noticed.
        assert both.recorder.states.count(HealthState.FAILING_BACK) == 1
        assert seconds_in(both, HealthState.FAILING_BACK) < 8


async def test_section_6_no_failback_begins_in_the_middle_of_a_large_backlog() -> None:
    loop = asyncio.get_running_loop()
    async with steady_traffic("here") as (both, syphons, traffic):
        await both.pair.fail_over("flights", reason="test", hold=timedelta(seconds=10))
        before = traffic.sent
        await asyncio.sleep(25)
        # Nothing moves it, so that no hold would help.
        assert both.recorder.states == [HealthState.FAILED_OVER]
        diverted = traffic.sent - before
        began = loop.time()
        async with syphons:
            both.recorder.recovered.clear()
            await asyncio.wait_for(both.recorder.recovered.wait(), 600)
        assert loop.time() - began > diverted / RATE
        assert both.recorder.states == [HealthState.FAILED_OVER, HealthState.FAILING_BACK, HealthState.HEALTHY]
        assert seconds_in(both, HealthState.FAILING_BACK) < 10
