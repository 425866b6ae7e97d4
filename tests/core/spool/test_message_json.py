"""A spooled message is the message that was sent, byte for byte (SPEC section 10)."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from azure.servicebus.amqp import AmqpAnnotatedMessage
from hypothesis import example, given
from hypothesis import strategies as st

from servicebus_pair.core.protocol.amqp_message import AmqpMessage
from servicebus_pair.core.protocol.typed_values import amqp_typed
from servicebus_pair.core.sdk.messages import from_sdk
from servicebus_pair.core.spool.message_json import from_json, to_json
from tests.core.support.encoding import encode
from tests.core.support.message_strategies import EXPIRING, LASTING, WHOLE, messages
from tests.examples import examples


@examples(150)
@example(message=WHOLE)
@example(message=LASTING)
@example(message=EXPIRING)
@example(message=AmqpAnnotatedMessage(value_body=amqp_typed("LONG", 7)))
@example(message=AmqpAnnotatedMessage(value_body={"TYPE": "LONG", "VALUE": 7, "more": 1}))
@example(message=AmqpAnnotatedMessage(value_body={"bytes": "plain", 5: None}))
@example(message=AmqpAnnotatedMessage(value_body=Decimal("-0.00")))
@given(message=messages())
def test_a_message_is_restored_byte_for_byte(message: AmqpAnnotatedMessage) -> None:
    assert encode(from_json(to_json(from_sdk(message)))) == encode(message)


@given(message=messages())
def test_a_message_takes_one_line_and_is_not_changed(message: AmqpAnnotatedMessage) -> None:
    before = encode(message)
    assert b"\n" not in to_json(from_sdk(message))
    assert encode(message) == before


@pytest.mark.parametrize("value", [object(), {1, 2}, range(3)], ids=["object", "set", "range"])
@pytest.mark.parametrize("wrapped", [False, True])
def test_a_value_that_amqp_does_not_have_is_refused(value: Any, wrapped: bool) -> None:
    message = AmqpMessage([b"x"], application_properties={"bad": [value] if wrapped else value})
    with pytest.raises(TypeError, match=f"a value of type {type(value).__name__} cannot be kept"):
        to_json(message)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.floats(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.text(max_size=5) | st.sampled_from(["bytes", "map", "typed", "decimal", "uuid", "body", "body_type"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)


@example(content=b"")
@example(content=b'{"body":{"decimal":"x"},"body_type":"value"}')
@example(content=b'{"body":' + b"[" * 100_000)
@example(content=b'{"body":[],"body_type":"data","header":{"no_such_field":1}}')
@given(content=st.binary(max_size=30) | json_values.map(lambda value: json.dumps(value).encode()))
def test_anything_else_is_a_value_error(content: bytes) -> None:
    try:
        restored = from_json(content)
    except ValueError as error:
        assert str(error).startswith("not a message: ")  # noqa: PT017 - it may also be a message
    else:
        assert isinstance(restored, AmqpMessage)


@pytest.mark.parametrize(
    "record",
    [
        {"body": "text", "body_type": "data"},
        {"body": [1], "body_type": "data"},
        {"body": {"map": []}, "body_type": "sequence"},
        *({"body": None, "body_type": "value", name: ["x"]} for name in ("annotations", "application_properties")),
    ],
)
def test_a_message_whose_sections_have_other_types_is_none(record: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="not a message: TypeError"):
        from_json(json.dumps(record).encode())
