"""Validation of descriptions, and durations exact to the tick."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servicebus_emulator.engine.model.descriptions import (
    AuthorizationRule,
    EntityStatus,
    MessageCounts,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
    check_update,
)
from servicebus_emulator.engine.model.entity_names import DescriptionError, entity_path_of
from servicebus_emulator.engine.model.rule_descriptions import RuleDescription
from servicebus_emulator.engine.model.timespan import TimeSpan


@given(st.integers(min_value=-(2**63), max_value=2**63 - 1))
def test_every_duration_survives_a_round_trip(ticks: int):
    assert TimeSpan.parse(str(TimeSpan(ticks))) == TimeSpan(ticks)


@pytest.mark.parametrize(
    ("text", "ticks"),
    [
        ("PT0S", 0),
        ("PT1M", 600_000_000),
        ("P1Y2M3DT4H5M6.7S", ((365 + 60 + 3) * 86_400 + 4 * 3_600 + 5 * 60 + 6) * 10**7 + 7_000_000),
        ("-PT0.0000001S", -1),
        ("PT0.00000005S", 1),
        ("P10675199DT2H48M5.4775807S", 2**63 - 1),
        ("-P10675199DT2H48M5.4775808S", -(2**63)),
    ],
)
def test_durations_are_read_as_dotnet_reads_them(text: str, ticks: int):
    assert TimeSpan.parse(text).ticks == ticks


@pytest.mark.parametrize(
    "text",
    ["", "P", "PT", "P1DT", "1M", "PT1", "P1W", "PT1M1H", "PT.5S", "P1.5D", "pt1m", "PT\u0661S", f"P{'9' * 70}D"],
)
def test_an_invalid_duration_is_refused(text: str):
    with pytest.raises(ValueError, match="is not a duration"):
        TimeSpan.parse(text)


@pytest.mark.parametrize("text", ["P10675199DT2H48M5.4775808S", "P10675199DT2H48M5.477581S", "P99999999999D"])
def test_a_duration_beyond_64_bits_is_refused(text: str):
    with pytest.raises(ValueError, match="out of range"):
        TimeSpan.parse(text)


def test_an_unbounded_duration_exceeds_the_calendar():
    assert TimeSpan.MAX.unbounded
    assert TimeSpan.parse("P10675199DT2H48M5.477539S").unbounded
    assert not TimeSpan.of(timedelta(days=365 * 100)).unbounded


@given(st.timedeltas(min_value=timedelta(days=-100_000), max_value=timedelta(days=100_000)))
def test_a_timedelta_is_converted_exactly(value: timedelta):
    assert timedelta(microseconds=TimeSpan.of(value).ticks // 10) == value
    assert TimeSpan.of(value).seconds == pytest.approx(value.total_seconds())


@pytest.mark.parametrize("path", ["q", "contoso/x-servicebus-transfer/0", "x" * 260, "späte.flüge-1_2", "a b"])
def test_a_path_of_a_queue_or_topic_has_up_to_260_characters_and_slashes(path: str):
    assert QueueDescription(path).path == TopicDescription(path).path == path


@pytest.mark.parametrize(
    "path",
    [
        "",
        " ",
        "/q",
        "q/",
        "a//b",
        "x" * 261,
        "a?b",
        "a#b",
        "a@b",
        "a*b",
        "a\\b",
        "a\nb",
        "$q",
        "q/$DeadLetterQueue",
        "t/Subscriptions/s",
        "subscriptions",
    ],
)
def test_an_ambiguous_path_is_refused(path: str):
    with pytest.raises(DescriptionError, match=r"^path is .* allowed: 1 to 260 characters") as refused:
        QueueDescription(path)
    assert refused.value.field == "path"


@pytest.mark.parametrize("name", ["", "x" * 51, "a/b", "$s", "a?b"])
def test_a_name_of_a_subscription_or_rule_has_up_to_50_characters_and_no_slash(name: str):
    with pytest.raises(DescriptionError, match=r"^name is .* allowed: 1 to 50 characters"):
        SubscriptionDescription("t", name)
    with pytest.raises(DescriptionError, match=r"^name is .* allowed: 1 to 50 characters"):
        RuleDescription(name)


def test_a_forwarding_address_is_a_path_or_a_url():
    assert entity_path_of("sb://127.0.0.1:5673/a/b") == entity_path_of("/a/b") == entity_path_of("a/b") == "a/b"


def test_a_rule_name_is_used_once():
    with pytest.raises(DescriptionError, match="each rule name once"):
        SubscriptionDescription("t", "s", rules=(RuleDescription("r"), RuleDescription("R")))


@pytest.mark.parametrize("field", ["requires_session", "requires_duplicate_detection", "enable_partitioning"])
def test_an_update_cannot_change_fields_fixed_at_creation(field: str):
    proposed: dict[str, Any] = {field: True}
    with pytest.raises(DescriptionError, match=f"{field} is True; allowed: False"):
        check_update(QueueDescription("q"), proposed=QueueDescription("q", **proposed))


@pytest.mark.parametrize(
    ("status", "sends", "receives"),
    [
        ("Active", True, True),
        ("Disabled", False, False),
        ("SendDisabled", False, True),
        ("ReceiveDisabled", True, False),
    ],
)
def test_a_status_permits_sending_or_receiving(status: str, sends: bool, receives: bool):
    assert (EntityStatus(status).accepts_sends, EntityStatus(status).accepts_receives) == (sends, receives)


def test_the_total_counts_every_message_once():
    counts = MessageCounts(active=1, scheduled=2, dead_lettered=4, transfer=8, transfer_dead_lettered=16)
    assert counts.total == 31


def test_keys_are_not_in_repr():
    rule = AuthorizationRule(key_name="app", primary_key="cHJpbWFyeQ==", secondary_key="c2Vjb25k")
    shown = repr(QueueDescription("q", authorization_rules=(rule,)))
    assert "app" in shown
    assert "cHJpbWFyeQ" not in shown
    assert "c2Vjb25k" not in shown
