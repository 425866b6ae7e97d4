"""What the service rejects of every message is checked before sending (SPEC section 4)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from hypothesis import given
from hypothesis import strategies as st

from servicebus_pair.core.model.errors import InvalidMessageError, SendError
from servicebus_pair.core.protocol.amqp_message import (
    MAX_PROPERTIES_BYTES,
    MAX_PROPERTY_BYTES,
    PING_CONTENT_TYPE,
    Header,
    check_message,
    new_message,
)
from servicebus_pair.core.protocol.typed_values import amqp_typed
from servicebus_pair.core.sdk.messages import to_amqp_message
from tests.core.support.local_pair import LocalPair, numbered

KILOBYTE = 1024


def check(**properties: Any) -> None:
    given: Any = properties
    check_message(to_amqp_message(ServiceBusMessage("x", application_properties=given)))


def test_section_4_limits() -> None:
    assert (MAX_PROPERTY_BYTES, MAX_PROPERTIES_BYTES) == (32 * KILOBYTE, 64 * KILOBYTE)


@pytest.mark.parametrize(
    ("value", "size"), [("x" * 32_769, 32_769), ("é" * 16_385, 32_770), (b"x" * 40_000, 40_000)], ids=repr
)
def test_section_4_a_property_over_32_kilobytes_is_named_with_its_size(value: Any, size: int) -> None:
    with pytest.raises(InvalidMessageError, match=f"application property 'airline' takes {size} bytes: at most 32768"):
        check(number=1, airline=value)


@pytest.mark.parametrize("value", ["x" * 32_768, "é" * 16_384, b"x" * 32_768, 2**40, True, None], ids=repr)
def test_section_4_a_property_of_32_kilobytes_is_allowed(value: Any) -> None:
    check(airline=value)


def test_section_4_a_long_name_of_a_property_is_named_by_its_beginning() -> None:
    with pytest.raises(InvalidMessageError, match=rf"application property '{'n' * 100}' takes 32769 bytes"):
        check(**{"n" * 101: "x" * 32_769})


def test_section_4_all_properties_and_their_names_together_take_64_kilobytes() -> None:
    """As they are encoded: with lengths and constructors of strings, map and section."""
    half = "x" * 32_753
    check(a=half, b=half + "x" * 2)
    with pytest.raises(InvalidMessageError, match="take 65537 bytes together: at most 65536 are allowed"):
        check(a=half, bb=half + "x" * 2)


@given(st.dictionaries(st.text(max_size=5), st.integers(0, 40_000), max_size=4))
def test_section_4_exactly_the_messages_within_the_limits_are_allowed(sizes: dict[str, int]) -> None:
    properties: Any = {name: "x" * size for name, size in sizes.items()}
    message = to_amqp_message(ServiceBusMessage("x", application_properties=properties))
    names = sum(2 + len(name.encode(errors="surrogatepass")) for name in sizes)
    values = sum(size + (2 if size < 256 else 5) for size in sizes.values())
    allowed = 12 + names + values <= 64 * KILOBYTE and all(size <= 32 * KILOBYTE for size in sizes.values())
    if allowed:
        check_message(message)
    else:
        with pytest.raises(InvalidMessageError):
            check_message(message)


@pytest.mark.parametrize("life", [timedelta(0), timedelta(milliseconds=999)])
async def test_section_4_a_time_to_live_of_zero_is_refused_before_anything_is_sent(
    local_pair: LocalPair, life: timedelta
) -> None:
    dying = ServiceBusMessage("x", message_id="dying", time_to_live=life)
    async with local_pair.pair.sender("flights") as sender:
        with pytest.raises(
            SendError, match="time to live is 0 ms: allowed are 1 to 4294967295, 49 days, or none"
        ) as caught:
            await sender.send([dying, *numbered(2)])
        assert isinstance(caught.value.cause, InvalidMessageError)
        assert len(caught.value.unsent) == 3
        assert await local_pair.primary_ids() == []
        assert not local_pair.pair.health("flights").failed_over


@pytest.mark.parametrize(
    ("life", "allowed"),
    [(1, True), (2**32 - 1, True), (0, False), (-1, False), (2**32, False), (1.5, False), (None, True)],
)
def test_section_4_a_time_to_live_is_what_a_header_holds(life: Any, allowed: bool) -> None:
    message = new_message("x")
    message.header = Header(time_to_live=life)
    if allowed:
        check_message(message)
    else:
        with pytest.raises(InvalidMessageError, match=f"time to live is {life} ms: allowed are 1 to 4294967295"):
            check_message(message)


def with_annotation(value: Any) -> ServiceBusMessage:
    message = ServiceBusMessage("x", message_id="odd")
    message.raw_amqp_message.annotations = {b"x-opt-scheduled-enqueue-time": value}
    return message


@pytest.mark.parametrize(
    ("odd", "named"),
    [
        (with_annotation("2030-01-01T00:00:00Z"), "annotation x-opt-scheduled-enqueue-time is '2030-"),
        (with_annotation(1_900_000_000_000), "allowed are a datetime and an AMQP timestamp"),
        (with_annotation(amqp_typed("TIMESTAMP", 2**62)), "of the years 1 to 9999"),
        (ServiceBusMessage("x", message_id="odd", time_to_live=timedelta(days=50)), "time to live is 4320000000 ms"),
        (ServiceBusMessage("x", message_id="odd", time_to_live=timedelta(seconds=-1)), "allowed are 1 to 4294967295"),
        # The broker would take it and deliver it to nobody.
        (
            ServiceBusMessage("x", message_id="odd", content_type=PING_CONTENT_TYPE),
            "content type is application/vnd.ms-servicebus-p",
        ),
    ],
    ids=["text", "integer", "far future", "50 days", "negative", "content type of a ping"],
)
@pytest.mark.parametrize("failed_over", [False, True])
async def test_section_4_both_routes_refuse_the_same_messages_before_anything_is_sent(
    local_pair: LocalPair, odd: ServiceBusMessage, named: str, failed_over: bool
) -> None:
    async with local_pair.pair.sender("flights") as sender:
        if failed_over:
            await local_pair.pair.fail_over("flights", reason="test", hold=timedelta(minutes=5))
        with pytest.raises(SendError, match=named) as caught:
            await sender.send([odd, *numbered(1)])
        assert isinstance(caught.value.cause, InvalidMessageError)
        assert len(caught.value.unsent) == 2
        assert await local_pair.primary_ids() == await local_pair.backlog_ids() == []
        assert local_pair.pair.health("flights").failed_over is failed_over


@pytest.mark.parametrize(
    "usual",
    [
        with_annotation(datetime(2030, 1, 1, tzinfo=UTC)),
        with_annotation(amqp_typed("TIMESTAMP", 1_900_000_000_000)),
        ServiceBusMessage("x", message_id="odd", time_to_live=timedelta(seconds=4_294_967)),
    ],
    ids=["datetime", "timestamp", "49 days"],
)
async def test_section_4_both_routes_take_the_same_messages(local_pair: LocalPair, usual: ServiceBusMessage) -> None:
    async with local_pair.pair.sender("flights") as sender:
        assert (await sender.send(usual)).primary == 1
        await local_pair.pair.fail_over("flights", reason="test", hold=timedelta(minutes=5))
        assert (await sender.send(usual)).diverted == 1
        assert (await local_pair.pair.syphon().drain()).moved_total == 1
