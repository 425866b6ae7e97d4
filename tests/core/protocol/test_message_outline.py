"""An outline says of a message what decoding it says, and of what cannot be decoded nothing (SPEC section 9)."""

from __future__ import annotations

import pytest
from azure.servicebus import ServiceBusReceivedMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage
from hypothesis import example, given
from hypothesis import strategies as st

from servicebus_pair.core.protocol import message_outline
from servicebus_pair.core.protocol.amqp_message import AmqpMessage, new_message
from servicebus_pair.core.protocol.amqp_sections import (
    APPLICATION_PROPERTIES,
    BODY,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    SYMBOL,
    binary,
    join_list,
    join_map,
    section,
    text,
    uint,
)
from servicebus_pair.core.protocol.backlog_message import wrap
from servicebus_pair.core.protocol.message_outline import MessageOutline, OutlineReader
from servicebus_pair.core.protocol.typed_values import amqp_typed
from servicebus_pair.core.sdk.messages import from_sdk
from servicebus_pair.core.sdk.received_message import OutlinedMessage, ReceivedMessage
from tests.core.support.encoding import encode
from tests.core.support.message_strategies import LASTING, WHOLE, messages
from tests.examples import examples

STATES = st.sampled_from([0, 1, 2])


def peeked(message: AmqpMessage, *, state: int = 0, number: int = 7) -> bytes:
    """Return a message as a queue holds it."""
    position = {
        "x-opt-sequence-number": amqp_typed("LONG", number),
        "x-opt-message-state": amqp_typed("INT", state),
        "x-opt-enqueued-time": amqp_typed("TIMESTAMP", 1_357_000_000_000),
    }
    message.annotations = {**position, **(message.annotations or {})}
    return encode(message)


def facts(message: ReceivedMessage) -> tuple[object, ...]:
    return (
        message.sequence_number,
        message.state,
        message.message_id,
        message.session_id,
        message.content_type,
        message.destination,
        message.digest,
    )


def decoded(data: bytes) -> tuple[object, ...]:
    return facts(ReceivedMessage(ServiceBusReceivedMessage.from_bytes(data)))


def outlined(data: bytes, reader: OutlineReader) -> tuple[object, ...] | None:
    outline = reader.read(data)
    return None if outline is None else facts(OutlinedMessage(outline))


@examples(200)
@example(first=WHOLE, second=LASTING, state=2, in_backlog=True)
@given(first=messages(), second=messages(), state=STATES, in_backlog=st.booleans())
def test_an_outline_is_what_decoding_says(
    first: AmqpAnnotatedMessage, second: AmqpAnnotatedMessage, state: int, in_backlog: bool
) -> None:
    """The second time, what was remembered of the first messages is used."""
    reader = OutlineReader()
    for message in (first, second, first):
        own = from_sdk(message)
        data = peeked(wrap(own, entity="flights") if in_backlog else own, state=state)
        found = outlined(data, reader)
        # None for messages that cannot be decoded, too.
        assert found is None or found == decoded(data)


@pytest.mark.parametrize("in_backlog", [False, True])
@pytest.mark.parametrize("size", [0, 3, 255, 256, 70_000])
def test_usual_messages_need_not_be_decoded(size: int, in_backlog: bool) -> None:
    reader = OutlineReader()
    for number in range(3):
        message = new_message(b"x" * size, message_id=f"m{number}", session_id=f"s{number}", content_type="text/plain")
        message.application_properties = {"count": number, "name": "é", "when": amqp_typed("TIMESTAMP", 5)}
        data = peeked(wrap(message, entity="flights") if in_backlog else message, number=number + 1)
        assert outlined(data, reader) == decoded(data)


ID = section(PROPERTIES, join_list([text("m1")]))
DATA = section(BODY, binary(b"x"))
LIVES = section(HEADER, join_list([b"\x41", b"\x50\x04", uint(1_000)]))
NAMED = section(MESSAGE_ANNOTATIONS, join_map([text("x-opt-message-state", constructor=SYMBOL), b"\x54\x01"]))
# What sections begin with is between these.
NO_SECTIONS = (b"\x00\x52", b"\x00\x54")
CHAR, DECIMAL = b"\x73\x00\x00\x00z", b"\x74\x00\x00\x00\x00"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (ID + DATA, MessageOutline(0, 0, "m1", None, None, "", "4a")),
        (LIVES + NAMED + DATA + DATA, MessageOutline(0, 1, None, None, None, "", "a6")),
        (b"", None),
        (ID, None),
        (ID + DATA[:-1], None),
        (ID + section(BODY + 2, text("value")), None),
        (ID + section(BODY, text("no binary")), None),
        (ID + DATA + section(BODY + 3, join_map([])), None),
        (section(0x71, join_map([])) + DATA, None),
        *((other + ID[2:] + DATA, None) for other in NO_SECTIONS),
        *((DATA + other + DATA[2:], None) for other in NO_SECTIONS),
        (DATA + section(HEADER, binary(b"x")), None),
        (section(APPLICATION_PROPERTIES, join_map([text("a"), CHAR])) + DATA, None),
        (section(APPLICATION_PROPERTIES, join_map([text("a"), DECIMAL])) + DATA, None),
        (section(APPLICATION_PROPERTIES, join_map([text("x-ms-path"), uint(3)])) + DATA, None),
        (section(APPLICATION_PROPERTIES, join_map([uint(3), text("a")])) + DATA, None),
        (section(MESSAGE_ANNOTATIONS, join_map([text("a", constructor=SYMBOL), CHAR])) + DATA, None),
        (section(PROPERTIES, join_list([uint(3)])) + DATA, None),
        (section(PROPERTIES, join_list([b"\xa1\x01\xff"])) + DATA, None),
        (section(PROPERTIES, join_list([text("m"), CHAR])) + DATA, None),
        (section(HEADER, join_list([CHAR])) + DATA, None),
        (NAMED[:-1] + b"\x09" + DATA, None),
    ],
)
def test_what_is_unusual_is_left_to_the_decoder(data: bytes, expected: MessageOutline | None) -> None:
    reader = OutlineReader()
    for _ in range(2):
        found = reader.read(data)
        assert (None if found is None else found._replace(digest=found.digest[:2])) == expected
    if expected is not None:
        assert outlined(data, reader) == decoded(data)


# AMQP 1.0, section 1.6: those of null, booleans, integers, floats, times, UUIDs, binaries, strings and symbols.
PLAIN = {0x40, 0x41, 0x42, 0x43, 0x44, 0x50, 0x51, 0x52, 0x53, 0x54, 0x55, 0x56, 0x60, 0x61, 0x70, 0x71, 0x72}
PLAIN |= {0x80, 0x81, 0x82, 0x83, 0x98, 0xA0, 0xA1, 0xA3, 0xB0, 0xB1, 0xB3}
# Bytes behind a constructor, by its upper half; of those that say it themselves, none follow.
WIDTHS = {0x4: 0, 0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16, 0xA: 1, 0xB: 4, 0xC: 1, 0xD: 4, 0xE: 1, 0xF: 4}


@pytest.mark.parametrize("constructor", range(0x40, 0x100))
def test_values_that_every_decoder_reads_are_read_and_all_others_are_left_to_it(constructor: int) -> None:
    value = bytes((constructor,)) + bytes(WIDTHS[constructor >> 4])
    properties = section(APPLICATION_PROPERTIES, join_map([text("a"), value]))
    assert (OutlineReader().read(properties + DATA) is not None) is (constructor in PLAIN)


def test_a_reader_remembers_a_limited_number_of_short_sections() -> None:
    reader = OutlineReader()
    stores = reader._plain_headers, reader._destinations, reader._ends

    def read(number: int, *, more: int = 0) -> None:
        """Read a message whose three sections have 512 bytes and ``more``, or little more than 255 and fewer."""
        size = 400 if number % 2 else 20
        own = number.to_bytes(8, "big").hex()
        header = join_list([binary(own.encode() + bytes(size))])
        properties = join_map([text("p"), text(own + "x" * size)])
        end = [text(own + "x" * 100 * (number % 2))]
        if more:
            header = join_list([binary(own.encode() + bytes(512 - 16 - 14 - 1 + more))])
            properties = join_map([text("p"), text(own + "x" * (512 - 16 - 17 - 1 + more))])
        data = section(HEADER, header) + section(PROPERTIES, join_list([text("m"), *end]))
        outline = reader.read(data + section(APPLICATION_PROPERTIES, properties) + DATA)
        assert outline is not None
        assert outline.message_id == "m"

    for number in range(1030):
        read(number)
    assert [len(store) for store in stores] == [1024] * 3
    for store in stores:
        store.clear()
    read(1, more=1)
    assert {len(section) for section in (*reader._plain_headers, *reader._destinations)} == {512}
    read(2, more=2)
    assert [len(store) for store in stores] == [1, 1, 2]


def test_the_end_of_long_properties_is_not_remembered_as_that_of_an_id_alone() -> None:
    reader = OutlineReader()
    wide = section(PROPERTIES, join_list([text("m" * 200), *[b"\x40"] * 9, text("s" * 100)]))
    for properties, session in ((wide, "s" * 100), (ID, None), (wide, "s" * 100)):
        outline = reader.read(properties + DATA)
        assert outline is not None
        assert outline.session_id == session


def test_nothing_is_split_of_a_message_whose_sections_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = OutlineReader()
    data = peeked(wrap(new_message("x", message_id="m", session_id="s"), entity="flights"))
    once = reader.read(data)
    assert once is not None
    monkeypatch.setattr(message_outline, "split", None)
    assert reader.read(data) == once
