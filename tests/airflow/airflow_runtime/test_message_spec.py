"""Messages of DAG authors are validated before anything is sent."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from servicebus_pair.airflow_runtime.message_spec import MessageReader, MessageSpec
from servicebus_pair.core.model.errors import ConfigurationError


def read_all(values: object, *, seed: str, defaults: object = None) -> list[MessageSpec]:
    return MessageReader(seed=seed, defaults=defaults).read_all(values)


def test_every_field_is_parsed_and_takes_precedence_over_defaults():
    (spec,) = read_all(
        [
            {
                "body": "text",
                "message_id": "m",
                "session_id": "s",
                "subject": "u",
                "content_type": "text/plain",
                "correlation_id": "c",
                "partition_key": "s",
                "reply_to": "answers",
                "reply_to_session_id": "r",
                "to": "t",
                "time_to_live": 1.5,
                "scheduled_enqueue_time": "2026-12-01T10:00:00+01:00",
                "application_properties": {"a": 1, "b": True},
            }
        ],
        seed="x",
        defaults={"scheduled_enqueue_time": "2100-01-01T01:00:00", "to": "crew", "application_properties": {"c": "x"}},
    )

    assert (spec.body, spec.message_id) == ("text", "m")
    assert spec.fields["time_to_live"] == timedelta(seconds=1.5)
    built = spec.build()
    properties, header = built.properties, built.header
    assert properties is not None
    assert header is not None
    assert (properties.group_id, properties.subject, properties.content_type) == ("s", "u", "text/plain")
    assert (properties.correlation_id, properties.reply_to, properties.to) == ("c", "answers", "t")
    assert (properties.message_id, properties.reply_to_group_id) == ("m", "r")
    assert built.annotations == {
        "x-opt-partition-key": "s",
        "x-opt-scheduled-enqueue-time": datetime(2026, 12, 1, 9, tzinfo=UTC),
    }
    assert header.time_to_live == 1500
    assert built.application_properties == {"a": 1, "b": True, "c": "x"}


def test_generated_ids_depend_on_seed_and_position_only():
    first, second = read_all(["a", "b"], seed="dag/run/task/-1"), read_all(["c", "d"], seed="dag/run/task/-1")

    assert [spec.message_id for spec in first] == [spec.message_id for spec in second]
    assert len({spec.message_id for spec in first}) == 2
    assert first[0].message_id != read_all(["a"], seed="dag/other/task/-1")[0].message_id


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ("text", "messages is str: it must be a list"),
        ([1], r"messages\[0\] is int: it must be a text or a mapping"),
        (["a", {"body": "b", "bodi": "c"}], r"messages\[1\]: field 'bodi' is unknown: allowed are body,"),
        ([{"subject": "s"}], r"messages\[0\]: body is NoneType: it must be a text"),
        ([{"body": "b", "session_id": ""}], r"messages\[0\]: session_id is '': it must be a text of at least one"),
        ([{"body": "b", "time_to_live": 0.5}], r"messages\[0\]: time_to_live is 0.5: it must be .* from 1 to 4294967"),
        ([{"body": "b", "time_to_live": 10**400}], "time_to_live is 1000.*: it must be a number of seconds from 1"),
        ([{"body": "b", "time_to_live": 5e9}], "time_to_live is 5000000000.0: it must be a number of seconds from 1"),
        ([{"body": "b", "subject": "\ud800"}], "subject has an unpaired surrogate at position 0"),
        ([{"body": "b", "application_properties": {"x": "a\udfff"}}], "'x' has an unpaired surrogate at position 1"),
        ([{"body": "b", "scheduled_enqueue_time": "0001-01-01T00:00:00+14:00"}], "is '0001-01-.*: it must be an ISO"),
        ([{"body": "b", "scheduled_enqueue_time": "soon"}], "scheduled_enqueue_time is 'soon': it must be an ISO 8601"),
        ([{"body": "b", "scheduled_enqueue_time": "PT5S"}], "scheduled_enqueue_time is 'PT5S': it must be an ISO 8601"),
        ([{"body": "b", "application_properties": {"a": [1]}}], "'a' is list: allowed are texts, numbers, booleans"),
        (
            [{"body": "b", "application_properties": {"a": 2**63}}],
            "'a' is 9223372036854775808: a whole number must fit",
        ),
        (
            [{"body": "b", "application_properties": dict.fromkeys(map(str, range(32_769)), 1)}],
            "application_properties has 32769 entries: at most 32768 are allowed",
        ),
        ([{"body": "b", "message_id": "m" * 129}], "message_id has 129 characters: at most 128 are allowed"),
        ([{"body": "b", "partition_key": "p", "session_id": "s"}], "partition_key is 'p' and session_id is 's'"),
    ],
)
def test_invalid_messages_are_named_by_index_field_and_value(messages: object, message: str):
    with pytest.raises(ConfigurationError, match=message):
        read_all(messages, seed="x")


def test_repr_hides_body_and_properties():
    (spec,) = read_all([{"body": "private", "application_properties": {"a": "hidden"}}], seed="x")

    assert "private" not in repr(spec)
    assert "hidden" not in repr(spec)


def test_defaults_fill_fields_that_a_message_does_not_set():
    defaults = {"session_id": "all", "time_to_live": 60, "application_properties": {"a": 1, "b": 1}}

    plain, own = read_all(
        ["x", {"body": "y", "session_id": "one", "application_properties": {"b": 2}}], seed="x", defaults=defaults
    )

    life = timedelta(minutes=1)
    assert plain.fields == {"session_id": "all", "time_to_live": life, "application_properties": {"a": 1, "b": 1}}
    assert own.fields == {"session_id": "one", "time_to_live": life, "application_properties": {"a": 1, "b": 2}}


@pytest.mark.parametrize(
    ("defaults", "message"),
    [
        ({"body": "b"}, "defaults: field 'body' is unknown: allowed are session_id,"),
        ({"message_id": "m"}, "defaults: field 'message_id' is unknown"),
        ({"time_to_live": -1}, "defaults: time_to_live is -1"),
        ("text", "defaults is str: it must be a mapping of fields"),
    ],
)
def test_invalid_defaults_are_named(defaults: object, message: str):
    with pytest.raises(ConfigurationError, match=message):
        MessageReader(seed="x", defaults=defaults)


def test_partition_key_and_session_id_must_agree_with_defaults():
    with pytest.raises(ConfigurationError, match="they must be equal when both are set"):
        read_all([{"body": "b", "session_id": "s"}], seed="x", defaults={"partition_key": "p"})


def test_a_body_of_json_is_encoded_and_says_so_unless_told_otherwise():
    first, second, third = read_all(
        [{"body": {"gate": 7, "name": "Zoë"}}, {"body": [1, None], "content_type": "x/y"}, {"body": "{}"}], seed="x"
    )

    assert (first.body, first.fields["content_type"]) == ('{"gate": 7, "name": "Zoë"}', "application/json")
    assert (second.body, second.fields["content_type"]) == ("[1, null]", "x/y")
    assert "content_type" not in third.fields
    (default,) = read_all([{"body": {}}], seed="x", defaults={"content_type": "a/b"})
    assert default.fields["content_type"] == "a/b"


@pytest.mark.parametrize("body", [{"a": object()}, [float("nan")], {"a": {1, 2}}, 5, None, {(1, 2): 3}])
def test_a_body_that_json_cannot_hold_is_refused_without_showing_it(body: object):
    with pytest.raises(ConfigurationError, match=r"messages\[0\]: body (cannot be written as JSON|is .*: it must be)"):
        read_all([{"body": body}], seed="x")
