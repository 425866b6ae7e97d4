"""Undeliverable messages: dead-lettering, survey and redrive (SPEC section 6)."""

from __future__ import annotations

import asyncio

import proton
import pytest

from servicebus_emulator.engine.model.descriptions import QueueDescription
from tests.core.support.local_pair import BACKLOG, messages, open_local_pair
from tests.core.support.queues import send_raw

UNREADABLE = [
    pytest.param(proton.decimal128(bytes([0x30, 0x40] + [0] * 13 + [5])), id="decimal128 out of range"),
    pytest.param(proton.decimal64(5), id="decimal64"),
    pytest.param(proton.char("z"), id="char"),
]


@pytest.mark.parametrize("value", UNREADABLE)
async def test_section_6_undecodable_messages_are_dead_lettered_and_block_nothing(value: object) -> None:
    async with open_local_pair("flights", unchecked=True) as local_pair:
        await local_pair.put_into_backlog("flights", messages(1, 2))
        bad = proton.Message(id="bad", body="x", properties={"x-ms-path": "flights", "value": value})
        await asyncio.to_thread(send_raw, local_pair.secondary, BACKLOG, bad)
        await local_pair.put_into_backlog("flights", messages(3))
        survey = await local_pair.pair.syphon().survey()
        assert (survey.destinations["flights"].messages, survey.unreadable) == (3, 1)
        report = await local_pair.pair.syphon().drain()
        assert (report.moved, report.dead_lettered, report.empty) == ({"flights": 3}, {"Unreadable": 1}, True)
        assert await local_pair.primary_ids("flights") == ["m1", "m2", "m3"]
        assert local_pair.secondary.namespace.counts(BACKLOG).dead_lettered == 1


async def test_section_6_redrive_moves_dead_letters_once_their_cause_is_fixed() -> None:
    async with open_local_pair("flights") as local_pair:
        await local_pair.put_into_backlog("later", messages(*range(10)))
        await local_pair.put_into_backlog("never", messages(99, name="n"))
        assert (await local_pair.pair.syphon().drain()).dead_lettered == {"EntityNotFound": 11}
        local_pair.primary.namespace.create_queue(QueueDescription("later"))
        report = await local_pair.pair.syphon(redrive=True).drain()
        assert (report.moved, report.dead_lettered) == ({"later": 10}, {})
        assert await local_pair.primary_ids("later") == [f"m{n}" for n in range(10)]
        assert await local_pair.backlog_ids(dead_letter=True) == ["n99"]
