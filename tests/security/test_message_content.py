"""Whoever may send to the backlog, or to a queue that a DAG reads, stops no process that looks into it."""

from __future__ import annotations

from servicebus_emulator.amqp.codec.sections import SectionCode
from servicebus_emulator.amqp.codec.transfer_decoder import decode_message
from servicebus_emulator.engine.namespace.entities import QueueEntity
from tests.core.support.local_pair import BACKLOG, open_local_pair
from tests.emulator.support.encoded_messages import listed, mapped, section
from tests.emulator.support.proton_client import encoded_message

# 4 KB that the SDK decodes to 150 MB: a message of 1 MB would be 40 GB.
NULLS = [b"\xf0\x00\x00\x00\x05\x00\x01\x00\x00\x40"] * 300
NAMED = [each for nulls in NULLS for each in (b"\xa1\x01a", nulls)]
PATH = section(SectionCode.APPLICATION_PROPERTIES, mapped(b"\xa1\x09x-ms-path", b"\xa1\x07flights"))
BOMBS = (
    PATH + section(SectionCode.VALUE, listed(*NULLS)),
    section(SectionCode.MESSAGE_ANNOTATIONS, mapped(*NAMED)) + PATH + encoded_message(),
    section(SectionCode.APPLICATION_PROPERTIES, mapped(b"\xa1\x09x-ms-path", b"\xa1\x07flights", *NAMED)),
)


async def test_arrays_without_bytes_are_not_decoded_by_those_who_peek() -> None:
    async with open_local_pair("flights") as local:
        backlog = local.secondary.namespace.find(BACKLOG)
        assert isinstance(backlog, QueueEntity)
        backlog.send([decode_message(each, new_id=lambda: "bomb") for each in BOMBS])
        survey = await local.pair.syphon().survey()
        drained = await local.pair.syphon().drain()
        left = local.secondary.namespace.counts(BACKLOG)

    # They lie in a row, which a survey counts once; a drain relays the bytes, and the primary judges them.
    assert (survey.unreadable, survey.destinations) == (1, {})
    assert (drained.moved, left.active) == ({"flights": 3}, 0)
