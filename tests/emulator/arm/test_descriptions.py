"""Descriptions and rules survive a round trip through the ARM interface."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servicebus_emulator.admin.atom.fields import RuntimeProperties
from servicebus_emulator.arm.addresses import Address, entity_path, parse_address, path_segment
from servicebus_emulator.arm.descriptions import decode_description, encode_properties
from servicebus_emulator.arm.errors import ArmError, to_arm_error
from servicebus_emulator.arm.json_values import JsonValue
from servicebus_emulator.arm.rules import decode_rule, encode_rule
from servicebus_emulator.engine.model.descriptions import (
    FIXED_AT_CREATION,
    IDENTITY,
    AccessRight,
    AuthorizationRule,
    Description,
    EntityStatus,
    MessageCounts,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from servicebus_emulator.engine.model.entity_names import DescriptionError
from servicebus_emulator.engine.model.rule_descriptions import CorrelationFilter, RuleDescription, SqlAction, SqlFilter
from servicebus_emulator.engine.model.timespan import TimeSpan
from servicebus_emulator.engine.namespace.entity_registry import EntityTimes

NOW = datetime(2026, 11, 21, tzinfo=UTC)
RUNTIME = RuntimeProperties(
    counts=MessageCounts(active=1, scheduled=2, dead_lettered=3, transfer=4, transfer_dead_lettered=5),
    times=EntityTimes(created=NOW, updated=NOW, accessed=NOW),
    size_in_bytes=6,
    subscription_count=7,
)


def spans(least: str, most: TimeSpan) -> st.SearchStrategy[TimeSpan]:
    first = TimeSpan.parse(least).ticks
    # Between TimeSpan.MaxValue and a millisecond before it there is nothing that a client could mean.
    inside = st.integers(first, min(most.ticks, TimeSpan.MAX.ticks - 10_000_000)).map(TimeSpan)
    return inside | st.just(most)


TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), min_size=1, max_size=20)
PATHS = st.lists(st.text("abcXYZ019._-", min_size=1, max_size=5), min_size=1, max_size=4).map("/".join)
COMMON: dict[str, st.SearchStrategy[Any]] = {
    "default_message_time_to_live": spans("PT1S", TimeSpan.MAX),
    "auto_delete_on_idle": spans("PT5M", TimeSpan.MAX),
    "status": st.sampled_from(EntityStatus),
    "enable_batched_operations": st.booleans(),
    "user_metadata": st.none() | TEXTS,
}
RECEIVED: dict[str, st.SearchStrategy[Any]] = {
    "lock_duration": spans("PT0.0000001S", TimeSpan.parse("PT5M")),
    "dead_lettering_on_message_expiration": st.booleans(),
    "max_delivery_count": st.integers(1, 2**31 - 1),
    "forward_to": st.sampled_from([None, "sink", "dir/sink"]),
    "forward_dead_lettered_messages_to": st.sampled_from([None, "sink"]),
}
STORED: dict[str, st.SearchStrategy[Any]] = {
    "max_size_in_megabytes": st.integers(1, 81_920),
    "max_message_size_in_kilobytes": st.integers(1, 102_400),
    "requires_duplicate_detection": st.booleans(),
    "duplicate_detection_history_time_window": spans("PT20S", TimeSpan.parse("P7D")),
    "enable_partitioning": st.booleans(),
    "enable_express": st.booleans(),
}
QUEUES = st.builds(QueueDescription, st.just("q"), **COMMON, **RECEIVED, **STORED)
TOPICS = st.builds(TopicDescription, st.just("t"), **COMMON, **STORED, support_ordering=st.booleans())
SUBSCRIPTIONS = st.builds(
    SubscriptionDescription,
    st.just("t"),
    st.just("s"),
    **COMMON,
    **RECEIVED,
    dead_lettering_on_filter_evaluation_exceptions=st.booleans(),
)
VALUES = st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS
FILTERS = st.builds(SqlFilter, expression=st.just("1=1") | TEXTS) | st.builds(
    CorrelationFilter,
    correlation_id=st.none() | st.text(max_size=3),
    label=st.none() | TEXTS,
    reply_to_session_id=st.none() | TEXTS,
    properties=st.dictionaries(TEXTS, VALUES, max_size=3).map(lambda pairs: tuple(pairs.items())),
)
ACTIONS = st.none() | st.builds(SqlAction, expression=TEXTS)


def over_the_wire(document: dict[str, object]) -> JsonValue:
    return JsonValue("properties", json.loads(json.dumps(document, ensure_ascii=False)))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
MEMBERS = sorted(encode_properties(QueueDescription("q"), runtime=RUNTIME) | {"forwardTo": "", "userMetadata": ""})
PARTS = ["action", "filterType", "sqlFilter", "correlationFilter"]


@given(st.dictionaries(st.sampled_from(MEMBERS), JSON, min_size=1, max_size=4))
def test_any_properties_are_accepted_or_refused_by_name(properties: dict[str, Any]):
    try:
        decode_description(
            JsonValue("properties", properties), kind=QueueDescription, identity={"path": "q"}, current=None
        )
    except (ArmError, DescriptionError) as error:
        refused = to_arm_error(error) if isinstance(error, DescriptionError) else error
        named = any(f"properties.{name}" in str(refused) for name in properties)
        assert (refused.status, named) == (400, True)


@given(st.dictionaries(st.sampled_from(PARTS), JSON, max_size=4))
def test_any_rule_is_accepted_or_refused_by_name(properties: dict[str, Any]):
    with suppress(ArmError):
        rule = decode_rule(JsonValue("properties", properties), name="r")
        assert rule.name == "r"


@given(QUEUES | TOPICS | SUBSCRIPTIONS)
def test_a_description_survives_a_round_trip(description: Description):
    written = over_the_wire(encode_properties(description, runtime=RUNTIME))
    identity = {each.name: getattr(description, each.name) for each in fields(description) if each.name in IDENTITY}
    assert decode_description(written, kind=type(description), identity=identity, current=None) == description


@given(FILTERS, ACTIONS)
def test_a_rule_survives_a_round_trip(chosen: SqlFilter | CorrelationFilter, action: SqlAction | None):
    rule = RuleDescription("r", filter=chosen, action=action)
    assert decode_rule(over_the_wire(encode_rule(rule)), name="r") == rule


@given(QUEUES, QUEUES)
def test_a_put_replaces_all_fields_that_the_interface_has(before: QueueDescription, wanted: QueueDescription):
    keys = (AuthorizationRule(key_name="k", rights=(AccessRight.SEND,)),)
    hidden: dict[str, Any] = {"authorization_rules": keys, "is_anonymous_accessible": True, "support_ordering": False}
    current = replace(before, **hidden)
    written = over_the_wire(encode_properties(wanted, runtime=RUNTIME))
    put = decode_description(written, kind=QueueDescription, identity={"path": "q"}, current=current)
    assert put == replace(wanted, **hidden)


@given(QUEUES)
def test_omitted_fields_get_their_default_unless_fixed_at_creation(before: QueueDescription):
    put = decode_description(None, kind=QueueDescription, identity={"path": "q"}, current=before)
    assert put == QueueDescription("q", **{name: getattr(before, name) for name in FIXED_AT_CREATION})


@given(st.timedeltas(min_value=timedelta(seconds=1), max_value=timedelta(days=10_000)))
def test_durations_of_the_client_are_read_exactly(value: timedelta):
    # The client writes leading zeros and six decimals, as in P1DT00H00M01.500000S.
    minutes, seconds = divmod(value.seconds, 60)
    hours, minutes = divmod(minutes, 60)
    text = f"P{value.days}DT{hours:02}H{minutes:02}M{seconds:02}.{value.microseconds:06}S"
    assert JsonValue("x", text).duration() == TimeSpan.of(value)


@pytest.mark.parametrize("text", ["P10675199DT02H48M05.477539S", "P10675199DT2H48M5.4776S", str(TimeSpan.MAX)])
def test_a_nearly_unbounded_duration_is_unbounded(text: str):
    assert JsonValue("x", text).duration() == TimeSpan.MAX


@given(PATHS)
def test_a_path_survives_as_one_segment(path: str):
    assert "/" not in path_segment(path)
    assert entity_path(path_segment(path)) == path


@given(PATHS, st.sampled_from(["GET", "PUT", "DELETE"]))
def test_an_address_alternates_types_and_names(path: str, method: str):
    raw = f"/Subscriptions/s/RESOURCEGROUPS/g/Providers/microsoft.servicebus/Namespaces/n/QUEUES/{path_segment(path)}"
    address = parse_address(raw, method=method)
    assert address == Address(
        subscription="s", resource_group="g", types=("namespaces", "queues"), names=("n", path_segment(path))
    )
    assert address.entity == path
    assert parse_address(f"{raw}/authorizationRules/r", method=method).names[-1] == "r"


@given(st.text(max_size=50), st.sampled_from(["GET", "POST"]))
def test_any_path_is_parsed_or_refused(raw: str, method: str):
    for path in (raw, f"/subscriptions/s/providers/Microsoft.ServiceBus/{raw}"):
        with suppress(ArmError):
            address = parse_address(path, method=method)
            assert len(address.types) - len(address.names) in {0, 1}
