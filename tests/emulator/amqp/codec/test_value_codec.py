"""Values survive encoding, and the end of an encoded value is found."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servicebus_emulator.amqp.codec.raw_encoding import NULL, MalformedValueError, encode_list, value_end
from servicebus_emulator.amqp.codec.value_codec import Array, Int, Timestamp, Value, decode, encode
from tests.emulator.support.encoded_messages import encoded_values


@given(
    st.recursive(
        st.one_of(
            st.none(),
            st.booleans(),
            st.integers(-(2**63), 2**63 - 1),
            st.text(max_size=300),
            st.binary(max_size=300),
            st.uuids(),
            st.integers(0, 2**31 - 1).map(Int),
            st.floats(allow_nan=False),
        ),
        lambda inner: st.one_of(st.lists(inner, max_size=5), st.dictionaries(st.text(max_size=5), inner, max_size=5)),
        max_leaves=10,
    )
)
def test_values_survive_an_encoding_round_trip(value: Value):
    assert decode(encode(value)) == value


@pytest.mark.parametrize("items", [(), (UUID(int=1), UUID(int=2)), (Timestamp(5),), (1, -1, 2**40)])
def test_arrays_are_decoded_as_lists(items: tuple[UUID, ...] | tuple[int, ...]):
    assert decode(encode(Array(items))) == list(items)


@pytest.mark.parametrize(
    ("items", "text"),
    [
        ([NULL] * 300_000, "announces 300000 items; allowed: 250000"),
        ([encode_list([NULL] * 1_000)] * 101, "more than 100000 values"),
        ([encode(Array(tuple(range(60_000))))] * 2, "more than 100000 values"),
    ],
    ids=["one list", "lists", "arrays"],
)
def test_more_values_than_any_request_has_are_refused(items: list[bytes], text: str):
    """While the values of one client are decoded, the others wait."""
    with pytest.raises(MalformedValueError, match=text):
        decode(encode_list(items))


def test_no_more_items_are_decoded_than_announced():
    hidden = bytearray(encode_list([NULL] * 1_000 + [b"\x3f"]))
    hidden[5:9] = (1).to_bytes(4, "big")
    # The last item is of no AMQP type.
    with pytest.raises(MalformedValueError, match="more than 1 items"):
        decode(bytes(hidden))


def test_deeply_nested_values_are_refused():
    value: Value = None
    for _ in range(40):
        value = [value]
    with pytest.raises(MalformedValueError, match="nested deeper"):
        decode(encode(value))


@given(encoded_values)
def test_value_end_finds_the_end_of_any_value(value: bytes):
    assert value_end(value + b"\x40", 0) == len(value)
