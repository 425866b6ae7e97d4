"""On Azure the token for an entity that does not exist is refused, which looks like a wrong key (SPEC 4, 6)."""

from __future__ import annotations

import asyncio

import pytest

from servicebus_emulator import Fault, FaultKind, Operation
from servicebus_pair.core import State
from servicebus_pair.core.errors import EntityNotFoundError, SendError
from servicebus_pair.core.syphon import Syphon
from tests.core.breakable import Breakable, numbered
from tests.core.hosted import BACKLOG, hosted, messages

AS_ON_AZURE = Fault(kind=FaultKind.AUTH_FAILURE, status=404)


async def test_section_6_a_deleted_destination_is_dead_lettered_although_its_token_is_refused() -> None:
    async with hosted("flights") as both:
        async with both.pair.sender("flights") as sender:
            await sender.send(messages(0))
        await both.put_into_backlog("gone", messages(1, 2))
        await both.put_into_backlog("flights", messages(3))
        both.primary.set_fault(AS_ON_AZURE)
        report = await both.pair.syphon().drain()
        assert (report.moved, report.dead_lettered) == ({"flights": 1}, {"EntityNotFound": 2})
        assert await both.ids_in_backlog(BACKLOG, dead_letter=True) == ["m1", "m2"]


async def test_section_6_a_destination_that_exists_rests_while_tokens_are_refused() -> None:
    async with hosted("flights") as both:
        await both.put_into_backlog("flights", messages(1))
        both.primary.set_fault(Fault(kind=FaultKind.AUTH_FAILURE, status=404, count=1))
        report = await both.pair.syphon().drain()
        assert (report.moved, report.dead_lettered) == ({"flights": 1}, {})


async def test_section_6_where_existence_cannot_be_asked_the_destination_rests_and_the_report_says_why() -> None:
    async with hosted("flights") as both:
        await both.put_into_backlog("gone", messages(1))
        both.primary.set_fault(AS_ON_AZURE)
        both.primary.set_fault(Fault(kind=FaultKind.UNAUTHORIZED, on=(Operation.ADMINISTER,)))
        syphon = both.pair.syphon()
        report = await drained_for(syphon, seconds=1.5)
        assert report.dead_lettered == {}
        assert "whether gone exists cannot be asked (AuthenticationError)" in report.failures["gone"]
        assert await both.ids_in_backlog() == ["m1"]


async def drained_for(syphon: Syphon, *, seconds: float):
    draining = asyncio.create_task(syphon.drain())
    await asyncio.sleep(seconds)
    syphon.stop()
    return await draining


async def test_section_4_a_send_to_an_entity_that_does_not_exist_is_no_outage(breakable: Breakable) -> None:
    async with breakable.pair.sender("flights") as sender:
        await sender.send(numbered(1))
    breakable.primary.set_fault(AS_ON_AZURE)
    async with breakable.pair.sender("gone") as sender:
        with pytest.raises(SendError) as caught:
            await sender.send(numbered(2))
    assert isinstance(caught.value.cause, EntityNotFoundError)
    assert len(caught.value.unsent) == 2
    assert breakable.pair.health("gone").state is State.HEALTHY
