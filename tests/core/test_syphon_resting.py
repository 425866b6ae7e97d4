"""A destination in trouble rests, and nothing spins (SPEC section 6)."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from servicebus_emulator import Fault, FaultKind, Operation
from tests.core.hosted import hosted, messages
from tests.core.syphoning import Watch

pytestmark = pytest.mark.simulated


@pytest.mark.parametrize(
    "kind", [FaultKind.SERVER_BUSY, FaultKind.QUOTA_EXCEEDED, FaultKind.ENTITY_DISABLED, FaultKind.INTERNAL_ERROR]
)
async def test_section_6_a_destination_in_trouble_rests_and_the_others_go_on(kind: FaultKind) -> None:
    async with hosted("full", "flights") as both:
        await both.put_into_backlog("full", messages(*range(300), name="f"))
        await both.put_into_backlog("flights", messages(*range(50)))
        both.primary.set_fault(Fault(kind=kind, entity="full", on=(Operation.SEND,)))
        syphon = both.pair.syphon()
        watch = Watch()
        draining = asyncio.create_task(syphon.drain(progress=watch))
        await watch.until(lambda report: report.moved.get("flights", 0) == 50)
        assert "full" in syphon.report().failures
        assert syphon.report().dead_lettered == {}
        both.primary.clear_faults()
        report = await draining
        assert report.moved == {"full": 300, "flights": 50}
        assert report.empty
        assert Counter(await both.ids("full")) == Counter(f"f{n}" for n in range(300))


async def test_section_6_it_never_spins_on_what_a_destination_does_not_take() -> None:
    async with hosted("full") as both:
        await both.put_into_backlog("full", messages(*range(20)))
        refused = both.primary.set_fault(Fault(kind=FaultKind.SERVER_BUSY, entity="full", on=(Operation.SEND,)))
        received = both.secondary.set_fault(Fault(kind=FaultKind.LATENCY, delay=0.001))
        syphon = both.pair.syphon()
        draining = asyncio.create_task(syphon.drain())
        await asyncio.sleep(4)
        syphon.stop()
        report = await draining
        # Rests of 1 and 2 seconds: at most three tries, with two links in the race for the first.
        [strikes] = [each.strikes for each in both.primary.faults if each.id == refused.id]
        assert 1 <= strikes <= 4
        assert received.id
        assert (report.moved, report.dead_lettered) == ({}, {})
        assert len(await both.ids_in_backlog()) == 20


async def test_section_6_stopping_releases_what_was_not_sent_at_once() -> None:
    async with hosted("flights") as both:
        await both.put_into_backlog("flights", messages(*range(30)))
        both.primary.set_fault(Fault(kind=FaultKind.SERVER_BUSY, entity="flights", on=(Operation.SEND,)))
        syphon = both.pair.syphon()
        watch = Watch()
        draining = asyncio.create_task(syphon.drain(progress=watch))
        await watch.until(lambda report: report.failures)
        syphon.stop()
        await draining
        both.primary.clear_faults()
        async with asyncio.timeout(10):
            assert (await both.pair.syphon().drain()).moved == {"flights": 30}
