"""Backlog messages of other senders, such as the .NET SDK (SPEC sections 4 and 6)."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import Any

import pytest
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageBodyType
from hypothesis import assume, example, given
from hypothesis import strategies as st

from servicebus_pair.core.model.errors import UndeliverableError
from servicebus_pair.core.protocol.amqp_message import AmqpMessage, BodyType
from servicebus_pair.core.protocol.backlog_message import destination_of, unwrap
from servicebus_pair.core.protocol.typed_values import amqp_typed
from servicebus_pair.core.sdk.message_batch import encoded_size
from servicebus_pair.core.sdk.messages import from_sdk
from tests.core.support.encoding import decode, encode
from tests.core.support.message_strategies import (
    SCHEDULED,
    encodable,
    headers,
    names,
    properties_of_its_own,
    property_sections,
    values,
)
from tests.examples import examples

ENTITY = "flights"
MAX_TIME_SPAN_TICKS = 2**63 - 1
KINDS = ["LIST", "ARRAY", "MAP", "DESCRIBED", "DECIMAL128", "TIMESTAMP", "BINARY", "UUID"]
SECTIONS = ["properties", "annotations", "footer", "ids", "body", "a", "b"]
CARRIED = ["x-ms-path", "x-ms-sessionid", "x-ms-timetolive", "x-ms-scheduledenqueuetimeutc", "x-servicebus-pair-types"]


def foreign_message(properties: Mapping[str, Any], **sections: Any) -> AmqpMessage:
    """Return a backlog message of another sender, as received."""
    body = sections or {"data_body": b"body"}
    return from_sdk(decode(encode(AmqpAnnotatedMessage(application_properties=dict(properties), **body))))


def test_backlog_message_of_the_dotnet_sdk_is_unwrapped() -> None:
    ticks = 36_000_000_000 + 1_230_000
    at = 1_357_041_600_123
    message = foreign_message(
        {
            "x-ms-path": "orders/new",
            "x-ms-sessionid": "s-1",
            "x-ms-timetolive": (amqp_typed("SYMBOL", "com.microsoft:timespan"), amqp_typed("LONG", ticks)),
            "x-ms-scheduledenqueuetimeutc": amqp_typed("TIMESTAMP", at),
            "Waited": (amqp_typed("SYMBOL", "com.microsoft:timespan"), amqp_typed("LONG", 5)),
            "Link": (amqp_typed("SYMBOL", "com.microsoft:uri"), "https://example.org/"),
            "Big": amqp_typed("LONG", 2**40),
            "Id": uuid.UUID(int=1),
        }
    )
    expected = AmqpAnnotatedMessage(
        data_body=b"body",
        header={"time_to_live": 3_600_123},
        properties={"group_id": "s-1"},
        application_properties={
            "Waited": (amqp_typed("SYMBOL", "com.microsoft:timespan"), amqp_typed("LONG", 5)),
            "Link": (amqp_typed("SYMBOL", "com.microsoft:uri"), "https://example.org/"),
            "Big": amqp_typed("LONG", 2**40),
            "Id": uuid.UUID(int=1),
        },
        annotations={SCHEDULED: amqp_typed("TIMESTAMP", at)},
    )
    back = unwrap(message)
    assert back.entity == "orders/new"
    assert encode(back.message) == encode(expected)


@pytest.mark.parametrize(
    ("ticks", "milliseconds"), [(2**63 - 1, None), (9_223_372_036_854_760_000, 2**32 - 1), (20_000, 2)]
)
def test_only_the_longest_time_span_means_no_time_to_live(ticks: int, milliseconds: int | None) -> None:
    timespan = (amqp_typed("SYMBOL", "com.microsoft:timespan"), amqp_typed("LONG", ticks))
    restored = unwrap(foreign_message({"x-ms-path": "orders", "x-ms-timetolive": timespan})).message
    assert (restored.header.time_to_live if restored.header else None) == milliseconds


@examples(200)
@given(
    sections=st.fixed_dictionaries(
        {},
        optional={
            "application_properties": properties_of_its_own,
            "annotations": st.dictionaries(names.map("x-opt-a-{}".format) | st.just(SCHEDULED), values, max_size=3),
            "footer": st.dictionaries(names, values, max_size=2),
            "header": headers,
            "properties": property_sections,
        },
    ),
    body=values.filter(encodable),
)
@example(sections={"application_properties": {"x-ms-scheduledenqueuetimeutc": amqp_typed("ULONG", 2**63)}}, body="")
@example(sections={"application_properties": {"x-ms-scheduledenqueuetimeutc": amqp_typed("LONG", 2**62)}}, body="")
def test_any_foreign_message_is_unwrapped_or_undeliverable_with_reason(sections: dict[str, Any], body: Any) -> None:
    sections["application_properties"] = {"x-ms-path": ENTITY, **sections.get("application_properties", {})}
    try:
        message = from_sdk(decode(encode(AmqpAnnotatedMessage(value_body=body, **sections))))
    except (ValueError, OverflowError):
        assume(condition=False)  # the SDK cannot decode it either; the receiver dead-letters it
    try:
        back = unwrap(message)
    except UndeliverableError as error:
        assert error.reason in {"NoPath", "BadPath", "BadAlias", "Unreadable"}  # noqa: PT017 - either is right
    else:
        encoded_size(back.message)  # it can be sent


@pytest.mark.parametrize(
    ("alias", "milliseconds"),
    [
        pytest.param(amqp_typed("LONG", MAX_TIME_SPAN_TICKS), None, id="TimeSpan.MaxValue as ticks"),
        pytest.param("P10675199DT2H48M5.4775807S", None, id="TimeSpan.MaxValue as text"),
        pytest.param("P60D", 2**32 - 1, id="more than the AMQP header holds"),
        pytest.param("PT0.001S", 1, id="the shortest"),
        pytest.param(amqp_typed("LONG", 19_999), 1, id="ticks below a millisecond are cut off"),
    ],
)
def test_time_to_live_alias_is_restored_within_header_limits(alias: Any, milliseconds: int | None) -> None:
    restored = unwrap(foreign_message({"x-ms-path": ENTITY, "x-ms-timetolive": alias})).message
    assert restored.header is not None
    assert restored.header.time_to_live == milliseconds
    assert encode(restored)


@pytest.mark.parametrize(
    "at", [amqp_typed("ULONG", 2**63), amqp_typed("TIMESTAMP", 253_402_300_800_000), amqp_typed("LONG", -(2**62))]
)
def test_a_scheduled_time_that_no_calendar_has_is_undeliverable(at: Any) -> None:
    with pytest.raises(UndeliverableError, match="a timestamp of the years 1 to 9999") as caught:
        unwrap(foreign_message({"x-ms-path": ENTITY, "x-ms-scheduledenqueuetimeutc": at}))
    assert caught.value.reason == "BadAlias"


@pytest.mark.parametrize("body", [0, 0.0, "", [], {}], ids=repr)
def test_falsy_value_body_of_foreign_sender_is_kept(body: Any) -> None:
    message = foreign_message({"x-ms-path": ENTITY})
    message.body, message.body_type = body, BodyType.VALUE
    again = decode(encode(unwrap(message).message))
    assert again.body_type is AmqpMessageBodyType.VALUE
    assert again.body == (b"" if body == "" else body)
    assert again.body is not None


@pytest.mark.parametrize("body", [False, 2**40, 2**63], ids=repr)
def test_unsupported_value_body_is_undeliverable(body: Any) -> None:
    message = foreign_message({"x-ms-path": ENTITY})
    message.body, message.body_type = body, BodyType.VALUE
    with pytest.raises(UndeliverableError, match="value body") as caught:
        unwrap(message)
    assert caught.value.reason == "Unreadable"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(KINDS),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=3).map(lambda items: [KINDS[len(items)], *items])
        | st.dictionaries(st.sampled_from(SECTIONS) | st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=12,
)


@examples(400)
@example(notes=json.dumps({"properties": {"a": ["DECIMAL128", ""]}}))
@example(notes="[" * 100_000)
@example(notes='{"properties":{"a":' + '["LIST",' * 400 + "null" + "]" * 400 + "}}")
@example(notes=json.dumps({"body": ["DESCRIBED", "SYMBOL", "\ud800", "STRING"]}))
@given(notes=st.text() | json_values.map(json.dumps))
def test_any_type_notes_restore_the_message_or_make_it_undeliverable(notes: str) -> None:
    message = foreign_message({"a": 5, "x-ms-path": ENTITY}, sequence_body=[[5, ["x"]]])
    message.application_properties = {b"a": 5, b"b": [b"x", [1]], b"x-ms-path": b"q", b"x-servicebus-pair-types": notes}
    assert_unwrapped_or_undeliverable(message)


@examples(400, quick=40)
@given(
    properties=st.dictionaries(
        st.binary(max_size=4) | st.sampled_from([name.encode() for name in CARRIED]),
        st.recursive(
            st.none() | st.booleans() | st.binary(max_size=8) | st.integers() | st.floats() | st.text(max_size=4),
            lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.binary(max_size=4), inner, max_size=4),
            max_leaves=8,
        ),
        max_size=6,
    )
)
def test_any_application_properties_restore_the_message_or_make_it_undeliverable(properties: dict[Any, Any]) -> None:
    message = foreign_message({"x-ms-path": ENTITY})
    message.application_properties = properties
    assert_unwrapped_or_undeliverable(message)


def assert_unwrapped_or_undeliverable(message: AmqpMessage) -> None:
    try:
        entity = unwrap(message).entity
    except UndeliverableError:
        entity = None
    assert destination_of(message) == entity


TICKS = (amqp_typed("SYMBOL", "com.microsoft:datetime-offset"), amqp_typed("LONG", 635_000_000_000_000_000))
OTHER_NOTES = json.dumps({"properties": {"a": ["LIST", None]}})


@pytest.mark.parametrize(
    ("properties", "reason", "named"),
    [
        ({}, "NoPath", "x-ms-path"),
        ({"X-MS-PATH": "flights"}, "NoPath", "x-ms-path"),
        ({"x-ms-path": 5}, "BadAlias", "x-ms-path is int"),
        ({"x-ms-path": None}, "BadAlias", "x-ms-path is NoneType"),
        ({"x-ms-path": amqp_typed("BINARY", b"\xff")}, "BadAlias", "x-ms-path is bytes"),
        ({"x-ms-path": ""}, "BadPath", "x-ms-path is empty"),
        *(
            ({"x-ms-path": "q", f"x-ms-{alias}": value}, "BadAlias", named)
            for alias, value, named in (
                ("sessionid", 7, "x-ms-sessionid is int"),
                ("timetolive", "soon", "x-ms-timetolive is b'soon'"),
                ("timetolive", True, "x-ms-timetolive is True"),
                ("timetolive", 1.5, "x-ms-timetolive is 1.5"),
                ("timetolive", None, "x-ms-timetolive is None"),
                ("timetolive", -10_000, "must not be negative"),
                ("timetolive", amqp_typed("BINARY", b"\xff"), "x-ms-timetolive"),
                ("scheduledenqueuetimeutc", "noon", "must be a timestamp"),
                ("scheduledenqueuetimeutc", TICKS, "must be a timestamp"),
            )
        ),
        *(
            ({"x-ms-path": "q", "x-servicebus-pair-types": notes}, "BadAlias", "cannot be read")
            for notes in ("{", "[]")
        ),
        ({"x-ms-path": "q", "a": 5, "x-servicebus-pair-types": OTHER_NOTES}, "Unreadable", "does not match"),
    ],
)
def test_missing_path_or_invalid_alias_is_undeliverable(properties: dict[str, Any], reason: str, named: str) -> None:
    with pytest.raises(UndeliverableError) as caught:
        unwrap(foreign_message(properties))
    assert caught.value.reason == reason
    assert named in caught.value.description
