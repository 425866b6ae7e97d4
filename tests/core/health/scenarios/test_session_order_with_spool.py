"""``ordering="session"`` with a spool: all processes agree on when messages go there (SPEC section 10)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from servicebus_pair.core import NamespacePair
from servicebus_pair.core.model.errors import ConfigurationError, NoBacklogQueueError, SendTimeoutError
from servicebus_pair.core.model.health_transitions import BeginSpool
from servicebus_pair.core.model.interfaces import InMemoryHealthStore
from tests.core.health.scenarios.test_session_order import OPTIONS, arrived, failed_back, numbered
from tests.core.support.local_pair import LocalPair, endpoint, open_local_pair
from tests.core.support.spooling import stop

pytestmark = pytest.mark.simulated

# The pair's own pings would compete with those of the tests.
SPOOLING = replace(OPTIONS, ping_primary_interval=timedelta(minutes=5), health_refresh=timedelta(seconds=1))


def another(both: LocalPair, folder: Path | None, store: Any) -> NamespacePair:
    options = replace(SPOOLING, spool=None if folder is None else str(folder))
    return NamespacePair(endpoint(both.primary), endpoint(both.secondary), options, store=store)


async def test_section_10_sessions_keep_their_order_through_a_spool_that_processes_share(tmp_path: Path) -> None:
    store, options = InMemoryHealthStore(), replace(SPOOLING, spool=str(tmp_path / "one"))
    async with (
        open_local_pair("flights", options=options, store=store) as both,
        another(both, tmp_path / "one", store) as other,
        another(both, tmp_path / "two", store) as elsewhere,
        another(both, None, store) as without,
        both.pair.sender("flights") as first,
        other.sender("flights") as second,
        elsewhere.sender("flights") as third,
        without.sender("flights") as fourth,
    ):
        assert (await first.send(numbered("a", 0))).primary == 1
        stop(both.primary, both.secondary)
        routes = [(await sender.send(numbered("a", 1 + n))).spooled for n, sender in enumerate([first, second] * 4)]
        assert routes == [1] * 8
        name = await both.pair.spool_name()
        assert name is not None
        for sender in (third, fourth):
            with pytest.raises(NoBacklogQueueError, match="go behind those in the spool") as caught:
                await sender.send(numbered("a", 99))
            assert name in str(caught.value)
            assert len(caught.value.unsent) == 1
        # What holds messages already is not overtaken once the secondary answers, whoever sends.
        both.secondary.clear_faults()
        assert (await second.send(numbered("a", 9))).spooled == 1
        emptying, number = asyncio.create_task(both.pair.empty_spool()), 10
        while (await (first, second)[number % 2].send(numbered("a", number))).diverted == 0:
            number += 1
            await asyncio.sleep(0.1)
        report = await emptying
        assert (report.left, report.failures, await both.pair.spooled()) == (0, {}, {})
        assert (await third.send(numbered("a", number + 1))).diverted == 1
        both.primary.clear_faults()
        await other.syphon().drain()
        await failed_back(other)
        assert (await first.send(numbered("a", number + 2))).primary == 1
        assert await arrived(both) == {"a": list(range(number + 3))}


async def test_section_10_a_route_to_an_empty_spool_ends_and_one_that_was_forgotten_begins(tmp_path: Path) -> None:
    options = replace(SPOOLING, spool=str(tmp_path))
    async with open_local_pair("flights", options=options, store=InMemoryHealthStore()) as both:
        pair = both.pair
        async with pair.sender("flights") as sender:
            stop(both.primary, both.secondary)
            # The time of the caller is over before all processes have agreed; the next send finds that they have.
            with pytest.raises(SendTimeoutError):
                await sender.send(numbered("a", 0), timeout=3)
            assert (await sender.send(numbered("a", 0))).spooled == 1
        both.secondary.clear_faults()
        both.primary.clear_faults()
        # As after the loss of the shared state: the health of a new store is that of a healthy entity.
        async with another(both, tmp_path, InMemoryHealthStore()) as successor:
            async with successor.sender("flights") as sender:
                assert (await sender.send(numbered("a", 1))).spooled == 1
            assert (await successor.empty_spool()).results["flights"].diverted == 2
            assert not successor.health("flights").spool
            # A process was killed before it wrote the first message, or after it had moved the last one.
            for end in (successor.empty_spool, lambda: successor.ping("flights")):
                begin = BeginSpool((await successor.spool_name()) or "", "test")
                await successor._registry.change("flights", begin)
                assert successor.health("flights").spool
                await asyncio.sleep(2)  # until all processes know
                await end()
                assert not successor.health("flights").spool
            await successor.syphon().drain()
            await failed_back(successor)
        assert await arrived(both) == {"a": [0, 1]}


async def test_section_10_a_route_to_an_empty_spool_stays_while_the_backlog_cannot_be_reached(tmp_path: Path) -> None:
    options = replace(SPOOLING, spool=str(tmp_path))
    async with open_local_pair("flights", options=options, store=InMemoryHealthStore()) as both:

        async def empty_again_and_again() -> None:
            while True:
                await both.pair.empty_spool()
                await asyncio.sleep(0.5)

        async with both.pair.sender("flights") as sender:
            stop(both.primary, both.secondary)
            assert (await sender.send(numbered("a", 0))).spooled == 1
            both.secondary.clear_faults()
            assert (await both.pair.empty_spool()).results["flights"].diverted == 1
            assert not both.pair.health("flights").spool
            # The secondary fails again: somebody who empties the spool meanwhile finds nothing in it.
            stop(both.secondary)
            emptying = asyncio.create_task(empty_again_and_again())
            assert [(await sender.send(numbered("a", number))).spooled for number in (1, 2)] == [1, 1]
            both.secondary.clear_faults()
            while both.pair.health("flights").spool:  # noqa: ASYNC110 - simulated time
                await asyncio.sleep(0.5)
            assert (await sender.send(numbered("a", 3))).diverted == 1
            emptying.cancel()
        both.primary.clear_faults()
        await both.pair.syphon().drain()
        assert await arrived(both) == {"a": [0, 1, 2, 3]}


async def test_section_10_a_failback_by_hand_lasts_while_the_secondary_cannot_be_read(tmp_path: Path) -> None:
    store, options = InMemoryHealthStore(), replace(SPOOLING, spool=str(tmp_path))
    async with (
        open_local_pair("flights", options=options, store=store) as both,
        another(both, tmp_path, store) as other,
        both.pair.sender("flights") as sender,
    ):
        stop(both.primary, both.secondary)
        assert (await sender.send(numbered("a", 0))).spooled == 1
        both.primary.clear_faults()
        assert await both.pair.mark_healthy("flights", by="ann")
        # Neither a sender that opens nor one that empties the spool fails it over again, although both would see
        # nothing of the backlog, and one the messages in the spool.
        async with other.sender("flights") as later:
            assert (await later.send(numbered("a", 1))).primary == 1
        report = await other.empty_spool()
        assert (report.left, report.results["flights"].primary) == (0, 1)
        assert (await sender.send(numbered("a", 2))).primary == 1
        assert both.pair.health("flights").by == other.health("flights").by == "ann"
        # The next failover is one like all others.
        stop(both.primary)
        assert (await sender.send(numbered("a", 3))).spooled == 1
        both.primary.clear_faults()
        async with other.sender("flights") as later:
            assert (await later.send(numbered("a", 4))).spooled == 1
        assert await arrived(both) == {"a": [1, 0, 2]}


async def test_section_10_in_session_order_a_spool_needs_health_that_processes_share(tmp_path: Path) -> None:
    options = replace(SPOOLING, spool=str(tmp_path))
    async with open_local_pair("flights", options=options) as both:
        with pytest.raises(ConfigurationError, match="ordering is 'session' and store is None"):
            both.pair.sender("flights")
        with pytest.raises(ConfigurationError, match="ordering is 'session' and store is None"):
            await both.pair.empty_spool()
        with pytest.raises(ConfigurationError, match="ordering is 'session' and store is None"):
            await both.pair.drill("flights")
        assert not both.pair.health("flights").failed_over
        assert "store is None" in (await both.pair.syphon().drain()).failures["spool"]
        assert await both.pair.spooled() == {}


async def test_section_10_a_drill_of_both_namespaces_keeps_session_order(tmp_path: Path) -> None:
    options = replace(OPTIONS, spool=str(tmp_path), health_refresh=timedelta(seconds=1))
    async with open_local_pair("flights", options=options, store=InMemoryHealthStore()) as both:
        report = await both.pair.drill("flights", messages=20, both=True)
        assert (report.findings, report.sent, report.arrived) == ((), 20, 20)
        assert not both.pair.health("flights").failed_over
