"""Scheduling and cancelling work, and while failed over they go to the backlog and say so (SPEC section 4)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import ServiceBusMessage

from servicebus_emulator import Fault, FaultKind, Operation
from servicebus_pair.core.errors import InvalidMessageError, SendTimeoutError, ServiceError
from tests.core.breakable import Breakable, numbered
from tests.core.peeking import peek_all

pytestmark = pytest.mark.simulated

LATER = datetime(2030, 1, 1, tzinfo=UTC)


async def scheduled(breakable: Breakable) -> dict[str | None, datetime | None]:
    held = await peek_all(breakable.primary.connection_string, "flights")
    return {message.message_id: message.scheduled_enqueue_time_utc for message in held}


async def test_section_4_scheduled_messages_wait_on_the_primary_and_can_be_cancelled(breakable: Breakable) -> None:
    async with breakable.pair.sender("flights") as sender:
        result = await sender.schedule(numbered(3), LATER)
        assert (result.sent.primary_ids, result.sent.diverted) == (("m0", "m1", "m2"), 0)
        assert len(set(result.sequence_numbers)) == 3
        assert await scheduled(breakable) == dict.fromkeys(("m0", "m1", "m2"), LATER)
        await sender.cancel_scheduled(result.sequence_numbers[:2])
        await sender.cancel_scheduled(result.sequence_numbers[2])
    assert await scheduled(breakable) == {}


async def test_section_4_while_failed_over_schedule_goes_to_the_backlog_and_has_no_sequence_number_yet(
    breakable: Breakable,
) -> None:
    message = ServiceBusMessage("later", message_id="m0")
    async with breakable.pair.sender("flights") as sender:
        breakable.pair.fail_over("flights", reason="test")
        result = await sender.schedule(message, LATER)
        assert (result.sent.diverted_ids, result.sequence_numbers) == (("m0",), ())
        breakable.pair.mark_healthy("flights")
    assert (await breakable.pair.syphon().drain()).moved == {"flights": 1}
    assert await scheduled(breakable) == {"m0": LATER}
    assert message.scheduled_enqueue_time_utc is None


async def test_section_4_the_schedule_that_finds_the_outage_is_diverted_too(breakable: Breakable) -> None:
    async with breakable.pair.sender("flights") as sender:
        await sender.send(numbered(1, start=9))
        breakable.primary.set_fault(Fault(kind=FaultKind.INTERNAL_ERROR, on=(Operation.MANAGE, Operation.SEND)))
        result = await sender.schedule(numbered(2), LATER)
    assert (result.sent.primary, result.sent.diverted_ids) == (0, ("m0", "m1"))


async def test_section_4_a_schedule_has_a_deadline_like_a_send(breakable: Breakable) -> None:
    async with breakable.pair.sender("flights") as sender:
        await sender.send(numbered(1, start=9))
        breakable.primary.set_fault(Fault(kind=FaultKind.NO_DISPOSITION, on=(Operation.MANAGE,)))
        with pytest.raises(SendTimeoutError) as caught:
            await sender.schedule(numbered(2), LATER, timeout=0.5)
    assert len(caught.value.unsent) == len(caught.value.in_doubt) == 2
    assert caught.value.sequence_numbers == ()


async def test_section_4_what_cannot_be_scheduled_is_refused_before_anything_is_sent(breakable: Breakable) -> None:
    async with breakable.pair.sender("flights") as sender:
        with pytest.raises(InvalidMessageError, match="it must have a time zone"):
            await sender.schedule(numbered(1), datetime(2030, 1, 1))  # noqa: DTZ001 - the point
        with pytest.raises(InvalidMessageError, match="messages is generator"):
            await sender.schedule((each for each in numbered(1)), LATER)  # type: ignore[arg-type]
        with pytest.raises(InvalidMessageError, match="a message is str"):
            await sender.schedule(["one"], LATER)  # type: ignore[list-item]
    assert await scheduled(breakable) == {}


async def test_section_4_cancelling_what_is_not_there_is_an_error(breakable: Breakable) -> None:
    async with breakable.pair.sender("flights") as sender:
        [number] = (await sender.schedule(numbered(1), LATER - timedelta(days=1))).sequence_numbers
        await sender.cancel_scheduled(number)
        with pytest.raises(ServiceError):
            await sender.cancel_scheduled(number)
