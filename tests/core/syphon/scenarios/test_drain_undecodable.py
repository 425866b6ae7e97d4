"""Undeliverable messages: dead-lettering, survey and redrive (SPEC section 6)."""

from __future__ import annotations

import asyncio
from typing import Any

import proton
import pytest
from azure.servicebus import ServiceBusMessage

from servicebus_emulator.amqp.codec.transfer_decoder import decode_message
from servicebus_emulator.engine.model.descriptions import QueueDescription
from servicebus_emulator.engine.namespace.entities import QueueEntity
from servicebus_pair.core import PairOptions
from servicebus_pair.core.protocol.backlog_queues import session_queue_paths
from servicebus_pair.core.syphon.backlog_entry import TimeToLive
from tests.core.support.local_pair import BACKLOG, LocalPair, messages, open_local_pair
from tests.core.support.queues import send_raw

UNREADABLE = [
    pytest.param(proton.decimal128(bytes([0x30, 0x40] + [0] * 13 + [5])), id="decimal128 out of range"),
    pytest.param(proton.decimal64(5), id="decimal64"),
    pytest.param(proton.char("z"), id="char"),
]

# What the sender's notes of AMQP types may have become (SPEC section 6: what can never be delivered is dead-lettered).
CORRUPT_NOTES = {
    "decimal": '{"properties":{"a":["DECIMAL128",""]}}',
    "wrong": '{"properties":{"a":["LIST","INT"]}}',
    "uuid": '{"properties":{"a":"UUID"}}',
    "range": '{"properties":{"a":"UBYTE"}}',
    "time": '{"properties":{"a":"TIMESTAMP"},"ids":7}',
    "deep": '{"properties":{"a":' + '["LIST",' * 900 + "null" + "]" * 900 + "}}",
    "unclosed": "[" * 20_000,
    "text": "no notes",
}


@pytest.mark.fast_sdk
@pytest.mark.simulated
@pytest.mark.parametrize("ordering", ["none", "session"])
async def test_section_6_corrupt_notes_do_no_harm_to_messages_that_are_not_decoded(ordering: str) -> None:
    """Their types are in their bytes; only decimals travel as text, and need the notes."""
    options = PairOptions(backlog_queue_count=1, ordering=ordering)
    async with open_local_pair("flights", options=options) as local_pair:
        for number, (name, notes) in enumerate(CORRUPT_NOTES.items()):
            await local_pair.put_into_backlog("flights", messages(number))
            own: dict[str | bytes, Any] = {"x-ms-path": "flights", "x-servicebus-pair-types": notes, "a": 500}
            bad = ServiceBusMessage("x", message_id=name, application_properties=own)
            await local_pair.put_raw_into_backlog([bad])
        report = await local_pair.pair.syphon().drain()
        assert (report.moved, report.left) == ({"flights": 2 * len(CORRUPT_NOTES) - 1}, 0)
        assert await local_pair.backlog_ids(dead_letter=True) == ["decimal"]


@pytest.mark.fast_sdk
@pytest.mark.parametrize("value", UNREADABLE)
async def test_section_6_messages_that_the_sdk_cannot_decode_are_moved_as_they_are(value: object) -> None:
    async with open_local_pair("flights", unchecked=True) as local_pair:
        await local_pair.put_into_backlog("flights", messages(1, 2))
        bad = proton.Message(id="odd", body="x", properties={"x-ms-path": "flights", "value": value})
        await asyncio.to_thread(send_raw, local_pair.secondary, BACKLOG, bad)
        await local_pair.put_into_backlog("flights", messages(3))
        report = await local_pair.pair.syphon().drain()
        assert (report.moved, report.dead_lettered, report.empty) == ({"flights": 4}, {}, True)
        assert local_pair.primary.namespace.counts("flights").active == 4
        assert local_pair.secondary.namespace.counts(BACKLOG).dead_lettered == 0


@pytest.mark.fast_sdk
async def test_section_6_an_unusual_message_that_the_sdk_cannot_decode_is_dead_lettered() -> None:
    async with open_local_pair("flights", unchecked=True) as local_pair:
        await local_pair.put_into_backlog("flights", messages(1))
        bad = proton.Message(id="bad", body="x", properties={"value": proton.char("z")})
        await asyncio.to_thread(send_raw, local_pair.secondary, BACKLOG, bad)
        await local_pair.put_into_backlog("flights", messages(2))
        report = await local_pair.pair.syphon().drain()
        assert (report.moved, report.dead_lettered, report.empty) == ({"flights": 2}, {"Unreadable": 1}, True)


@pytest.mark.simulated
@pytest.mark.usefixtures("decoding_sdk")
@pytest.mark.parametrize("ordering", ["none", "session"])
@pytest.mark.parametrize("policy", TimeToLive)
async def test_section_6_messages_with_corrupt_notes_are_dead_lettered_and_block_nothing(
    ordering: str, policy: TimeToLive
) -> None:
    options = PairOptions(backlog_queue_count=1, ordering=ordering)
    async with open_local_pair("flights", options=options) as local_pair:
        for number, (name, notes) in enumerate(CORRUPT_NOTES.items()):
            await local_pair.put_into_backlog("flights", messages(number))
            own: dict[str | bytes, Any] = {"x-ms-path": "flights", "x-servicebus-pair-types": notes, "a": 500}
            bad = ServiceBusMessage("x", message_id=name, application_properties=own)
            await local_pair.put_raw_into_backlog([bad])
        survey = await local_pair.pair.syphon().survey()
        assert survey.messages == 2 * len(CORRUPT_NOTES)
        report = await local_pair.pair.syphon(time_to_live=policy).drain()
        assert (report.moved, report.left) == ({"flights": len(CORRUPT_NOTES)}, 0)
        assert set(report.dead_lettered) <= {"BadAlias", "Unreadable", "InvalidMessage"}
        assert await local_pair.primary_ids() == [f"m{n}" for n in range(len(CORRUPT_NOTES))]
        assert sorted(await local_pair.backlog_ids(dead_letter=True)) == sorted(CORRUPT_NOTES)


@pytest.mark.fast_sdk  # only the SDK's inside shows such a message
@pytest.mark.usefixtures("decoding_sdk")
async def test_section_6_in_the_old_form_an_undecodable_message_holds_up_no_session() -> None:
    options = PairOptions(backlog_queue_count=1, ordering="session")
    sent = [ServiceBusMessage("x", message_id=f"m{n}", session_id="a") for n in range(15)]
    async with open_local_pair("flights", options=options, unchecked=True) as local_pair:
        await local_pair.put_into_backlog("flights", sent[:7])
        bad = proton.Message(id="bad", body="x", properties={"x-ms-path": "flights", "value": proton.char("z")})
        await asyncio.to_thread(send_raw, local_pair.secondary, BACKLOG, bad)
        await local_pair.put_into_backlog("flights", sent[7:])
        async with asyncio.timeout(20):
            report = await local_pair.pair.syphon().drain()
        assert (report.moved, report.dead_lettered, report.left) == ({"flights": 15}, {"Unreadable": 1}, 0)
        assert await local_pair.primary_ids() == [f"m{n}" for n in range(15)]


@pytest.mark.fast_sdk  # only the SDK's inside shows such a message
@pytest.mark.usefixtures("decoding_sdk")
@pytest.mark.parametrize("position", [0, 7])
@pytest.mark.parametrize("value", UNREADABLE[:1])
async def test_section_6_an_undecodable_message_in_a_session_is_dead_lettered_and_the_session_goes_on(
    value: object, position: int
) -> None:
    options = PairOptions(backlog_queue_count=1, ordering="session")
    sent = [ServiceBusMessage("x", message_id=f"m{n}", session_id="a") for n in range(15)]
    async with open_local_pair("flights", options=options, unchecked=True) as local_pair:
        await local_pair.put_into_sessions("flights", sent[:position])
        bad = proton.Message(id="bad", body="x", properties={"x-ms-path": "flights", "value": value})
        bad.group_id = "flights"
        queue = session_queue_paths("contoso", 1)[0]
        await asyncio.to_thread(send_raw, local_pair.secondary, queue, bad)
        await local_pair.put_into_sessions("flights", sent[position:])
        survey = await local_pair.pair.syphon().survey()
        assert (survey.destinations["flights"].messages, survey.unreadable) == (15, 1)
        async with asyncio.timeout(20):
            report = await local_pair.pair.syphon().drain()
        assert (report.moved, report.dead_lettered, report.left) == ({"flights": 15}, {"Unreadable": 1}, 0)
        assert await local_pair.primary_ids() == [f"m{n}" for n in range(15)]


@pytest.mark.fast_sdk  # only the SDK's inside shows such a message
@pytest.mark.usefixtures("decoding_sdk")
@pytest.mark.parametrize("value", UNREADABLE[:1])
async def test_section_6_a_redrive_ends_though_dead_letters_cannot_be_decoded(value: object) -> None:
    async with open_local_pair("flights", unchecked=True) as local_pair:
        bad = proton.Message(id="bad", body="x", properties={"x-ms-path": "flights", "value": value})
        await asyncio.to_thread(send_raw, local_pair.secondary, BACKLOG, bad)
        await local_pair.put_into_backlog("later", messages(1))
        assert (await local_pair.pair.syphon().drain()).dead_lettered == {"Unreadable": 1, "EntityNotFound": 1}
        local_pair.primary.namespace.create_queue(QueueDescription("later"))
        async with asyncio.timeout(20):
            assert (await local_pair.pair.syphon(redrive=True).drain()).moved == {"later": 1}
        assert local_pair.secondary.namespace.counts(BACKLOG).dead_lettered == 1


@pytest.mark.fast_sdk  # only the SDK's inside shows such a message
@pytest.mark.usefixtures("decoding_sdk")
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


def put_undecodable(local_pair: LocalPair, queue: str) -> None:
    """Put a message for ``flights`` into a queue that the SDK cannot decode."""
    bad = proton.Message(id="bad", body="x", properties={"x-ms-path": "flights", "value": proton.char("z")})
    bad.group_id = "flights"
    entity = local_pair.secondary.namespace.find(queue)
    assert isinstance(entity, QueueEntity)
    entity.send([decode_message(bytes(bad.encode()), new_id=str)])


@pytest.mark.simulated
@pytest.mark.usefixtures("public_sdk")
async def test_section_6_on_the_public_path_an_undecodable_message_is_left_and_those_around_it_are_moved() -> None:
    async with open_local_pair("flights") as local_pair:
        await local_pair.put_into_backlog("flights", messages(1, 2))
        put_undecodable(local_pair, BACKLOG)
        await local_pair.put_into_backlog("flights", messages(*range(3, 200)))
        survey = await local_pair.pair.syphon().survey()
        assert (survey.destinations["flights"].messages, survey.unreadable) == (199, 1)
        async with asyncio.timeout(80):
            report = await local_pair.pair.syphon().drain()
        assert (report.moved, report.left, report.empty) == ({"flights": 199}, 1, False)
        assert await local_pair.primary_ids() == [f"m{n}" for n in range(1, 200)]


@pytest.mark.simulated
@pytest.mark.usefixtures("public_sdk")
async def test_section_6_on_the_public_path_an_undecodable_message_stops_its_session_and_no_drain() -> None:
    options = PairOptions(backlog_queue_count=1, ordering="session")
    queue = session_queue_paths("contoso", 1)[0]
    sent = [ServiceBusMessage("x", message_id=f"m{n}", session_id="a") for n in range(5)]
    async with open_local_pair("flights", "delays", options=options) as local_pair:
        put_undecodable(local_pair, queue)
        await local_pair.put_into_sessions("flights", sent)
        await local_pair.put_into_sessions("delays", sent)
        async with asyncio.timeout(80):
            report = await local_pair.pair.syphon().drain()
        assert (report.moved, report.left) == ({"delays": 5}, 6)
        assert list(report.failures) == [f"{queue} session flights"]
        assert await local_pair.primary_ids() == []
