"""A syphon empties the spool, too (SPEC section 10)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.core.support.local_pair import numbered
from tests.core.support.spooling import spooling_pair, stop

pytestmark = pytest.mark.simulated


async def test_section_10_the_syphon_of_an_open_pair_empties_the_spool_by_itself(tmp_path: Path) -> None:
    async with spooling_pair(tmp_path, enable_syphon=True) as made, made.pair.sender("flights") as sender:
        stop(made.primary, made.secondary)
        await sender.send(numbered(5))
        # Only the secondary comes back at first: the spool goes to the backlog, and from there home.
        made.secondary.clear_faults()
        for _ in range(600):
            if not await made.pair.spooled():
                break
            await asyncio.sleep(0.1)
        assert sorted(await made.backlog_ids()) == [f"m{n}" for n in range(5)]
        await sender.send(numbered(5, start=5))
        made.primary.clear_faults()
        for _ in range(600):
            if sorted(await made.primary_ids()) == [f"m{n}" for n in range(10)]:
                break
            await asyncio.sleep(0.1)
        assert (sorted(await made.primary_ids()), await made.backlog_ids()) == ([f"m{n}" for n in range(10)], [])


async def test_section_10_a_drain_empties_the_spool_and_then_the_backlog(tmp_path: Path) -> None:
    async with spooling_pair(tmp_path, "flights", "gates") as made:
        async with made.pair.sender("flights") as flights, made.pair.sender("gates") as gates:
            stop(made.primary, made.secondary)
            await flights.send(numbered(5))
            await gates.send(numbered(5))
        left = await made.pair.syphon().drain()
        assert (left.left, left.empty, left.unspooled) == (10, False, {})
        assert {"spool of flights", "spool of gates"} <= set(left.failures)
        made.primary.clear_faults()
        made.secondary.clear_faults()
        some = await made.pair.syphon(["contoso/x-servicebus-transfer/0"]).drain()
        assert (some.unspooled, len(await made.pair.spooled())) == ({}, 2)
        one = await made.pair.syphon(["spool"], entities=["Gates"], rate=1000).drain()
        assert (one.unspooled, one.empty, list(await made.pair.spooled())) == ({"gates": 5}, True, ["flights"])
        rest = await made.pair.syphon().drain()
        assert (rest.unspooled, rest.empty, await made.pair.spooled()) == ({"flights": 5}, True, {})
        again = await made.pair.syphon().drain()
        assert (again.unspooled, again.empty) == ({}, True)
        assert sorted(await made.primary_ids("flights")) == [f"m{n}" for n in range(5)]


async def test_section_10_an_emptied_spool_leaves_what_still_cannot_be_sent(tmp_path: Path) -> None:
    async with spooling_pair(tmp_path) as made, made.pair.sender("flights") as sender:
        stop(made.primary, made.secondary)
        await sender.send(numbered(5))
        report = await made.pair.empty_spool()
        assert (report.moved_total, report.left) == (0, 5)
        assert "flights" in report.failures


async def test_section_10_two_processes_empty_one_spool_once(tmp_path: Path) -> None:
    async with spooling_pair(tmp_path, "flights", "gates") as made:
        stop(made.primary, made.secondary)
        for entity in ("flights", "gates"):
            async with made.pair.sender(entity) as sender:
                for start in range(0, 20, 5):
                    await sender.send(numbered(5, start=start))
        made.primary.clear_faults()
        made.secondary.clear_faults()
        reports = await asyncio.gather(*(made.pair.empty_spool() for _ in range(3)))
        while (await made.pair.spooled()) != {}:
            reports.append(await made.pair.empty_spool())
        assert sum(report.moved_total for report in reports) == 40
        found = [*await made.primary_ids("flights"), *await made.primary_ids("gates"), *await made.backlog_ids()]
        assert sorted(found) == sorted([f"m{n}" for n in range(20)] * 2)
