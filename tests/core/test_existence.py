"""On Azure the token for an entity that does not exist is refused, which looks like a wrong key (SPEC 4, 6)."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from servicebus_emulator import Emulator, Fault, FaultKind, Operation
from servicebus_emulator.engine.descriptions import QueueDescription, TopicDescription
from servicebus_pair.core import NamespacePair, State
from servicebus_pair.core.errors import AuthenticationError, EntityNotFoundError, RefusedError, SendError
from servicebus_pair.core.events import Pinged
from servicebus_pair.core.syphon import Syphon
from tests.core.breakable import QUICK, Breakable, endpoint, numbered
from tests.core.hosted import BACKLOG, hosted, messages
from tests.core.test_arm_administration import arm_of, through_arm

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


async def test_section_4_arm_is_asked_where_the_data_plane_may_not_be() -> None:
    """A credential that may send and nothing else, and one of Resource Manager beside it."""
    async with Emulator(["contoso", "contoso-dr"]) as emulator:
        primary = emulator["contoso"]
        primary.namespace.create_queue(QueueDescription("flights"))
        primary.set_fault(AS_ON_AZURE)
        unmanaged = replace(through_arm(emulator, "contoso"), administration="127.0.0.1:9")
        async with NamespacePair(unmanaged, endpoint(emulator["contoso-dr"]), QUICK) as pair:
            for entity, error in (("gone", EntityNotFoundError), ("flights", AuthenticationError)):
                async with pair.sender(entity) as sender:
                    with pytest.raises(SendError) as caught:
                        await sender.send(numbered(1))
                assert type(caught.value.cause) is error
                assert "cannot be asked" not in str(caught.value)


async def test_section_4_arm_knows_queues_and_topics_and_a_wrong_namespace_says_nothing_of_its_entities() -> None:
    async with Emulator(["contoso"]) as emulator:
        emulator["contoso"].namespace.create_queue(QueueDescription("flights/today"))
        emulator["contoso"].namespace.create_topic(TopicDescription("gates"))
        known = through_arm(emulator, "contoso")
        async with arm_of(known) as right, arm_of(replace(known, namespace="fabrikam")) as wrong:
            found = [await right.exists(path) for path in ("flights/today", "gates", "gone")]
            assert found == [True, True, False]
            with pytest.raises(RefusedError, match="namespace fabrikam is not in resource group"):
                await wrong.exists("flights/today")


@pytest.mark.parametrize("as_on_azure", [True, False], ids=["its token is refused", "its link is refused"])
async def test_section_5_an_entity_that_was_deleted_while_failed_over_is_not_failed_over_for_ever(
    breakable: Breakable, as_on_azure: bool
) -> None:
    async with breakable.pair.sender("flights") as sender:
        breakable.primary.set_fault(Fault(kind=FaultKind.INTERNAL_ERROR))
        assert (await sender.send(numbered(1))).diverted == 1
        breakable.primary.namespace.delete_queue("flights")
        breakable.primary.clear_faults()
        if as_on_azure:
            breakable.primary.set_fault(AS_ON_AZURE)
        await asyncio.wait_for(breakable.recorder.healthy_again.wait(), 10)
        assert breakable.pair.health("flights").reason == "the primary answered a ping that the entity does not exist"
        with pytest.raises(SendError) as caught:
            await sender.send(numbered(2, start=1))
    assert isinstance(caught.value.cause, EntityNotFoundError)
    assert len(caught.value.unsent) == 2
    assert [(ping.succeeded, ping.error) for ping in breakable.recorder.of(Pinged)][-1] == (
        False,
        "EntityNotFoundError",
    )


async def test_section_5_a_refused_token_of_an_entity_that_exists_keeps_it_failed_over(breakable: Breakable) -> None:
    async with breakable.pair.sender("flights") as sender:
        await sender.send(numbered(1))
    breakable.pair.fail_over("flights", reason="test")
    breakable.primary.set_fault(Fault(kind=FaultKind.RESET, count=1))
    breakable.primary.set_fault(AS_ON_AZURE)
    assert not await breakable.pair.ping("flights")
    assert not await breakable.pair.ping("flights")
    assert breakable.pair.health("flights").failed_over
    assert "AuthenticationSuspectError" in {ping.error for ping in breakable.recorder.of(Pinged)}
