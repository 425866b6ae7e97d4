"""Both ways into azure-servicebus, through private names and without, do the same (DESIGN section 3)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import ServiceBusMessage

from servicebus_emulator import Fault, FaultKind
from servicebus_emulator.engine.model.descriptions import QueueDescription
from servicebus_pair.core.model.errors import MessageTooLargeError, RefusedError, SendError
from servicebus_pair.core.model.events import MessagesAccepted
from tests.core.support.local_pair import BACKLOG, QUICK_OPTIONS, LocalPair, messages, numbered, open_local_pair
from tests.core.support.queues import peek_all

# The first fixture of all, so that the pair is opened on the selected path.
pytestmark = [pytest.mark.usefixtures("sdk_path"), pytest.mark.simulated]

KILOBYTE = 1024
FULL = 255 * KILOBYTE


def sized(size: int, message_id: str = "sized") -> ServiceBusMessage:
    return ServiceBusMessage(bytes(size), message_id=message_id)


async def test_a_message_and_a_batch_arrive_with_the_sizes_that_the_service_counts(
    sdk_path: str, local_pair: LocalPair
) -> None:
    async with local_pair.pair.sender("flights") as sender:
        assert (await sender.send(sized(1_000, "single"))).primary == 1
        assert (await sender.send(numbered(3_000))).primary == 3_000
    assert await local_pair.primary_ids() == ["single", *(f"m{n}" for n in range(3_000))]
    single, *batched = [ref for event in local_pair.recorder.of(MessagesAccepted) for ref in event.messages]
    # AMQP 1.0, section 3.2: the data section's head, and a properties section with an id of six characters.
    assert (single.message_id, single.size_bytes) == ("single", 1_000 + 8 + 3 + 3 + (2 + 6) + 12)
    # The body is "body N" and the id "mN", with N of one to four digits.
    assert [batched[n].size_bytes for n in (1, 10, 100, 1_000)] == [5 + 6 + 18 + 4 + 2 * n for n in range(4)], sdk_path


async def test_batches_are_as_full_as_the_link_allows(local_pair: LocalPair) -> None:
    async with local_pair.pair.sender("flights") as sender:
        await sender.send(sized(10 * KILOBYTE, f"m{n}") for n in range(60))
    batches = [len(event.messages) for event in local_pair.recorder.of(MessagesAccepted)]
    assert batches == [25, 25, 10]


async def test_a_message_too_large_is_refused_and_those_around_it_are_unsent(local_pair: LocalPair) -> None:
    async with local_pair.pair.sender("flights") as sender:
        with pytest.raises(SendError) as caught:
            await sender.send([sized(10, "a"), sized(257 * KILOBYTE, "large"), sized(10, "b")])
        assert isinstance(caught.value.cause, MessageTooLargeError)
        assert "large" in str(caught.value.cause)
        assert (await sender.send(sized(FULL, "full"))).primary == 1
    assert await local_pair.primary_ids() == ["full"]


async def test_an_entity_with_large_messages_takes_one_that_fits_no_batch() -> None:
    async with open_local_pair("flights") as both:
        both.primary.namespace.create_queue(QueueDescription("large", max_message_size_in_kilobytes=4_096))
        async with both.pair.sender("large") as sender:
            assert (await sender.send(sized(3_000 * KILOBYTE, "large"))).primary == 1
            with pytest.raises(SendError) as caught:
                await sender.send(sized(4_100 * KILOBYTE, "larger"))
        assert isinstance(caught.value.cause, MessageTooLargeError)
        assert await both.primary_ids("large") == ["large"]


async def test_a_refused_batch_of_several_sessions_is_split_and_is_no_outage() -> None:
    """The refusal is told from an outage by its condition, which is public in the error's text only."""
    async with open_local_pair("flights") as both:
        both.primary.namespace.create_queue(QueueDescription("sessions", requires_session=True))
        sent = [ServiceBusMessage(f"{n}", message_id=f"m{n}", session_id=None if n == 1 else "a") for n in range(4)]
        async with both.pair.sender("sessions") as sender:
            with pytest.raises(SendError) as caught:
                await sender.send(sent)
            assert not sender._link.accepts_mixed_sessions
        assert isinstance(caught.value.cause, RefusedError)
        assert caught.value.unsent == (sent[1],)
        assert caught.value.result.primary_ids == ("m0", "m2", "m3")
        assert both.recorder.states == []


async def test_diverted_messages_are_drained_and_what_cannot_be_delivered_is_dead_lettered() -> None:
    options = replace(QUICK_OPTIONS, backlog_queue_count=1)
    async with open_local_pair("flights", options=options) as both:
        await both.pair.fail_over("flights", reason="test")
        async with both.pair.sender("flights") as sender:
            sent = [
                ServiceBusMessage("é", message_id=f"m{n}", session_id="s", time_to_live=timedelta(hours=1), subject="x")
                for n in range(300)
            ]
            assert (await sender.send(sent)).diverted == 300
        await both.put_into_backlog("gone", messages(1, name="x"))
        survey = await both.pair.syphon().survey()
        assert {name: each.messages for name, each in survey.destinations.items()} == {"flights": 300, "gone": 1}
        report = await both.pair.syphon().drain()
        assert (report.moved, report.dead_lettered) == ({"flights": 300}, {"EntityNotFound": 1})
        assert (report.empty, report.duplicates_possible) == (True, 0)
        found = await peek_all(both.primary.connection_string, "flights")
        assert [each.message_id for each in found] == [f"m{n}" for n in range(300)]
        assert {(str(each), each.session_id, each.subject, each.time_to_live) for each in found} == {
            ("é", "s", "x", timedelta(hours=1))
        }
        assert await both.backlog_ids(BACKLOG, dead_letter=True) == ["x1"]


async def test_messages_are_scheduled_and_cancelled(local_pair: LocalPair) -> None:
    async with local_pair.pair.sender("flights") as sender:
        scheduled = await sender.schedule(numbered(3), datetime.now(UTC) + timedelta(hours=1))
        await sender.cancel_scheduled(scheduled.sequence_numbers[:1])
    assert len(scheduled.sequence_numbers) == 3
    # The numbers are in the order of the messages.
    assert await local_pair.primary_ids() == ["m1", "m2"]
    assert local_pair.primary.namespace.counts("flights").scheduled == 2


async def test_an_outage_diverts_and_the_ping_ends_it(local_pair: LocalPair) -> None:
    async with local_pair.pair.sender("flights") as sender:
        await sender.send(numbered(1))
        local_pair.primary.set_fault(Fault(kind=FaultKind.FREEZE))
        assert (await sender.send(numbered(5, start=1))).diverted == 5
        local_pair.primary.clear_faults()
        await local_pair.recorder.recovered.wait()
        assert (await sender.send(numbered(1, start=6))).primary == 1
    assert (await local_pair.pair.syphon().drain()).moved_total >= 5
    assert {f"m{n}" for n in range(7)} <= set(await local_pair.primary_ids())
