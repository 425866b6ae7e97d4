"""Messages are encoded to exactly the bytes of the SDK."""

from __future__ import annotations

from typing import Any

import pytest
from azure.servicebus._pyamqp._encode import encode_payload
from azure.servicebus._pyamqp.message import Header, Message, Properties
from hypothesis import given
from hypothesis import strategies as st

from servicebus_pair.core.sdk._private import message_encoding
from servicebus_pair.core.sdk._private.message_encoding import encode
from tests.examples import examples

pytestmark = pytest.mark.fast_sdk

# Around the lengths from which AMQP counts with four bytes instead of one.
lengths = st.sampled_from([0, 1, 20, 120, 126, 127, 128, 251, 254, 255, 256, 300])
texts = st.builds(lambda letter, length: letter * length, st.sampled_from("xé"), lengths)
some_text = st.none() | texts
parts = st.builds(lambda length: b"x" * length, lengths)

properties: st.SearchStrategy[Any] = st.builds(
    Properties,
    message_id=some_text | st.integers(0, 2**40) | st.uuids() | parts,
    user_id=st.none() | parts,
    to=some_text,
    subject=some_text,
    reply_to=some_text,
    correlation_id=some_text | st.uuids(),
    content_type=some_text,
    content_encoding=some_text,
    absolute_expiry_time=st.none() | st.integers(0, 2**40),
    creation_time=st.none() | st.integers(0, 2**40),
    group_id=some_text,
    group_sequence=st.none() | st.integers(0, 2**20),
    reply_to_group_id=some_text | parts,
)
of_text: st.SearchStrategy[Any] = st.builds(
    lambda count, value: {f"name {number}": value for number in range(count)}, lengths, texts
)
of_anything: st.SearchStrategy[Any] = st.dictionaries(
    st.text(max_size=5),
    texts | st.booleans() | st.integers(-(2**31), 2**31 - 1) | st.just({"TYPE": "LONG", "VALUE": 5}),
)
messages: st.SearchStrategy[Any] = st.builds(
    Message,
    header=st.none() | st.builds(lambda ttl: Header(ttl=ttl), st.integers(0, 2**32 - 1)),
    delivery_annotations=st.sampled_from([None, {}, {"x": 1}]),
    message_annotations=st.sampled_from([None, {}, {"x-opt-partition-key": "k"}]),
    properties=st.none() | properties,
    application_properties=st.none() | of_text | of_anything,
    data=st.none() | st.lists(parts | parts.map(bytearray), max_size=3),
    sequence=st.sampled_from([None, [[1, "two"]]]),
    value=st.sampled_from([None, "value", {"a": 1}]),
    footer=st.sampled_from([None, {"f": 1}]),
)


@examples(400)
@given(message=messages)
def test_a_message_is_encoded_to_the_same_bytes_as_by_the_sdk(message: Any) -> None:
    theirs = bytearray()
    encode_payload(theirs, message)
    assert encode(message) == theirs


def test_sections_of_text_and_bytes_are_not_left_to_the_slower_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = bytearray()
    message: Any = Message(
        properties=Properties(message_id="1", subject="s", group_id="a"), application_properties={"a": "b"}, data=[b"x"]
    )
    encode_payload(theirs, message)
    monkeypatch.setattr(message_encoding, "encode_payload", None)
    assert encode(message) == theirs


@pytest.mark.parametrize("length", range(235, 258))
def test_sections_around_255_bytes_are_encoded_as_by_the_sdk(length: int) -> None:
    test_a_message_is_encoded_to_the_same_bytes_as_by_the_sdk.hypothesis.inner_test(  # type: ignore[attr-defined]
        Message(properties=Properties(message_id="x" * length), application_properties={"a": "x" * length})
    )


@pytest.mark.parametrize(
    "message",
    [
        Message(application_properties={"a": "\ud800"}),
        Message(application_properties={"a": object()}),
        Message(properties=Properties(message_id=1.5)),  # type: ignore[arg-type]  # the same
    ],
    ids=["half a character", "an object", "a number that is no id"],
)
def test_a_value_without_an_encoding_raises_the_error_of_the_sdk(message: Any) -> None:
    with pytest.raises((ValueError, TypeError)) as theirs:
        encode_payload(bytearray(), message)
    with pytest.raises(theirs.type):
        encode(message)
