"""What another sender left in a backlog queue, the .NET original above all, is read or given a reason (SPEC 4, 6)."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import Any

import pytest
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageBodyType
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from servicebus_pair.core.amqp_types import typed
from servicebus_pair.core.envelope import unwrap
from servicebus_pair.core.errors import UndeliverableError
from servicebus_pair.core.wire import encoded_size
from tests.core.any_message import (
    SCHEDULED,
    encodable,
    headers,
    names,
    properties_of_its_own,
    property_sections,
    values,
)
from tests.core.wire import received, sent

ENTITY = "flights"
MAX_TIME_SPAN_TICKS = 2**63 - 1


def left_behind(properties: Mapping[str, Any], **sections: Any) -> AmqpAnnotatedMessage:
    """A message that another sender left in a backlog queue."""
    body = sections or {"data_body": b"body"}
    return received(sent(AmqpAnnotatedMessage(application_properties=dict(properties), **body)))


def test_section_4_a_backlog_message_of_the_dotnet_original_is_read() -> None:
    ticks = 36_000_000_000 + 1_230_000
    at = 1_357_041_600_123
    message = left_behind(
        {
            "x-ms-path": "orders/new",
            "x-ms-sessionid": "s-1",
            "x-ms-timetolive": (typed("SYMBOL", "com.microsoft:timespan"), typed("LONG", ticks)),
            "x-ms-scheduledenqueuetimeutc": typed("TIMESTAMP", at),
            "Waited": (typed("SYMBOL", "com.microsoft:timespan"), typed("LONG", 5)),
            "Link": (typed("SYMBOL", "com.microsoft:uri"), "https://example.org/"),
            "Big": typed("LONG", 2**40),
            "Id": uuid.UUID(int=1),
        }
    )
    expected = AmqpAnnotatedMessage(
        data_body=b"body",
        header={"time_to_live": 3_600_123},
        properties={"group_id": "s-1"},
        application_properties={
            "Waited": (typed("SYMBOL", "com.microsoft:timespan"), typed("LONG", 5)),
            "Link": (typed("SYMBOL", "com.microsoft:uri"), "https://example.org/"),
            "Big": typed("LONG", 2**40),
            "Id": uuid.UUID(int=1),
        },
        annotations={SCHEDULED: typed("TIMESTAMP", at)},
    )
    back = unwrap(message)
    assert back.entity == "orders/new"
    assert sent(back.message) == sent(expected)


@settings(max_examples=200)
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
def test_section_6_whatever_another_sender_left_is_read_or_undeliverable_with_a_reason(
    sections: dict[str, Any], body: Any
) -> None:
    sections["application_properties"] = {"x-ms-path": ENTITY, **sections.get("application_properties", {})}
    try:
        message = received(sent(AmqpAnnotatedMessage(value_body=body, **sections)))
    except (ValueError, OverflowError):
        assume(condition=False)  # not even the SDK can decode it: ``sdk_inside`` has it dead-lettered
    try:
        back = unwrap(message)
    except UndeliverableError as error:
        assert error.reason in {"NoPath", "BadPath", "BadAlias", "Unreadable"}  # noqa: PT017 - either is right
    else:
        encoded_size(back.message)  # it can be sent


@pytest.mark.parametrize(
    ("alias", "milliseconds"),
    [
        pytest.param(typed("LONG", MAX_TIME_SPAN_TICKS), None, id="TimeSpan.MaxValue as ticks"),
        pytest.param("P10675199DT2H48M5.4775807S", None, id="TimeSpan.MaxValue as text"),
        pytest.param("P60D", 2**32 - 1, id="more than the AMQP header holds"),
        pytest.param("PT0.001S", 1, id="the shortest"),
        pytest.param(typed("LONG", 19_999), 1, id="ticks below a millisecond are cut off"),
    ],
)
def test_section_4_a_time_to_live_is_put_back_as_far_as_the_header_holds_it(
    alias: Any, milliseconds: int | None
) -> None:
    restored = unwrap(left_behind({"x-ms-path": ENTITY, "x-ms-timetolive": alias})).message
    assert restored.header is not None
    assert restored.header.time_to_live == milliseconds
    assert sent(restored)


@pytest.mark.parametrize("body", [0, 0.0, "", [], {}], ids=repr)
def test_section_4_a_value_body_of_another_sender_survives_even_where_the_sdk_would_leave_it_out(body: Any) -> None:
    message = left_behind({"x-ms-path": ENTITY})
    message._data_body, message._value_body, message._body_type = None, body, AmqpMessageBodyType.VALUE
    again = received(sent(unwrap(message).message))
    assert again.body_type is AmqpMessageBodyType.VALUE
    assert again.body == (b"" if body == "" else body)
    assert again.body is not None


@pytest.mark.parametrize("body", [False, 2**40, 2**63], ids=repr)
def test_section_6_a_value_body_that_the_sdk_cannot_send_is_undeliverable_and_not_changed(body: Any) -> None:
    message = left_behind({"x-ms-path": ENTITY})
    message._data_body, message._value_body, message._body_type = None, body, AmqpMessageBodyType.VALUE
    with pytest.raises(UndeliverableError, match="value body") as caught:
        unwrap(message)
    assert caught.value.reason == "Unreadable"


@pytest.mark.parametrize(
    ("properties", "reason", "named"),
    [
        pytest.param({}, "NoPath", "x-ms-path", id="no path"),
        pytest.param({"X-MS-PATH": "flights"}, "NoPath", "x-ms-path", id="a path by another name"),
        pytest.param({"x-ms-path": 5}, "BadAlias", "x-ms-path is int", id="a path that is a number"),
        pytest.param({"x-ms-path": None}, "BadAlias", "x-ms-path is NoneType", id="a path that is null"),
        pytest.param({"x-ms-path": typed("BINARY", b"\xff")}, "BadAlias", "x-ms-path is bytes", id="a binary path"),
        pytest.param({"x-ms-path": ""}, "BadPath", "x-ms-path is empty", id="an empty path"),
        pytest.param({"x-ms-path": "q", "x-ms-sessionid": 7}, "BadAlias", "x-ms-sessionid is int", id="session id"),
        pytest.param(
            {"x-ms-path": "q", "x-ms-timetolive": "soon"}, "BadAlias", "x-ms-timetolive is b'soon'", id="soon"
        ),
        pytest.param(
            {"x-ms-path": "q", "x-ms-timetolive": True}, "BadAlias", "x-ms-timetolive is True", id="a boolean"
        ),
        pytest.param({"x-ms-path": "q", "x-ms-timetolive": 1.5}, "BadAlias", "x-ms-timetolive is 1.5", id="a float"),
        pytest.param({"x-ms-path": "q", "x-ms-timetolive": None}, "BadAlias", "x-ms-timetolive is None", id="null"),
        pytest.param({"x-ms-path": "q", "x-ms-timetolive": -10_000}, "BadAlias", "must not be negative", id="negative"),
        pytest.param(
            {"x-ms-path": "q", "x-ms-timetolive": typed("BINARY", b"\xff")}, "BadAlias", "x-ms-timetolive", id="bytes"
        ),
        pytest.param(
            {"x-ms-path": "q", "x-ms-scheduledenqueuetimeutc": "noon"}, "BadAlias", "must be a timestamp", id="noon"
        ),
        pytest.param(
            {
                "x-ms-path": "q",
                "x-ms-scheduledenqueuetimeutc": (
                    typed("SYMBOL", "com.microsoft:datetime-offset"),
                    typed("LONG", 635_000_000_000_000_000),
                ),
            },
            "BadAlias",
            "must be a timestamp",
            id="ticks of a DateTimeOffset are no milliseconds",
        ),
        pytest.param({"x-ms-path": "q", "x-servicebus-pair-types": "{"}, "BadAlias", "cannot be read", id="torn notes"),
        pytest.param({"x-ms-path": "q", "x-servicebus-pair-types": "[]"}, "BadAlias", "cannot be read", id="odd notes"),
        pytest.param(
            {"x-ms-path": "q", "a": 5, "x-servicebus-pair-types": json.dumps({"properties": {"a": ["LIST", None]}})},
            "Unreadable",
            "does not fit",
            id="notes of another message",
        ),
    ],
)
def test_section_6_a_message_without_a_path_or_with_an_unreadable_alias_can_never_be_delivered(
    properties: dict[str, Any], reason: str, named: str
) -> None:
    with pytest.raises(UndeliverableError) as caught:
        unwrap(left_behind(properties))
    assert caught.value.reason == reason
    assert named in caught.value.description
