"""A survey of ordered backlogs, past what cannot be decoded (SPEC section 6)."""

from __future__ import annotations

import asyncio

import proton
import pytest
from azure.servicebus import ServiceBusMessage

from servicebus_pair.core import PairOptions
from servicebus_pair.core.protocol.backlog_queues import session_queue_paths
from servicebus_pair.core.sdk.messages import to_amqp_message
from tests.core.support.local_pair import open_local_pair
from tests.core.support.queues import send_raw

OPTIONS = PairOptions(backlog_queue_count=1, ordering="session")
DIVERTED: dict[str | bytes, str] = {"x-ms-path": "flights", "x-ms-sessionid": "N14228"}


@pytest.mark.fast_sdk  # only the SDK's inside shows such a message
@pytest.mark.usefixtures("decoding_sdk")
async def test_section_6_a_message_that_cannot_be_decoded_stops_neither_survey_nor_drain_of_its_session() -> None:
    [queue] = session_queue_paths("contoso", 1)
    async with open_local_pair("flights", options=OPTIONS, unchecked=True) as made:
        link = made.pair._open().secondary.send_link(queue)
        for name in ("a", "b", "bad", "c"):
            if name == "bad":
                properties = {**DIVERTED, "value": proton.char("z")}
                bad = proton.Message(id=name, body="x", group_id="flights", properties=properties)
                await asyncio.to_thread(send_raw, made.secondary, queue, bad)
            else:
                message = ServiceBusMessage(
                    "x", message_id=name, session_id="flights", application_properties=dict(DIVERTED)
                )
                await link.send_ping(to_amqp_message(message), timeout=5)
        survey = await made.pair.syphon().survey()
        report = await made.pair.syphon().drain()
        assert await made.primary_ids() == ["a", "b", "c"]
    assert {entity: each.messages for entity, each in survey.destinations.items()} == {"flights": 3}
    assert (survey.unreadable, survey.locked) == (1, 0)
    assert (report.moved, sum(report.dead_lettered.values()), report.left) == ({"flights": 3}, 1, 0)
