"""Encoded values are split and joined as AMQP 1.0, section 1.6, lays them out."""

from __future__ import annotations

import struct
from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus._pyamqp._decode import decode_payload

from servicebus_pair.core.protocol.amqp_message import Header, Properties, new_message
from servicebus_pair.core.protocol.amqp_sections import (
    BODY,
    SYMBOL,
    binary,
    count_values,
    join_list,
    join_map,
    section,
    split,
    text,
    text_of,
    timestamp,
    uint,
    value_end,
)

# The first byte says how many bytes follow, or how many bytes hold the size of what follows.
FIXED = {0x40: 0, 0x45: 0, 0x50: 1, 0x56: 1, 0x60: 2, 0x61: 2, 0x70: 4, 0x74: 4, 0x80: 8, 0x84: 8, 0x94: 16, 0x98: 16}
SIZED = {0xA0: 1, 0xA1: 1, 0xA3: 1, 0xB0: 4, 0xB1: 4, 0xB3: 4, 0xC0: 1, 0xC1: 1, 0xD0: 4, 0xD1: 4, 0xE0: 1, 0xF0: 4}
VALUES = [
    *(bytes([constructor, *range(count)]) for constructor, count in FIXED.items()),
    *(
        bytes([constructor]) + count.to_bytes(size, "big") + b"x" * count
        for constructor, size in SIZED.items()
        for count in (1, 7, 200)
    ),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: f"{value[0]:#x}-{len(value)}")
def test_a_value_ends_where_its_constructor_and_size_say(value: bytes) -> None:
    assert value_end(value, 0) == len(value)
    assert value_end(b"..." + value + b"...", 3) == len(value) + 3
    described = b"\x00\x53\x77" + value
    assert value_end(described, 0) == len(described)
    if len(value) > 1:
        with pytest.raises((ValueError, IndexError, struct.error)):
            value_end(value[:-1], 0)


@pytest.mark.parametrize(
    ("data", "what"),
    [
        *((data, "value begins at byte 0") for data in (b"\x01", b"\x10", b"\x30x")),
        (b"\x00\x00\x53\x77\x40", "descriptor begins at byte 1"),
        (b"\x00\x53\x77\x00\x00\x40", "descriptor begins at byte 4"),
        (b"\x00\x20\x40", "value begins at byte 1"),
    ],
)
def test_what_is_no_value_is_refused(data: bytes, what: str) -> None:
    with pytest.raises(ValueError, match=f"no AMQP {what}"):
        value_end(data, 0)


def test_a_value_may_be_described_any_number_of_times() -> None:
    value = b"\x00\x53\x77" * 5_000 + b"\x40"
    assert value_end(value + b"...", 0) == len(value)


@pytest.mark.parametrize("length", [0, 1, 255, 256, 70_000])
def test_the_size_of_a_text_takes_one_byte_up_to_255(length: int) -> None:
    size = bytes([length]) if length < 256 else struct.pack(">I", length)
    high = 0 if length < 256 else 0x10
    content = b"x" * length
    assert binary(content) == bytes([0xA0 + high]) + size + content
    assert text("x" * length) == bytes([0xA1 + high]) + size + content
    assert text("x" * length, constructor=SYMBOL) == bytes([0xA3 + high]) + size + content


@pytest.mark.parametrize("size", [0, 1, 252, 253, 254, 255, 1000])
def test_a_list_or_map_is_joined_in_its_shortest_form_and_split_again(size: int) -> None:
    items = [] if size == 0 else [binary(b"x" * min(size // 2, 200)), b"\x40" * 1]
    filled = sum(map(len, items))
    items += [b"\x40"] * (size - filled)
    for joined, narrow in ((join_list(items), 0xC0), (join_map(items), 0xC1)):
        content = b"".join(items)
        if len(content) + 1 < 256:
            assert joined == bytes([narrow, len(content) + 1, len(items)]) + content
        else:
            assert joined == struct.pack(">BII", narrow + 0x10, len(content) + 4, len(items)) + content
        assert split(joined) == items
        assert value_end(joined, 0) == len(joined)
    assert split(b"\x45") == []


@pytest.mark.parametrize("data", [b"\xa1\x01x", b"\x40", b"\x52\x01"])
def test_only_lists_and_maps_are_split(data: bytes) -> None:
    with pytest.raises(ValueError, match=f"constructor {data[0]:#x} is neither of a list nor of a map"):
        split(data)


@pytest.mark.parametrize(
    ("value", "encoded"),
    [(0, "43"), (1, "5201"), (255, "52ff"), (256, "7000000100"), (2**32 - 1, "70ffffffff")],
)
def test_an_unsigned_integer_takes_no_more_bytes_than_it_must(value: int, encoded: str) -> None:
    assert uint(value).hex() == encoded


_OF_IDS = {0x44, 0x53, 0x80, 0x98, 0xA0, 0xA1, 0xA3, 0xB0, 0xB1, 0xB3}


@pytest.mark.parametrize(
    ("encoded", "read"),
    [
        *((bytes([constructor, 2]) + b"m1", "m1") for constructor in (0xA0, 0xA1, 0xA3)),
        *((bytes([constructor, 0, 0, 0, 2]) + b"m1", "m1") for constructor in (0xB0, 0xB1, 0xB3)),
        (b"\xa0\x01\xff", r"\xff"),
        (b"\xa1\x00", ""),
        (b"\x98" + bytes(range(16)), "00010203-0405-0607-0809-0a0b0c0d0e0f"),
        (b"\x44", "0"),
        (b"\x53\x07", "7"),
        (b"\x80" + (2**63).to_bytes(8, "big"), str(2**63)),
        (b"\x40", None),
        (b"\x54\x07", None),
        (b"\x43", None),
        *((value, None) for value in VALUES if value[0] not in _OF_IDS),
    ],
)
def test_an_id_is_read_as_text_in_each_of_its_encodings(encoded: bytes, read: str | None) -> None:
    assert text_of(encoded) == read


def test_a_time_is_its_milliseconds_and_a_section_names_itself() -> None:
    assert timestamp(1_357_000_000_000) == b"\x83" + struct.pack(">q", 1_357_000_000_000)
    assert timestamp(-1).hex() == "83ffffffffffffffff"
    assert decode_payload(memoryview(section(BODY, binary(b"hello")))).data == [b"hello"]


def test_a_new_message_has_a_data_body_and_the_fields_that_are_given() -> None:
    assert (new_message("é").body, new_message(b"\xff").body) == (["é".encode()], [b"\xff"])
    plain = new_message("x")
    assert (plain.header, plain.annotations, plain.application_properties) == (None, None, None)
    full = new_message("x", message_id="m", session_id="s", partition_key="p", application_properties={"a": 1})
    assert full.properties == Properties(message_id="m", group_id="s")
    assert (dict(full.annotations or {}), full.application_properties) == ({"x-opt-partition-key": "p"}, {"a": 1})
    at = datetime(2030, 1, 1, tzinfo=UTC)
    later = new_message(
        "x", time_to_live=timedelta(microseconds=1_500_900), scheduled_enqueue_time=at, reply_to_session_id="r"
    )
    assert (later.header, later.annotations) == (Header(time_to_live=1500), {"x-opt-scheduled-enqueue-time": at})
    assert later.properties == Properties(reply_to_group_id="r")


NULLS = b"\xd0" + struct.pack(">II", 4 + 300, 300) + b"\x40" * 300


@pytest.mark.parametrize(
    ("data", "count"),
    [
        (b"", 0),
        (section(BODY, binary(b"x" * 300)), 1),
        (section(BODY, binary(b"")) * 7, 7),
        (section(BODY, b"\x45"), 1),
        (section(BODY, join_list([uint(1), text("a"), b"\x45"])), 4),
        (section(BODY, join_map([uint(1), section(5, join_list([uint(2)]))])), 4),
        (join_list([NULLS] * 3), 1 + 3 + 900),
        # An array, as many as it has bytes.
        (b"\xe0\x04\x02\x50\x01\x02", 6),
    ],
)
def test_values_are_counted_also_within_others(data: bytes, count: int) -> None:
    assert count_values(data, 5_000) == count
    assert count_values(memoryview(data), 5_000) == count


def test_no_more_values_are_counted_than_asked_for() -> None:
    assert 10 < count_values(section(BODY, join_list([NULLS] * 50_000)), 10) <= 312


@pytest.mark.parametrize(
    "lie",
    [
        b"\xc0\x00\x01\x40",  # ends before its count
        b"\xc0\x02\x02\x40",  # a second item behind its end
        b"\xc0\x03\x01\x40\x40",  # an item more than it has
        b"\xd0" + struct.pack(">II", 5, 65_000) + b"\x40",
        b"\xc1\x03\x01\xa1\x05",  # an item that ends behind it
    ],
)
def test_a_list_or_map_that_does_not_end_with_its_items_is_refused(lie: bytes) -> None:
    """A decoder that believes the number of items would find others than were counted."""
    for data in (lie + b"\x40" * 9, join_list([lie, *[b"\x40"] * 9])):
        with pytest.raises(ValueError, match=r"does not end with its items|no AMQP value begins"):
            count_values(data, 100)
