"""Messages as DAG authors write them are checked before anything is sent."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.operators.messages import read_messages


def test_every_field_is_read():
    (spec,) = read_messages(
        [
            {
                "body": "text",
                "message_id": "m",
                "session_id": "s",
                "subject": "u",
                "content_type": "text/plain",
                "correlation_id": "c",
                "time_to_live": 1.5,
                "scheduled_enqueue_time": "2026-12-01T10:00:00+01:00",
                "application_properties": {"a": 1, "b": True},
            }
        ],
        seed="x",
    )

    assert (spec.body, spec.message_id, spec.session_id, spec.subject) == ("text", "m", "s", "u")
    assert spec.time_to_live == timedelta(seconds=1.5)
    assert spec.scheduled_enqueue_time == datetime(2026, 12, 1, 9, tzinfo=UTC)
    built = spec.build()
    assert built.scheduled_enqueue_time_utc == datetime(2026, 12, 1, 9, tzinfo=UTC)
    assert built.application_properties == {"a": 1, "b": True}


def test_ids_depend_on_the_seed_and_the_place_only():
    first, second = read_messages(["a", "b"], seed="dag/run/task/-1"), read_messages(["c", "d"], seed="dag/run/task/-1")

    assert [spec.message_id for spec in first] == [spec.message_id for spec in second]
    assert len({spec.message_id for spec in first}) == 2
    assert first[0].message_id != read_messages(["a"], seed="dag/other/task/-1")[0].message_id


@pytest.mark.parametrize(
    ("messages", "told"),
    [
        ("text", "messages is str: it must be a list"),
        ([1], r"messages\[0\] is int: it must be a text or a mapping"),
        (["a", {"body": "b", "bodi": "c"}], r"messages\[1\]: field 'bodi' is unknown: allowed are body,"),
        ([{"subject": "s"}], r"messages\[0\]: body is NoneType: it must be a text"),
        ([{"body": "b", "session_id": ""}], r"messages\[0\]: session_id is '': it must be a text of at least one"),
        (
            [{"body": "b", "time_to_live": 0}],
            r"messages\[0\]: time_to_live is 0: it must be a number of seconds above 0",
        ),
        ([{"body": "b", "scheduled_enqueue_time": "soon"}], "scheduled_enqueue_time is 'soon': it must be an ISO 8601"),
        ([{"body": "b", "scheduled_enqueue_time": "PT5S"}], "scheduled_enqueue_time is 'PT5S': it must be an ISO 8601"),
        ([{"body": "b", "application_properties": {"a": [1]}}], "'a' is list: allowed are texts, numbers, booleans"),
    ],
)
def test_a_wrong_message_is_named_by_index_field_value_and_what_is_allowed(messages: object, told: str):
    with pytest.raises(ConfigurationError, match=told):
        read_messages(messages, seed="x")


def test_a_message_shows_neither_body_nor_properties():
    (spec,) = read_messages([{"body": "private", "application_properties": {"a": "hidden"}}], seed="x")

    assert "private" not in repr(spec)
    assert "hidden" not in repr(spec)
