"""Scheduled messages: on the primary, cancelled, and diverted (SPEC section 4)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import ServiceBusMessage

from servicebus_emulator import Fault, FaultKind, Operation
from servicebus_pair.core.model.errors import InvalidMessageError, SendTimeoutError, ServiceError
from tests.core.support.local_pair import LocalPair, numbered
from tests.core.support.queues import peek_all

pytestmark = pytest.mark.simulated

LATER = datetime(2030, 1, 1, tzinfo=UTC)


async def scheduled(local_pair: LocalPair) -> dict[str | None, datetime | None]:
    held = await peek_all(local_pair.primary.connection_string, "flights")
    return {message.message_id: message.scheduled_enqueue_time_utc for message in held}


async def test_section_4_scheduled_messages_wait_on_the_primary_and_can_be_cancelled(local_pair: LocalPair) -> None:
    async with local_pair.pair.sender("flights") as sender:
        result = await sender.schedule(numbered(3), LATER)
        assert (result.sent.primary_ids, result.sent.diverted) == (("m0", "m1", "m2"), 0)
        assert len(set(result.sequence_numbers)) == 3
        assert await scheduled(local_pair) == dict.fromkeys(("m0", "m1", "m2"), LATER)
        await sender.cancel_scheduled(result.sequence_numbers[:2])
        await sender.cancel_scheduled(result.sequence_numbers[2])
    assert await scheduled(local_pair) == {}


async def test_section_4_a_diverted_schedule_has_no_sequence_numbers(
    local_pair: LocalPair,
) -> None:
    message = ServiceBusMessage("later", message_id="m0")
    async with local_pair.pair.sender("flights") as sender:
        await local_pair.pair.fail_over("flights", reason="test")
        result = await sender.schedule(message, LATER)
        assert (result.sent.diverted_ids, result.sequence_numbers) == (("m0",), ())
        await local_pair.pair.mark_healthy("flights")
    assert (await local_pair.pair.syphon().drain()).moved == {"flights": 1}
    assert await scheduled(local_pair) == {"m0": LATER}
    assert message.scheduled_enqueue_time_utc is None


async def test_section_4_a_schedule_that_meets_the_outage_is_diverted(local_pair: LocalPair) -> None:
    async with local_pair.pair.sender("flights") as sender:
        await sender.send(numbered(1, start=9))
        local_pair.primary.set_fault(Fault(kind=FaultKind.INTERNAL_ERROR, on=(Operation.MANAGE, Operation.SEND)))
        result = await sender.schedule(numbered(2), LATER)
    assert (result.sent.primary, result.sent.diverted_ids) == (0, ("m0", "m1"))


async def test_section_4_schedule_honours_its_timeout(local_pair: LocalPair) -> None:
    async with local_pair.pair.sender("flights") as sender:
        await sender.send(numbered(1, start=9))
        local_pair.primary.set_fault(Fault(kind=FaultKind.NO_DISPOSITION, on=(Operation.MANAGE,)))
        with pytest.raises(SendTimeoutError) as caught:
            await sender.schedule(numbered(2), LATER, timeout=0.5)
    assert len(caught.value.unsent) == len(caught.value.in_doubt) == 2
    assert caught.value.sequence_numbers == ()


async def test_section_4_invalid_schedule_arguments_raise_before_anything_is_sent(local_pair: LocalPair) -> None:
    async with local_pair.pair.sender("flights") as sender:
        with pytest.raises(InvalidMessageError, match="it must have a time zone"):
            await sender.schedule(numbered(1), datetime(2030, 1, 1))  # noqa: DTZ001 - the point
        with pytest.raises(InvalidMessageError, match="messages is generator"):
            await sender.schedule((each for each in numbered(1)), LATER)  # type: ignore[arg-type]
        with pytest.raises(InvalidMessageError, match="a message is str"):
            await sender.schedule(["one"], LATER)  # type: ignore[list-item]
    assert await scheduled(local_pair) == {}


async def test_section_4_cancelling_an_unknown_sequence_number_raises(local_pair: LocalPair) -> None:
    async with local_pair.pair.sender("flights") as sender:
        [number] = (await sender.schedule(numbered(1), LATER - timedelta(days=1))).sequence_numbers
        await sender.cancel_scheduled(number)
        with pytest.raises(ServiceError):
            await sender.cancel_scheduled(number)
