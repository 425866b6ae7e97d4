"""``ordering="session"``: no send raises a failure that it survives, outage after outage (SPEC sections 4 and 6)."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest

from servicebus_pair.core import NamespacePair
from servicebus_pair.core.model.errors import SendError
from servicebus_pair.core.model.interfaces import InMemoryHealthStore
from tests.core.health.scenarios.test_session_order import OPTIONS, arrived, numbered
from tests.core.support.lagging_store import LaggingStore
from tests.core.support.local_pair import endpoint, open_local_pair
from tests.core.support.spooling import stop

pytestmark = pytest.mark.simulated

_REFRESH = 2.0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 4))
async def test_section_4_no_send_raises_the_failure_that_it_survives(seed: int, tmp_path: Path) -> None:
    random = Random(seed)  # noqa: S311 - a plan that can be repeated
    store = LaggingStore(random, lag=_REFRESH / 2, latency=_REFRESH / 5)
    options = replace(OPTIONS, spool=str(tmp_path), health_refresh=timedelta(seconds=_REFRESH))
    failures: list[str] = []
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    async with open_local_pair("flights", options=options, store=store.of("0")) as both, AsyncExitStack() as stack:
        ends = endpoint(both.primary), endpoint(both.secondary)
        others = [NamespacePair(*ends, options, store=store.of(name)) for name in "12"]
        pairs = [both.pair, *[await stack.enter_async_context(each) for each in others]]
        senders = [await stack.enter_async_context(each.sender("flights")) for each in pairs]

        async def write(session: str) -> int:
            number = 0
            while not ended.is_set():
                left = numbered(session, number)
                while left:
                    at = random.randrange(len(senders))
                    began = loop.time()
                    try:
                        await senders[at].send(left)
                        left = []
                    except SendError as error:
                        left = list(error.unsent)
                        failures.append(
                            f"{began:.2f}-{loop.time():.2f} {at} {type(error.cause).__name__} {error}"[:400]
                        )
                number += 1
                await asyncio.sleep(random.uniform(0, 0.4))
            return number

        writing = [asyncio.create_task(write(session)) for session in "abc"]
        syphons = [each.syphon() for each in pairs[:2]]
        moving = [asyncio.create_task(each.run()) for each in syphons]
        for _ in range(3):
            await asyncio.sleep(random.uniform(1, 8))
            stop(both.primary, *([both.secondary] if random.random() < 0.6 else []))
            await asyncio.sleep(random.uniform(0.3, 8))
            order = random.sample([both.primary, both.secondary], 2)
            order[0].clear_faults()
            await asyncio.sleep(random.choice([0.0, random.uniform(0, 15)]))
            order[1].clear_faults()
        ended.set()
        written = await asyncio.gather(*writing)
        for syphon in syphons:
            syphon.stop()
        await asyncio.gather(*moving)
        await pairs[0].empty_spool()
        await pairs[0].syphon().drain()
        found = await arrived(both)
    assert failures == []
    assert found == {session: list(range(count)) for session, count in zip("abc", written, strict=True)}


async def test_section_6_a_send_that_is_held_through_a_failback_has_its_whole_interval_again() -> None:
    options = replace(OPTIONS, ping_primary_interval=timedelta(minutes=5), health_refresh=timedelta(seconds=_REFRESH))
    async with open_local_pair("flights", options=options, store=InMemoryHealthStore()) as both:
        async with both.pair.sender("flights") as sender:
            assert (await sender.send(numbered("a", 0))).primary == 1
            stop(both.primary)
            sending = asyncio.create_task(sender.send(numbered("a", 1)))
            while not both.pair.health("flights").failed_over:  # noqa: ASYNC110 - simulated time
                await asyncio.sleep(0.1)
            both.primary.clear_faults()
            assert await both.pair.mark_healthy("flights")
            assert (await sending).primary == 1
        assert await arrived(both) == {"a": [0, 1]}
