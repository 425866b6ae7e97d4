"""Application properties keep their AMQP types, which the SDK drops on receipt (SPEC section 4)."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from azure.servicebus.amqp import AmqpAnnotatedMessage

from servicebus_pair.core.protocol.typed_values import (
    amqp_typed,
    as_value_body,
    decimals_as_text,
    restore_type,
    text_keys,
    to_text,
    type_note,
    value_body_note,
)
from tests.core.support.encoding import decode, encode

NOON = datetime(2013, 1, 1, 12, tzinfo=UTC)


def on_the_wire(value: Any) -> Any:
    """Return the received form of an application property."""
    message = decode(encode(AmqpAnnotatedMessage(data_body=b"", application_properties={"p": value})))
    assert message.application_properties is not None
    return message.application_properties[b"p"]


def encoded(value: Any) -> bytes:
    return encode(AmqpAnnotatedMessage(data_body=b"", application_properties={"p": value}))


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(amqp_typed("UBYTE", 255), id="ubyte"),
        pytest.param(amqp_typed("BYTE", -128), id="byte"),
        pytest.param(amqp_typed("USHORT", 65_535), id="ushort"),
        pytest.param(amqp_typed("SHORT", -32_768), id="short"),
        pytest.param(amqp_typed("UINT", 4_294_967_295), id="uint"),
        pytest.param(amqp_typed("UINT", 0), id="uint zero"),
        pytest.param(amqp_typed("ULONG", 2**64 - 1), id="ulong"),
        pytest.param(amqp_typed("ULONG", 1), id="small ulong"),
        pytest.param(amqp_typed("LONG", 5), id="small long"),
        pytest.param(amqp_typed("FLOAT", 0.5), id="float of 32 bits"),
        pytest.param(amqp_typed("TIMESTAMP", 0), id="timestamp"),
        pytest.param(NOON, id="datetime"),
        pytest.param(uuid.UUID(int=7), id="uuid"),
        pytest.param(amqp_typed("UUID", str(uuid.UUID(int=7))), id="uuid from text"),
        pytest.param(amqp_typed("SYMBOL", "amqp:any"), id="symbol"),
        pytest.param(amqp_typed("BINARY", b"text"), id="binary that is UTF-8"),
        pytest.param(bytearray(b"\x00\xff"), id="bytearray"),
        pytest.param(Decimal("-1.50"), id="decimal"),
        pytest.param(amqp_typed("DECIMAL128", Decimal(123456789012345678901234567890)), id="long decimal"),
        pytest.param(None, id="null"),
        pytest.param(amqp_typed("NULL", None), id="typed null"),
        pytest.param(False, id="false"),
        pytest.param("", id="empty string"),
        pytest.param([1, [NOON, {"deep": amqp_typed("ULONG", 3)}]], id="nested list"),
        pytest.param({"k": [b"\x01", None], 5: amqp_typed("SHORT", 1)}, id="map with keys of two types"),
        pytest.param({b"k": 1}, id="map with a binary key"),
        pytest.param({"TYPE": "LONG?", "VALUE": 1}, id="map with the keys of a typed value"),
        pytest.param(amqp_typed("MAP", [(amqp_typed("SYMBOL", "k"), amqp_typed("LONG", 1))]), id="map given as pairs"),
        pytest.param(amqp_typed("ARRAY", ["a", "b"]), id="array"),
        pytest.param(amqp_typed("ARRAY", []), id="empty array"),
        pytest.param((amqp_typed("SYMBOL", "com.microsoft:timespan"), amqp_typed("LONG", 5)), id="described"),
        pytest.param((amqp_typed("SYMBOL", "d"), [1, [amqp_typed("LONG", 2)]]), id="described list"),
        pytest.param((amqp_typed("SYMBOL", "d"), []), id="described empty list"),
        pytest.param((amqp_typed("SYMBOL", "d"), amqp_typed("ARRAY", ["a", "b"])), id="described array"),
        pytest.param((amqp_typed("SYMBOL", "d"), (amqp_typed("SYMBOL", "e"), [1])), id="described twice"),
        pytest.param((amqp_typed("ULONG", 0x24), [1]), id="described list with numeric descriptor"),
        pytest.param((amqp_typed("ULONG", 0x26), [1]), id="described list with another one of AMQP itself"),
        pytest.param((amqp_typed("ULONG", 2**40), True), id="described boolean, whose descriptor the SDK drops"),
        pytest.param((b"binary", 1), id="binary descriptor"),
        pytest.param(("string", 1), id="string descriptor"),
        pytest.param((77, 1), id="int descriptor"),
    ],
)
def test_value_of_any_amqp_type_is_restored(value: Any) -> None:
    note = json.loads(json.dumps(type_note(value)))
    assert encoded(restore_type(on_the_wire(decimals_as_text(value)), note)) == encoded(value)


@pytest.mark.parametrize("value", ["text", "", 5, -(2**31), 1.5, True, None, uuid.UUID(int=1), [1, "a"], {"k": [None]}])
def test_value_whose_type_the_sdk_keeps_needs_no_note(value: Any) -> None:
    assert type_note(value) is None
    assert encoded(restore_type(on_the_wire(value), None)) == encoded(value)


@pytest.mark.parametrize(
    ("left", "guess"),
    [
        pytest.param(amqp_typed("SYMBOL", "a"), "a", id="a symbol becomes a string"),
        pytest.param(amqp_typed("BINARY", b"a"), "a", id="binary that is UTF-8 becomes a string"),
        pytest.param(amqp_typed("BINARY", b"\xff"), amqp_typed("BINARY", b"\xff"), id="other binary stays"),
        pytest.param(amqp_typed("LONG", 5), 5, id="a long that fits becomes an int"),
        pytest.param(amqp_typed("LONG", 2**31), amqp_typed("LONG", 2**31), id="a long that does not match stays"),
        pytest.param(amqp_typed("ULONG", 2**63), amqp_typed("ULONG", 2**63), id="a ulong that no long holds stays"),
        pytest.param(amqp_typed("LONG", -(2**63)), amqp_typed("LONG", -(2**63)), id="the lowest long stays"),
        pytest.param(
            (amqp_typed("SYMBOL", "d"), 5), (amqp_typed("SYMBOL", "d"), amqp_typed("LONG", 5)), id="described integer"
        ),
        pytest.param((amqp_typed("SYMBOL", "d"), "s"), (amqp_typed("SYMBOL", "d"), "s"), id="described string"),
        pytest.param((amqp_typed("ULONG", 99), 0.5), (amqp_typed("ULONG", 99), 0.5), id="described float"),
        pytest.param(
            (amqp_typed("SYMBOL", "d"), {"k": 1}),
            (amqp_typed("SYMBOL", "d"), {"k": 1}),
            id="described map",
        ),
        pytest.param((amqp_typed("SYMBOL", "d"), [1, "a"]), (amqp_typed("SYMBOL", "d"), [1, "a"]), id="described list"),
        pytest.param((amqp_typed("SYMBOL", "d"), []), (amqp_typed("SYMBOL", "d"), []), id="described empty list"),
    ],
)
def test_type_without_note_is_inferred(left: Any, guess: Any) -> None:
    assert encoded(restore_type(on_the_wire(left), None)) == encoded(guess)


@pytest.mark.parametrize(
    ("value", "note"),
    [
        (5, "WORD"),
        (5, ["LIST", None]),
        (5, ["MAP", None, None]),
        (5, []),
        (5, ["DESCRIBED", "SYMBOL", "d", 5]),
        ([1], ["LIST", None, None]),
        ([1], ["ARRAY"]),
        ({b"k": 1}, ["MAP", None]),
        (b"x", ["DECIMAL128", 5]),
        (b"x", 5),
        (True, "INT"),
        (1, "BOOL"),
        (1, "STRING"),
        (b"x", "NULL"),
    ],
)
def test_mismatching_note_raises_value_error(value: Any, note: Any) -> None:
    with pytest.raises(ValueError, match=r"does not match|zip\(\)"):
        restore_type(value, note)


def test_value_body_type_follows_python_type() -> None:
    assert value_body_note({"TYPE": "LONG", "VALUE": 5}) is None
    assert value_body_note(NOON) == "TIMESTAMP"
    assert as_value_body(amqp_typed("TIMESTAMP", int(NOON.timestamp() * 1000))) == NOON
    assert as_value_body(amqp_typed("MAP", {"k": 1})) == {"k": 1}
    assert as_value_body(amqp_typed("BINARY", b"\xff")) == b"\xff"
    assert as_value_body(None) is None


@pytest.mark.parametrize("value", [0, 0.0, "", b"", [], {}, Decimal(0)], ids=repr)
def test_falsy_value_body_becomes_truthy_for_the_sdk(value: Any) -> None:
    kept = as_value_body(value)
    assert kept == value
    assert bool(kept) is True
    assert isinstance(kept, type(value))


@pytest.mark.parametrize(
    "value", [False, amqp_typed("LONG", 2**40), amqp_typed("ULONG", 2**63), amqp_typed("TIMESTAMP", 2**62)], ids=repr
)
def test_unsupported_value_body_raises_value_error(value: Any) -> None:
    with pytest.raises(ValueError, match="cannot be sent"):
        as_value_body(value)


def test_typed_value_can_be_a_map_key() -> None:
    assert {amqp_typed("SYMBOL", "k"): 1}[amqp_typed("SYMBOL", "k")] == 1


def test_names_are_converted_to_text() -> None:
    assert to_text(b"\xc3\xa4") == "ä"
    assert to_text(5) == "5"
    assert text_keys({b"a": 1, "b": 2}) == {"a": 1, "b": 2}
    assert text_keys(None) == {}
