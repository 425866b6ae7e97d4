"""The copy must still fit: its growth is known to the byte before sending (SPEC section 4, size)."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import patch

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.amqp import AmqpAnnotatedMessage
from hypothesis import given, settings
from hypothesis import strategies as st

from servicebus_emulator import Emulator, Fault, FaultKind
from servicebus_emulator.engine.descriptions import QueueDescription
from servicebus_pair.core import NamespacePair
from servicebus_pair.core.envelope import wrap
from servicebus_pair.core.errors import MessageTooLargeError, SendError
from servicebus_pair.core.events import BacklogTooSmall
from servicebus_pair.core.size import growth, is_large
from servicebus_pair.core.wire import WireBatch, encoded_size
from tests.core.breakable import QUICK, Breakable, endpoint, numbered
from tests.core.wire import sent

LIMIT = 262_144

texts = st.text(max_size=20)
values = st.one_of(
    st.booleans(),
    st.integers(-(2**31), 2**31 - 1),
    st.floats(allow_nan=False),
    texts,
    texts.map(str.encode),
    st.uuids(),
    st.just(datetime(2013, 1, 1, 5, 15, tzinfo=UTC)),
)


properties: st.SearchStrategy[Any] = st.dictionaries(st.text(min_size=1, max_size=10), values, max_size=5)


@st.composite
def messages(draw: st.DrawFn) -> AmqpAnnotatedMessage:
    made = ServiceBusMessage(
        draw(st.binary(max_size=300)),
        message_id=draw(st.text(min_size=1, max_size=20)),
        session_id=draw(st.none() | texts),
        subject=draw(st.none() | texts),
        correlation_id=draw(st.none() | texts),
        application_properties=draw(properties),
    )
    if draw(st.booleans()):
        made.scheduled_enqueue_time_utc = datetime(2030, 1, 1, tzinfo=UTC)
    if draw(st.booleans()):
        made.time_to_live = timedelta(seconds=draw(st.integers(1, 10_000)))
    return made.raw_amqp_message


@settings(max_examples=150)
@given(message=messages(), entity=st.text(min_size=1, max_size=60))
def test_section_4_the_growth_of_the_copy_is_known_to_the_byte(message: AmqpAnnotatedMessage, entity: str) -> None:
    assert growth(message, entity=entity) == len(sent(wrap(message, entity=entity))) - len(sent(message))


@settings(max_examples=150)
@given(message=messages())
def test_a_message_is_encoded_as_the_sdk_encodes_it(message: AmqpAnnotatedMessage) -> None:
    ours, theirs = WireBatch(LIMIT), ServiceBusMessageBatch(LIMIT)
    # The SDK writes the second of encoding into a message with a time to live: one second for all three.
    with patch("time.mktime", return_value=1_800_000_000.0):
        theirs.add_message(message)
        assert ours.try_add(message)
        assert ours.try_add(message)
    [one, two] = ours.wire._message[5]  # type: ignore[union-attr]
    assert [bytes(one)] == [bytes(two)] == [bytes(each) for each in theirs._message[5]]
    assert encoded_size(message) == len(one)


def test_section_4_a_full_batch_is_full_to_the_byte_for_the_sdk_too() -> None:
    message = ServiceBusMessage(b"x" * 1000, message_id="m").raw_amqp_message
    ours = WireBatch(10_000)
    while ours.try_add(message):
        pass
    assert len(ours) == 9
    assert len({ref.size_bytes for ref in ours.refs[1:]}) == 1


def test_section_4_a_message_that_fits_no_batch_goes_alone_if_the_link_takes_it() -> None:
    large = ServiceBusMessage(b"x" * 5_000, message_id="large").raw_amqp_message
    batch = WireBatch(1_000, largest=6_000)
    assert batch.try_add(large)
    assert not batch.try_add(ServiceBusMessage(b"x", message_id="small").raw_amqp_message)
    assert batch.wire is large
    assert [(ref.message_id, ref.size_bytes) for ref in batch.refs] == [("large", encoded_size(large))]
    with pytest.raises(MessageTooLargeError, match=r"'large' takes 50\d\d bytes: the link takes 4000"):
        WireBatch(1_000, largest=4_000).try_add(large)


@pytest.mark.parametrize(
    "properties",
    [{}, {"n" * 10: 1}, {f"p{n:04}": b"x" for n in range(900)}, {f"é{n:03}": True for n in range(900)}],
    ids=["none", "one", "many bytes", "many booleans"],
)
def test_section_4_whatever_grows_beyond_the_limit_is_measured(properties: Any) -> None:
    message = ServiceBusMessage(b"", message_id="m", application_properties=properties).raw_amqp_message
    size, more = encoded_size(message), growth(message, entity="e" * 260)
    if size > 1000:
        assert is_large(size, limit=size + more - 1)


def almost_full() -> ServiceBusMessage:
    beside = encoded_size(ServiceBusMessage(b"x" * 1000, message_id="almost full").raw_amqp_message) - 1000
    return ServiceBusMessage(b"x" * (LIMIT - beside - 10), message_id="almost full")


async def test_section_4_a_message_that_fits_the_primary_but_not_the_backlog_is_warned_of_while_healthy(
    breakable: Breakable,
) -> None:
    async with breakable.pair.sender("flights") as sender:
        assert (await sender.send([*numbered(2), almost_full()])).primary == 3
        await breakable.recorder.next_of(BacklogTooSmall)
    [warning] = breakable.recorder.of(BacklogTooSmall)
    assert (warning.entity, warning.message_id, warning.limit_bytes) == ("flights", "almost full", LIMIT)
    message = almost_full().raw_amqp_message
    assert warning.size_bytes == encoded_size(message)
    assert warning.growth_bytes == growth(message, entity="flights")
    assert warning.size_bytes <= LIMIT < warning.size_bytes + warning.growth_bytes


async def test_section_4_a_message_that_does_not_fit_the_backlog_is_a_clear_error_while_failed_over(
    breakable: Breakable,
) -> None:
    async with breakable.pair.sender("flights") as sender:
        breakable.pair.fail_over("flights", reason="test")
        with pytest.raises(SendError, match=r"as a copy for the backlog, message 'almost full' takes") as caught:
            await sender.send(almost_full())
    assert isinstance(caught.value.cause, MessageTooLargeError)
    assert len(caught.value.unsent) == 1
    assert caught.value.in_doubt == ()


async def test_section_4_while_the_backlog_does_not_answer_only_a_few_warnings_wait(
    breakable: Breakable,
) -> None:
    breakable.secondary.set_fault(Fault(kind=FaultKind.FREEZE))
    async with breakable.pair.sender("flights") as sender:
        assert (await sender.send([almost_full() for _ in range(40)])).primary == 40
        waiting = [task for task in asyncio.all_tasks() if task.get_name() == "consider the backlog"]
        assert 0 < len(waiting) <= 16
        breakable.secondary.clear_faults()
        await breakable.recorder.next_of(BacklogTooSmall)


async def test_section_4_what_fits_both_warns_of_nothing(breakable: Breakable) -> None:
    async with breakable.pair.sender("flights") as sender:
        await sender.send(ServiceBusMessage(b"x" * 200_000, message_id="large"))
        await sender.send(numbered(100))
    assert breakable.recorder.of(BacklogTooSmall) == []


async def test_section_4_the_limits_are_those_of_the_links_at_hand_and_no_constant(breakable: Breakable) -> None:
    premium = QueueDescription("premium", max_message_size_in_kilobytes=102_400)
    breakable.primary.namespace.create_queue(premium)
    message = ServiceBusMessage(b"x" * 5_000_000, message_id="of 5 MB")
    async with breakable.pair.sender("premium") as sender:
        assert (await sender.send(message)).primary == 1
        await breakable.recorder.next_of(BacklogTooSmall)
        assert breakable.recorder.of(BacklogTooSmall)[0].limit_bytes == LIMIT
        breakable.pair.fail_over("premium", reason="test")
        with pytest.raises(SendError, match=f"as a copy for the backlog.* the link takes {LIMIT}"):
            await sender.send(message)


async def test_section_4_where_the_backlog_takes_large_messages_too_they_are_diverted() -> None:
    async with Emulator(["contoso", "contoso-dr"], message_kilobytes=102_400) as emulator:
        emulator["contoso"].namespace.create_queue(QueueDescription("premium"))
        ends = endpoint(emulator["contoso"]), endpoint(emulator["contoso-dr"])
        async with NamespacePair(*ends, QUICK) as pair, pair.sender("premium") as sender:
            await pair.provision()
            pair.fail_over("premium", reason="test")
            sent = await sender.send(ServiceBusMessage(b"x" * 5_000_000, message_id="of 5 MB"))
            assert sent.diverted == 1
            pair.mark_healthy("premium")
            assert (await pair.syphon().drain()).moved == {"premium": 1}
