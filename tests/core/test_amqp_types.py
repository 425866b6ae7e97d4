"""SPEC section 4: application properties of every AMQP type survive the SDK, which forgets types on receipt."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from azure.servicebus.amqp import AmqpAnnotatedMessage

from servicebus_pair.core.amqp_types import bare, describe, describe_bare, portable, restore, text, texts, typed
from tests.core.wire import received, sent

NOON = datetime(2013, 1, 1, 12, tzinfo=UTC)


def on_the_wire(value: Any) -> Any:
    """What a receiver is given for an application property of this value."""
    message = received(sent(AmqpAnnotatedMessage(data_body=b"", application_properties={"p": value})))
    assert message.application_properties is not None
    return message.application_properties[b"p"]


def encoded(value: Any) -> bytes:
    return sent(AmqpAnnotatedMessage(data_body=b"", application_properties={"p": value}))


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(typed("UBYTE", 255), id="ubyte"),
        pytest.param(typed("BYTE", -128), id="byte"),
        pytest.param(typed("USHORT", 65_535), id="ushort"),
        pytest.param(typed("SHORT", -32_768), id="short"),
        pytest.param(typed("UINT", 4_294_967_295), id="uint"),
        pytest.param(typed("UINT", 0), id="uint zero"),
        pytest.param(typed("ULONG", 2**64 - 1), id="ulong"),
        pytest.param(typed("ULONG", 1), id="small ulong"),
        pytest.param(typed("LONG", 5), id="small long"),
        pytest.param(typed("FLOAT", 0.5), id="float of 32 bits"),
        pytest.param(typed("TIMESTAMP", 0), id="timestamp"),
        pytest.param(NOON, id="datetime"),
        pytest.param(uuid.UUID(int=7), id="uuid"),
        pytest.param(typed("UUID", str(uuid.UUID(int=7))), id="uuid from text"),
        pytest.param(typed("SYMBOL", "amqp:any"), id="symbol"),
        pytest.param(typed("BINARY", b"text"), id="binary that is UTF-8"),
        pytest.param(bytearray(b"\x00\xff"), id="bytearray"),
        pytest.param(Decimal("-1.50"), id="decimal"),
        pytest.param(typed("DECIMAL128", Decimal(123456789012345678901234567890)), id="long decimal"),
        pytest.param(None, id="null"),
        pytest.param(typed("NULL", None), id="typed null"),
        pytest.param(False, id="false"),
        pytest.param("", id="empty string"),
        pytest.param([1, [NOON, {"deep": typed("ULONG", 3)}]], id="nested list"),
        pytest.param({"k": [b"\x01", None], 5: typed("SHORT", 1)}, id="map with keys of two types"),
        pytest.param({b"k": 1}, id="map with a binary key"),
        pytest.param({"TYPE": "LONG?", "VALUE": 1}, id="a map that only looks like a typed value"),
        pytest.param(typed("MAP", [(typed("SYMBOL", "k"), typed("LONG", 1))]), id="map given as pairs"),
        pytest.param(typed("ARRAY", ["a", "b"]), id="array"),
        pytest.param(typed("ARRAY", []), id="empty array"),
        pytest.param((typed("SYMBOL", "com.microsoft:timespan"), typed("LONG", 5)), id="described"),
        pytest.param((typed("SYMBOL", "d"), [1, [typed("LONG", 2)]]), id="described list"),
        pytest.param((typed("SYMBOL", "d"), []), id="described empty list"),
        pytest.param((typed("SYMBOL", "d"), typed("ARRAY", ["a", "b"])), id="described array"),
        pytest.param((typed("SYMBOL", "d"), (typed("SYMBOL", "e"), [1])), id="described twice"),
        pytest.param((typed("ULONG", 0x24), [1]), id="described as AMQP's own outcomes are"),
        pytest.param((typed("ULONG", 2**40), True), id="described boolean, whose descriptor the SDK drops"),
        pytest.param((b"binary", 1), id="binary descriptor"),
        pytest.param(("string", 1), id="string descriptor"),
        pytest.param((77, 1), id="int descriptor"),
    ],
)
def test_section_4_a_value_of_any_amqp_type_is_sent_again_as_it_was_sent_first(value: Any) -> None:
    note = json.loads(json.dumps(describe(value)))
    assert encoded(restore(on_the_wire(portable(value)), note)) == encoded(value)


@pytest.mark.parametrize("value", ["text", "", 5, -(2**31), 1.5, True, None, uuid.UUID(int=1), [1, "a"], {"k": [None]}])
def test_section_4_what_the_sdk_keeps_by_itself_needs_no_note(value: Any) -> None:
    assert describe(value) is None
    assert encoded(restore(on_the_wire(value), None)) == encoded(value)


@pytest.mark.parametrize(
    ("left", "guess"),
    [
        pytest.param(typed("SYMBOL", "a"), "a", id="a symbol becomes a string"),
        pytest.param(typed("BINARY", b"a"), "a", id="binary that is UTF-8 becomes a string"),
        pytest.param(typed("BINARY", b"\xff"), typed("BINARY", b"\xff"), id="other binary stays"),
        pytest.param(typed("LONG", 5), 5, id="a long that fits becomes an int"),
        pytest.param(typed("LONG", 2**31), typed("LONG", 2**31), id="a long that does not fit stays"),
        pytest.param(typed("ULONG", 2**63), typed("ULONG", 2**63), id="a ulong that no long holds stays"),
        pytest.param(typed("LONG", -(2**63)), typed("LONG", -(2**63)), id="the lowest long stays"),
        pytest.param((typed("SYMBOL", "d"), 5), (typed("SYMBOL", "d"), typed("LONG", 5)), id="described integer"),
        pytest.param((typed("SYMBOL", "d"), "s"), (typed("SYMBOL", "d"), "s"), id="described string"),
        pytest.param((typed("ULONG", 99), 0.5), (typed("ULONG", 99), 0.5), id="described float"),
        pytest.param(
            (typed("SYMBOL", "d"), {"k": 1}),
            (typed("SYMBOL", "d"), {"k": 1}),
            id="described map",
        ),
        pytest.param((typed("SYMBOL", "d"), [1, "a"]), (typed("SYMBOL", "d"), [1, "a"]), id="described list"),
        pytest.param((typed("SYMBOL", "d"), []), (typed("SYMBOL", "d"), []), id="described empty list"),
    ],
)
def test_section_4_values_of_other_senders_are_guessed_from_what_the_sdk_gives(left: Any, guess: Any) -> None:
    assert encoded(restore(on_the_wire(left), None)) == encoded(guess)


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
    ],
)
def test_section_6_a_note_that_does_not_fit_its_value_is_an_error_and_never_a_wrong_value(
    value: Any, note: Any
) -> None:
    with pytest.raises(ValueError, match=r"does not fit|zip\(\)"):
        restore(value, note)


def test_section_4_a_whole_value_body_goes_by_its_python_type_alone() -> None:
    assert describe_bare({"TYPE": "LONG", "VALUE": 5}) is None
    assert describe_bare(NOON) == "TIMESTAMP"
    assert bare(typed("TIMESTAMP", int(NOON.timestamp() * 1000))) == NOON
    assert bare(typed("MAP", {"k": 1})) == {"k": 1}
    assert bare(typed("BINARY", b"\xff")) == b"\xff"
    assert bare(None) is None


@pytest.mark.parametrize("value", [0, 0.0, "", b"", [], {}, Decimal(0)], ids=repr)
def test_section_4_a_false_value_body_is_made_to_look_true_to_the_sdk(value: Any) -> None:
    kept = bare(value)
    assert kept == value
    assert bool(kept) is True
    assert isinstance(kept, type(value))


@pytest.mark.parametrize(
    "value", [False, typed("LONG", 2**40), typed("ULONG", 2**63), typed("TIMESTAMP", 2**62)], ids=repr
)
def test_section_4_a_value_body_that_the_sdk_cannot_send_is_an_error(value: Any) -> None:
    with pytest.raises(ValueError, match="cannot be sent"):
        bare(value)


def test_a_typed_value_may_be_the_key_of_a_map() -> None:
    assert {typed("SYMBOL", "k"): 1}[typed("SYMBOL", "k")] == 1


def test_names_are_text_however_the_sdk_gives_them() -> None:
    assert text(b"\xc3\xa4") == "ä"
    assert text(5) == "5"
    assert texts({b"a": 1, "b": 2}) == {"a": 1, "b": 2}
    assert texts(None) == {}
