"""What a syphon can never deliver blocks nothing, and is driven again on request (SPEC section 6)."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import proton
import pytest

from servicebus_emulator.engine.descriptions import QueueDescription
from tests.core.hosted import BACKLOG, hosted, messages
from tests.core.syphoning import put_raw

UNREADABLE = [
    pytest.param(proton.decimal128(bytes([0x30, 0x40] + [0] * 13 + [5])), id="decimal128 out of range"),
    pytest.param(proton.decimal64(5), id="decimal64"),
    pytest.param(proton.char("z"), id="char"),
]


@pytest.mark.parametrize("value", UNREADABLE)
async def test_section_6_what_the_sdk_cannot_decode_is_dead_lettered_and_blocks_nothing(value: object) -> None:
    async with hosted("flights", unchecked=True) as both:
        await both.put_into_backlog("flights", messages(1, 2))
        bad = proton.Message(id="bad", body="x", properties={"x-ms-path": "flights", "value": value})
        await asyncio.to_thread(put_raw, both.secondary, BACKLOG, bad)
        await both.put_into_backlog("flights", messages(3))
        survey = await both.pair.syphon().survey()
        assert (survey.destinations["flights"].messages, survey.unreadable) == (3, 1)
        report = await both.pair.syphon().drain()
        assert (report.moved, report.dead_lettered, report.empty) == ({"flights": 3}, {"Unreadable": 1}, True)
        assert await both.ids("flights") == ["m1", "m2", "m3"]
        assert both.secondary.namespace.counts(BACKLOG).dead_lettered == 1


async def test_section_6_a_dry_run_counts_ages_and_sizes_by_destination_and_takes_nothing() -> None:
    async with hosted("flights", "delays", unchecked=True) as both:
        await both.put_into_backlog("flights", messages(*range(250), body="x" * 100))
        await both.put_into_backlog("delays", messages(*range(5)))
        await asyncio.to_thread(put_raw, both.secondary, BACKLOG, proton.Message(id="lost sheep", body="x"))
        survey = await both.pair.syphon().survey()
        now = datetime.now(UTC).timestamp()
        assert {entity: each.messages for entity, each in survey.destinations.items()} == {"flights": 250, "delays": 5}
        assert survey.undeliverable == {"NoPath": 1}
        assert survey.messages == 256
        flights = survey.destinations["flights"]
        assert 250 * 100 <= flights.bytes <= 250 * 300
        newest, oldest = flights.ages(now)
        assert 0 <= newest <= oldest < 30
        assert len(await both.ids_in_backlog()) == 256


async def test_section_6_dead_letters_are_driven_again_once_their_cause_is_mended() -> None:
    async with hosted("flights") as both:
        await both.put_into_backlog("later", messages(*range(10)))
        await both.put_into_backlog("never", messages(99, name="n"))
        assert (await both.pair.syphon().drain()).dead_lettered == {"EntityNotFound": 11}
        both.primary.namespace.create_queue(QueueDescription("later"))
        report = await both.pair.syphon(redrive=True).drain()
        assert (report.moved, report.dead_lettered) == ({"later": 10}, {})
        assert await both.ids("later") == [f"m{n}" for n in range(10)]
        assert await both.ids_in_backlog(dead_letter=True) == ["n99"]
