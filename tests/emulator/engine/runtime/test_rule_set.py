"""Evaluation of subscription rules for encoded messages."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from proton import symbol, timestamp

from servicebus_emulator.amqp.codec.property_codec import AmqpPropertyCodec
from servicebus_emulator.engine.model.descriptions import SubscriptionDescription, TopicDescription
from servicebus_emulator.engine.model.message import Content
from servicebus_emulator.engine.model.rule_descriptions import (
    DEFAULT_RULE,
    CorrelationFilter,
    RuleDescription,
    SqlFilter,
)
from servicebus_emulator.engine.model.timespan import TimeSpan
from servicebus_emulator.engine.namespace.namespace import Namespace
from servicebus_emulator.engine.namespace.topics import TopicEntity
from tests.emulator.support.manual_clock import ManualClock
from tests.emulator.support.subscriptions import SubscriptionHarness, message, sql


def test_rules_without_action_yield_one_message_and_each_rule_with_action_a_copy():
    harness = SubscriptionHarness(
        sql("plain-1", "1=1"),
        sql("marked", "n = 1", "SET who = 'marked'; REMOVE n"),
        sql("plain-2", "n = 1"),
        sql("other", "n = 1", "SET n = n + 1"),
        sql("no match", "n = 2", "SET never = 1"),
    )

    received = harness.send(message("body", id="m", properties={"n": 1}))

    assert [(each.id, each.body) for each in received] == [("m", "body")] * 3
    assert [each.properties for each in received] == [
        {"n": 1},
        {"RuleName": "marked", "who": "marked"},
        {"RuleName": "other", "n": 2},
    ]


def test_an_action_changes_only_the_properties_it_names():
    harness = SubscriptionHarness(
        sql("r", "EXISTS(n)", "SET sys.Label = 'new'; SET sys.SessionId = 's2'; REMOVE sys.CorrelationId; SET f = 1.5")
    )
    given = {"n": 1, "u": UUID(int=5), "at": timestamp(1000), "raw": b"\x00\xff", "sym": symbol("x"), "none": None}
    sent = message(
        "body",
        id=UUID(int=3),
        subject="old",
        correlation_id="c",
        group_id="s1",
        reply_to="there",
        content_type="text/plain",
        properties=given,
        annotations={symbol("x-opt-partition-key"): "p"},
    )

    (received,) = harness.send(sent)

    properties: Any = received.properties
    assert properties == {**given, "RuleName": "r", "f": 1.5}
    assert (received.id, received.body, received.reply_to, received.content_type) == (
        UUID(int=3),
        "body",
        "there",
        "text/plain",
    )
    assert (received.subject, received.group_id, received.correlation_id) == ("new", "s2", None)
    assert received.annotations is not None
    assert received.annotations["x-opt-partition-key"] == "p"


@pytest.mark.parametrize(
    ("expression", "matches"),
    [
        ("sys.MessageId = '00000000-0000-0000-0000-000000000003'", True),
        ("sys.PartitionKey = 'p' AND sys.ReplyToSessionId = 'rs'", True),
        ("sys.TimeToLive = @ttl", True),
        ("sys.ScheduledEnqueueTimeUtc IS NULL", True),
        ("i = 1 AND d = 2.5 AND f < 0.6 AND b = TRUE AND s = 'é'", True),
        ("u = @id OR raw = 'x'", False),
        ("none IS NULL AND EXISTS(none) AND NOT EXISTS(other)", True),
        ("at > @early AND at > @unzoned", True),
    ],
)
def test_filters_can_use_properties_of_every_amqp_type(expression: str, matches: bool):
    parameters = (
        ("@ttl", TimeSpan.parse("PT5S")),
        ("@id", "00000000-0000-0000-0000-000000000005"),
        ("@early", datetime(2020, 1, 1, tzinfo=UTC)),
        ("@unzoned", datetime(2020, 1, 1)),  # noqa: DTZ001 - a time without a zone is in UTC
    )
    harness = SubscriptionHarness(RuleDescription("r", SqlFilter(expression=expression, parameters=parameters)))
    properties = {"i": 1, "d": 2.5, "f": 0.5, "b": True, "s": "é", "u": UUID(int=5), "none": None, "raw": b"x"}
    sent = message(
        id=UUID(int=3),
        ttl=5,
        reply_to_group_id="rs",
        properties={**properties, "at": timestamp(1_790_000_000_000)},
        annotations={symbol("x-opt-partition-key"): "p"},
    )

    assert (len(harness.send(sent)) == 1) is matches


FIELDS = {
    "correlation_id": "correlation_id",
    "message_id": "id",
    "to": "address",
    "reply_to": "reply_to",
    "label": "subject",
    "session_id": "group_id",
    "reply_to_session_id": "reply_to_group_id",
    "content_type": "content_type",
}


@pytest.mark.parametrize(("condition", "field"), FIELDS.items())
def test_a_correlation_filter_compares_system_properties_case_sensitively(condition: str, field: str):
    asked: dict[str, Any] = {condition: "Wanted"}
    harness = SubscriptionHarness(RuleDescription("r", CorrelationFilter(**asked)))

    same: dict[str, Any] = {field: "Wanted"}
    case: dict[str, Any] = {field: "wanted"}
    received = harness.send(message("same", **same), message("case", **case), message("none", durable=True))

    assert [each.body for each in received] == ["same"]


def test_a_correlation_filter_requires_all_application_properties_to_be_equal():
    asked = CorrelationFilter(label="x", properties=(("n", 1), ("Flag", True)))
    harness = SubscriptionHarness(RuleDescription("r", asked))

    received = harness.send(
        message("all", subject="x", properties={"n": 1.0, "flag": True}),
        message("one", subject="x", properties={"n": 1}),
        message("other type", subject="x", properties={"n": "1", "Flag": True}),
        message("other label", subject="y", properties={"n": 1, "Flag": True}),
    )

    assert [each.body for each in received] == ["all"]


class FailingCodec(AmqpPropertyCodec):
    """A codec that may not be asked to read."""

    def read(self, content: Content) -> Any:
        raise AssertionError(f"a message of {content.size} bytes was decoded")


def test_messages_are_not_decoded_for_rules_that_match_all_or_none():
    namespace = Namespace("contoso", clock=ManualClock(), codec=FailingCodec())
    namespace.create_topic(TopicDescription("t"))
    namespace.create_subscription(SubscriptionDescription("t", "all"))
    namespace.create_subscription(SubscriptionDescription("t", "or", rules=(DEFAULT_RULE, sql("r", "n = 1"))))
    namespace.create_subscription(SubscriptionDescription("t", "none", rules=()))
    namespace.create_subscription(SubscriptionDescription("t", "false", rules=(sql("r", "1=0", "SET n = 1"),)))
    topic = namespace.find("t")
    assert isinstance(topic, TopicEntity)

    topic.send([message("x")])

    counts = {name: namespace.counts(f"t/Subscriptions/{name}").active for name in ("all", "or", "none", "false")}
    assert counts == {"all": 1, "or": 1, "none": 0, "false": 0}
