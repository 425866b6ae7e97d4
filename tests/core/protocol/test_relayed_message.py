"""Restoring encoded backlog messages gives the bytes that decoding and encoding them gives (SPEC section 4)."""

from __future__ import annotations

import struct
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageHeader
from hypothesis import example, given
from hypothesis import strategies as st

from servicebus_pair.core.model.errors import UndeliverableError
from servicebus_pair.core.protocol import relayed_message
from servicebus_pair.core.protocol.amqp_sections import (
    APPLICATION_PROPERTIES,
    BODY,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    SYMBOL,
    binary,
    join_list,
    join_map,
    section,
    text,
    value_end,
)
from servicebus_pair.core.protocol.backlog_message import unwrap, wrap
from servicebus_pair.core.protocol.encoded_message import batch_prefix, broker_value
from servicebus_pair.core.protocol.relayed_message import BacklogRewriter, UnusualMessageError
from servicebus_pair.core.protocol.typed_values import amqp_typed
from servicebus_pair.core.sdk.messages import from_sdk
from tests.core.support.encoding import decode, encode
from tests.core.support.message_strategies import EXPIRING, LASTING, SCHEDULED, WHOLE, messages
from tests.examples import examples

ENTITY = "flights"
UNLIMITED = "P10675199DT2H48M5.4775807S"
# The time at which the test's encoder creates messages.
NOON = 1_357_041_600.0
LONG_AGO = 0.0
SET_BY_THE_BROKER = {
    "x-opt-sequence-number": amqp_typed("LONG", 7),
    "x-opt-enqueued-time": amqp_typed("TIMESTAMP", 1_357_000_000_000),
    "x-opt-locked-until": amqp_typed("TIMESTAMP", 1_357_000_060_000),
    "x-opt-message-state": amqp_typed("INT", 0),
    "x-opt-enqueue-sequence-number": amqp_typed("LONG", 0),
}


def delivered(message: AmqpAnnotatedMessage, *, broker: bool = True) -> bytes:
    """Return the backlog copy of a message as a receiver gets it."""
    copy = wrap(from_sdk(message), entity=ENTITY)
    if broker:
        copy.annotations = {**SET_BY_THE_BROKER, **(copy.annotations or {})}
        copy.delivery_annotations = None
    return encode(copy)


def restored(data: bytes, *, now: float = NOON, rewriter: BacklogRewriter | None = None) -> bytes:
    entity, message = (BacklogRewriter() if rewriter is None else rewriter).restore(data, now=now)
    assert entity == ENTITY
    return message.encoded


def has_decimals(data: bytes) -> bool:
    notes: Any = (decode(data).application_properties or {}).get(b"x-servicebus-pair-types", b"")
    return b"DECIMAL" in (notes if isinstance(notes, bytes) else notes.encode())


@examples(200)
@example(message=WHOLE)
@example(message=LASTING)
@example(message=EXPIRING)
@example(message=AmqpAnnotatedMessage(value_body=amqp_typed("LONG", 7)))
@example(message=AmqpAnnotatedMessage(sequence_body=[[amqp_typed("LONG", 7), "a"], [amqp_typed("SYMBOL", "b")]]))
@given(message=messages())
def test_section_4_a_restored_message_has_the_bytes_of_the_original(message: AmqpAnnotatedMessage) -> None:
    data = delivered(message)
    rewriter = BacklogRewriter()
    if has_decimals(data):
        with pytest.raises(UnusualMessageError):
            rewriter.restore(data, now=NOON)
        return
    due = message.annotations.get(SCHEDULED) if message.annotations else None
    now = NOON if due is None else min(NOON, due.timestamp() - 1)
    once = restored(data, now=now, rewriter=rewriter)
    # The second time, what was remembered of the first is used.
    assert once == restored(data, now=now, rewriter=rewriter)
    if now == NOON or message.header is None or not message.header.time_to_live:
        assert once == encode(message)


@examples(120)
@given(first=messages(), second=messages())
def test_what_is_remembered_of_one_message_changes_no_other(
    first: AmqpAnnotatedMessage, second: AmqpAnnotatedMessage
) -> None:
    shared = BacklogRewriter()
    for data in (delivered(first), delivered(second), delivered(first, broker=False)):
        try:
            expected = BacklogRewriter().restore(data, now=LONG_AGO)
        except UnusualMessageError:
            continue
        entity, message = shared.restore(data, now=LONG_AGO)
        assert (entity, message.encoded) == (expected[0], expected[1].encoded)
        assert message.message_id == expected[1].message_id
        assert message.session_id == expected[1].session_id
        assert message.partition_key == expected[1].partition_key


@examples(150)
@given(message=messages(), cut=st.integers(0, 200), garbage=st.binary(max_size=8))
def test_any_bytes_are_restored_or_left_to_the_decoder(message: AmqpAnnotatedMessage, cut: int, garbage: bytes) -> None:
    data = delivered(message)
    position = min(cut, len(data))
    for broken in (data[:position], data[:position] + garbage + data[position + len(garbage) :]):
        try:
            _, back = BacklogRewriter().restore(broken, now=NOON)
        except UnusualMessageError:
            continue
        assert isinstance(back.message_id, str)
        batch_prefix(back.encoded)
        broker_value(broken, "x-opt-sequence-number")


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"x-ms-path": 5},
        {"x-ms-path": ""},
        {"x-ms-path": "flights/$management"},
        {"x-ms-path": ENTITY, "x-ms-sessionid": 5},
        {"x-ms-path": ENTITY, "x-ms-timetolive": "soon"},
        {"x-ms-path": ENTITY, "x-ms-timetolive": "-PT0.001S"},
        {"x-ms-path": ENTITY, b"x-ms-scheduledenqueuetimeutc": amqp_typed("TIMESTAMP", 253_402_300_800_000)},
        {"x-ms-path": ENTITY, amqp_typed("SYMBOL", "name"): 5},
        {"x-ms-path": ENTITY, "x-ms-timetolive": (amqp_typed("SYMBOL", "com.microsoft:timespan"), 5)},
        {"x-ms-path": ENTITY, "x-ms-scheduledenqueuetimeutc": "noon"},
        {"x-ms-path": ENTITY, "x-ms-scheduledenqueuetimeutc": amqp_typed("LONG", 5)},
    ],
    ids=str,
)
def test_aliases_that_are_not_as_we_write_them_are_left_to_the_decoder(properties: dict[str, Any]) -> None:
    data = encode(AmqpAnnotatedMessage(data_body=b"x", application_properties=properties))
    with pytest.raises(UnusualMessageError):
        BacklogRewriter().restore(data, now=NOON)


@pytest.mark.parametrize("descriptor", [APPLICATION_PROPERTIES, MESSAGE_ANNOTATIONS])
def test_a_map_with_a_name_that_has_no_value_is_left_to_the_decoder(descriptor: int) -> None:
    address = section(APPLICATION_PROPERTIES, join_map([text("x-ms-path"), text(ENTITY)]))
    uneven = section(descriptor, join_map([text("x-ms-path"), text(ENTITY), text("name")]))
    with pytest.raises(UnusualMessageError):
        BacklogRewriter().restore(address + uneven + section(BODY, binary(b"x")), now=NOON)


@pytest.mark.parametrize(
    ("properties", "message_id"),
    [
        (None, "None"),
        (b"\x45", "None"),
        (join_list([text("m1")]), "m1"),
        (join_list([text("m" * 200)]), "m" * 200),
        (join_list([text("m" * 300)]), "m" * 300),
        (join_list([text("m1"), b"\x40", b"\x40", text("s" * 300)]), "m1"),
    ],
)
def test_properties_are_read_whatever_the_form_of_their_list(properties: bytes | None, message_id: str) -> None:
    data = section(APPLICATION_PROPERTIES, join_map([text("x-ms-path"), text(ENTITY)]))
    data += section(BODY, binary(b"x"))
    given = b"" if properties is None else section(PROPERTIES, properties)
    rewriter = BacklogRewriter()
    for _ in range(2):
        _, relayed = rewriter.restore(given + data, now=NOON)
        assert relayed.message_id == message_id


def test_an_application_property_whose_name_is_no_string_is_left_to_the_decoder() -> None:
    for name in (text("x-ms-path", constructor=SYMBOL), binary(b"x-ms-path"), b"\x40"):
        data = section(APPLICATION_PROPERTIES, join_map([text("x-ms-path"), text(ENTITY), name, text("a")]))
        with pytest.raises(UnusualMessageError, match="the name of an application property is no string"):
            BacklogRewriter().restore(data + section(BODY, binary(b"x")), now=NOON)


@pytest.mark.parametrize("prefix", [b"\x00\x52", b"\x00\x54"])
def test_a_section_that_begins_in_another_form_is_left_to_the_decoder(prefix: bytes) -> None:
    address = section(APPLICATION_PROPERTIES, join_map([text("x-ms-path"), text(ENTITY)]))
    data = section(BODY, binary(b"x"))
    for parts in (prefix + address[2:] + data, address + prefix + data[2:]):
        with pytest.raises(UnusualMessageError, match="a section begins in another form"):
            BacklogRewriter().restore(parts, now=NOON)


def test_names_and_values_in_the_long_form_are_read_as_in_the_short_one() -> None:
    def wide(value: str) -> bytes:
        return struct.pack(">BI", 0xB1, len(value)) + value.encode()

    items = [*map(wide, ("x-ms-path", ENTITY, "x-ms-sessionid", "s")), wide("own"), wide("value")]
    data = section(APPLICATION_PROPERTIES, join_map(items)) + section(BODY, binary(b"x"))
    entity, relayed = BacklogRewriter().restore(data, now=NOON)
    assert (entity, relayed.session_id) == (ENTITY, "s")
    assert section(APPLICATION_PROPERTIES, join_map(items[4:])) in relayed.encoded


def test_decimals_are_left_to_the_decoder() -> None:
    data = delivered(AmqpAnnotatedMessage(data_body=b"x", application_properties={"price": Decimal(5)}))
    with pytest.raises(UnusualMessageError, match="decimals"):
        BacklogRewriter().restore(data, now=NOON)


def test_section_6_a_time_to_live_that_elapses_is_left_to_the_decoder() -> None:
    lasting = delivered(ServiceBusMessage("x", message_id="1", time_to_live=timedelta(days=1)).raw_amqp_message)
    with pytest.raises(UnusualMessageError, match="time to live"):
        BacklogRewriter(elapses=True).restore(lasting, now=NOON)
    plain = delivered(ServiceBusMessage("x", message_id="1").raw_amqp_message)
    assert BacklogRewriter(elapses=True).restore(plain, now=NOON)[1].message_id == "1"


@pytest.mark.parametrize("seconds", [-1, 0])
def test_section_6_a_scheduled_time_in_the_past_is_removed(seconds: int) -> None:
    due = datetime.fromtimestamp(NOON + seconds, UTC)
    message = ServiceBusMessage("x", message_id="1", scheduled_enqueue_time_utc=due)
    plain = ServiceBusMessage("x", message_id="1")
    assert restored(delivered(message.raw_amqp_message)) == encode(plain)


@pytest.mark.parametrize("seconds", [0.001, 0.5, 1])
def test_section_6_a_scheduled_time_in_the_future_is_kept(seconds: float) -> None:
    due = datetime.fromtimestamp(NOON + seconds, UTC)
    message = ServiceBusMessage("x", message_id="1", scheduled_enqueue_time_utc=due)
    assert restored(delivered(message.raw_amqp_message)) == encode(message)


def test_what_has_to_be_known_of_a_message_is_read() -> None:
    message = ServiceBusMessage("x", message_id="m1", session_id="s", partition_key="s")
    data = delivered(message.raw_amqp_message)
    _, back = BacklogRewriter().restore(data, now=NOON)
    assert (back.message_id, back.session_id, back.partition_key) == ("m1", "s", "s")
    assert broker_value(data, "x-opt-sequence-number") == 7
    assert broker_value(data, "x-opt-locked-until") == 1_357_000_060_000
    assert broker_value(data, "x-opt-partition-id") is None


@examples(120)
@given(message=messages())
def test_foreign_copies_are_restored_as_the_decoder_restores_them(message: AmqpAnnotatedMessage) -> None:
    """Of other senders, without type notes: their types are kept, and values are those that the decoder finds."""
    copy = wrap(from_sdk(message), entity=ENTITY)
    assert copy.application_properties is not None
    copy.application_properties = {
        name: value for name, value in copy.application_properties.items() if name != "x-servicebus-pair-types"
    }
    data = encode(copy)
    try:
        decoded = encode(unwrap(from_sdk(decode(data))).message)
        _, back = BacklogRewriter().restore(data, now=LONG_AGO)
    except (UndeliverableError, UnusualMessageError):
        return
    if not back.encoded:
        return  # the SDK decodes no empty message
    ours, theirs = decode(back.encoded), decode(decoded)
    assert ours.header == theirs.header
    assert ours.body_type is theirs.body_type
    assert set(ours.application_properties or ()) == set(theirs.application_properties or ())
    assert (
        ours.properties is None or theirs.properties is None or ours.properties.group_id == theirs.properties.group_id
    )


def test_the_body_is_a_part_of_the_message_that_is_not_read() -> None:
    """Even one that no AMQP decoder could read."""
    data = delivered(to_sdk_message())
    start = 0
    while data[start + 2] < BODY:
        start = value_end(data, start + 3)
    broken = data[:start] + b"\x00\x53\x75\x01garbage"
    assert restored(broken).endswith(b"\x00\x53\x75\x01garbage")


def to_sdk_message() -> AmqpAnnotatedMessage:
    return ServiceBusMessage("x", message_id="1").raw_amqp_message


@pytest.mark.parametrize(
    ("duration", "milliseconds"),
    [("PT0S", 0), ("PT0.001S", 1), ("PT4294967.295S", 2**32 - 1), ("P60D", 2**32 - 1), (UNLIMITED, None)],
)
def test_section_4_a_time_to_live_is_at_most_what_a_header_holds(duration: str, milliseconds: int | None) -> None:
    copied = {"x-ms-path": ENTITY, "x-ms-timetolive": duration}
    header = decode(restored(encode(AmqpAnnotatedMessage(data_body=b"x", application_properties=copied)))).header
    assert (None if header is None else header.time_to_live) == milliseconds


def test_a_rewriter_remembers_a_limited_number_of_short_things() -> None:
    rewriter = BacklogRewriter()

    def restore(number: int, *, more: str = "", life: int = 0) -> None:
        properties: dict[str, Any] = {"x-ms-path": ENTITY, "n": number, "more": more}
        header = AmqpMessageHeader(time_to_live=life) if life else None
        properties |= {"x-ms-timetolive": f"PT{life}S"} if life else {}
        data = encode(AmqpAnnotatedMessage(data_body=b"x", header=header, application_properties=properties))
        assert decode(restored(data, rewriter=rewriter)).application_properties == {
            b"n": number,
            b"more": more.encode(),
        }

    for number in range(1024):
        restore(number)
    assert len(rewriter._carried) == 1024
    restore(0)
    assert len(rewriter._carried) == 1024
    restore(5000, more="x" * 600)
    assert len(rewriter._carried) == 1024, "it is too long to be remembered"
    restore(5000)
    assert len(rewriter._carried) == 1
    headers = len(rewriter._headers)
    for life in range(1, 1025 - headers):
        restore(0, life=life)
    assert len(rewriter._headers) == 1024
    restore(0, life=5000)
    assert len(rewriter._headers) == 1


@pytest.mark.parametrize(("size", "remembered"), [(511, 1), (512, 1), (513, 0), (600, 0)])
def test_application_properties_of_up_to_512_bytes_are_remembered(size: int, remembered: int) -> None:
    filled = size - len(join_map([text("x-ms-path"), text(ENTITY), text("n"), text("x" * 400)])) + 400
    properties = join_map([text("x-ms-path"), text(ENTITY), text("n"), text("x" * filled)])
    assert len(properties) == size
    rewriter = BacklogRewriter()
    restored(section(APPLICATION_PROPERTIES, properties) + section(BODY, binary(b"x")), rewriter=rewriter)
    assert len(rewriter._carried) == remembered


@pytest.mark.parametrize(("spare", "kept"), [(1, True), (0, False)])
def test_the_ends_of_so_many_property_lists_are_remembered(spare: int, kept: bool) -> None:
    rewriter = BacklogRewriter()
    for subject in ("", "x" * 200):
        message = ServiceBusMessage("x", message_id="1", subject=subject, content_type="y" * 5)
        assert restored(delivered(message.raw_amqp_message), rewriter=rewriter) == encode(message)
    assert len(rewriter._plain_ends) == 2
    rewriter._plain_ends |= {bytes(number) for number in range(1024 - 2 - spare)}
    message = ServiceBusMessage("x", message_id="1", subject="another")
    for _ in range(2):
        assert restored(delivered(message.raw_amqp_message), rewriter=rewriter) == encode(message)
    assert len(rewriter._plain_ends) == 1024
    assert any(b"another" in end for end in rewriter._plain_ends) is kept


def test_nothing_is_split_of_a_message_whose_parts_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    rewriter = BacklogRewriter()
    data = delivered(ServiceBusMessage("x", message_id="1", subject="s").raw_amqp_message)
    once = restored(data, rewriter=rewriter)
    monkeypatch.setattr(relayed_message, "split", None)
    assert restored(data, rewriter=rewriter) == once
