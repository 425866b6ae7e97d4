"""Rules at work in a topic: Microsoft's "Topic filters and actions"."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from proton import Message as ProtonMessage
from proton import symbol, timestamp

from servicebus_emulator.amqp.incoming import read_message
from servicebus_emulator.amqp.outgoing import encode_delivery
from servicebus_emulator.amqp.properties import AmqpProperties
from servicebus_emulator.engine.descriptions import (
    DEFAULT_RULE,
    CorrelationFilter,
    DescriptionError,
    MessageCounts,
    RuleDescription,
    RuleFilter,
    SqlAction,
    SqlFilter,
    SubscriptionDescription,
    TopicDescription,
)
from servicebus_emulator.engine.entities import SubQueue, SubscriptionEntity, TopicEntity
from servicebus_emulator.engine.errors import EntityExists, EntityNotFound
from servicebus_emulator.engine.message import Content
from servicebus_emulator.engine.namespace import Namespace
from servicebus_emulator.engine.timespan import TimeSpan
from tests.emulator.broker import Bench
from tests.emulator.clock import ManualClock


def message(body: str = "", *, annotations: dict[Any, Any] | None = None, **fields: Any) -> Content:
    built = ProtonMessage(body=body, annotations=annotations, **fields)
    return read_message(bytes(built.encode()), new_id=lambda: "made")


def sql(name: str, expression: str, action: str | None = None) -> RuleDescription:
    return RuleDescription(
        name, SqlFilter(expression=expression), None if action is None else SqlAction(expression=action)
    )


class Fanout:
    """A topic with one subscription."""

    def __init__(self, *rules: RuleDescription, **settings: Any) -> None:
        self.namespace = Namespace("contoso", clock=ManualClock(), codec=AmqpProperties())
        self.namespace.create_topic(TopicDescription("t"))
        self.namespace.create_subscription(SubscriptionDescription("t", "s", rules=rules, **settings))
        topic, subscription = self.namespace.find("t"), self.namespace.find("t/Subscriptions/s")
        assert isinstance(topic, TopicEntity)
        assert isinstance(subscription, SubscriptionEntity)
        self.topic, self.subscription = topic, subscription

    def send(self, *contents: Content) -> list[ProtonMessage]:
        """Send, and return what the subscription has received so far, decoded by a stranger."""
        self.topic.send(contents)
        return self.received(SubQueue.MAIN)

    def received(self, part: SubQueue) -> list[ProtonMessage]:
        found = []
        for each in self.subscription.part(part).peek(0, limit=100, session_id=None):
            decoded = ProtonMessage()
            decoded.decode(encode_delivery(each))
            found.append(decoded)
        return found


def test_a_subscription_receives_what_its_filter_lets_through():
    fanout = Fanout(sql("late", "minutes > 60 AND sys.Label LIKE 'flight%'"))

    received = fanout.send(
        message("a", subject="flight 1", properties={"minutes": 61}),
        message("b", subject="flight 2", properties={"minutes": 60}),
        message("c", subject="train", properties={"minutes": 90}),
        message("d"),
    )

    assert [each.body for each in received] == ["a"]


def test_rules_without_action_yield_one_message_together_and_each_with_action_a_copy_of_its_own():
    fanout = Fanout(
        sql("plain-1", "1=1"),
        sql("marked", "n = 1", "SET who = 'marked'; REMOVE n"),
        sql("plain-2", "n = 1"),
        sql("other", "n = 1", "SET n = n + 1"),
        sql("no match", "n = 2", "SET never = 1"),
    )

    received = fanout.send(message("body", id="m", properties={"n": 1}))

    assert [(each.id, each.body) for each in received] == [("m", "body")] * 3
    assert [each.properties for each in received] == [
        {"n": 1},
        {"RuleName": "marked", "who": "marked"},
        {"RuleName": "other", "n": 2},
    ]


def test_a_subscription_without_rules_receives_nothing_and_with_a_new_one_again():
    fanout = Fanout()
    assert fanout.send(message("lost")) == []

    fanout.namespace.add_rule("T", "S", DEFAULT_RULE)
    assert [each.body for each in fanout.send(message("kept"))] == ["kept"]

    fanout.namespace.remove_rule("t", "s", "$DEFAULT")
    assert [each.body for each in fanout.send(message("lost"))] == ["kept"]


def test_an_action_changes_what_it_names_and_keeps_all_else_byte_for_byte():
    fanout = Fanout(
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

    (received,) = fanout.send(sent)

    assert received.properties == {**given, "RuleName": "r", "f": 1.5}
    assert (received.id, received.body, received.reply_to, received.content_type) == (
        UUID(int=3),
        "body",
        "there",
        "text/plain",
    )
    assert (received.subject, received.group_id, received.correlation_id) == ("new", "s2", None)
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
def test_properties_of_every_amqp_type_can_be_asked_for(expression: str, matches: bool):
    parameters = (
        ("@ttl", TimeSpan.parse("PT5S")),
        ("@id", "00000000-0000-0000-0000-000000000005"),
        ("@early", datetime(2020, 1, 1, tzinfo=UTC)),
        ("@unzoned", datetime(2020, 1, 1)),  # noqa: DTZ001 - a time without a zone is in UTC
    )
    fanout = Fanout(RuleDescription("r", SqlFilter(expression=expression, parameters=parameters)))
    properties = {"i": 1, "d": 2.5, "f": 0.5, "b": True, "s": "é", "u": UUID(int=5), "none": None, "raw": b"x"}
    sent = message(
        id=UUID(int=3),
        ttl=5,
        reply_to_group_id="rs",
        properties={**properties, "at": timestamp(1_790_000_000_000)},
        annotations={symbol("x-opt-partition-key"): "p"},
    )

    assert (len(fanout.send(sent)) == 1) is matches


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
def test_a_correlation_filter_compares_each_system_property_with_its_case(condition: str, field: str):
    asked: dict[str, Any] = {condition: "Wanted"}
    fanout = Fanout(RuleDescription("r", CorrelationFilter(**asked)))

    received = fanout.send(
        message("same", **{field: "Wanted"}), message("case", **{field: "wanted"}), message("none", durable=True)
    )

    assert [each.body for each in received] == ["same"]


def test_a_correlation_filter_compares_application_properties_by_value_and_asks_for_all_of_them():
    asked = CorrelationFilter(label="x", properties=(("n", 1), ("Flag", True)))
    fanout = Fanout(RuleDescription("r", asked))

    received = fanout.send(
        message("all", subject="x", properties={"n": 1.0, "flag": True}),
        message("one", subject="x", properties={"n": 1}),
        message("other type", subject="x", properties={"n": "1", "Flag": True}),
        message("other label", subject="y", properties={"n": 1, "Flag": True}),
    )

    assert [each.body for each in received] == ["all"]


def test_a_message_that_a_filter_cannot_be_evaluated_for_is_dead_lettered_with_the_reason():
    fanout = Fanout(sql("r", "1 / n = 1"))

    assert fanout.send(message("zero", properties={"n": 0}), message("one", properties={"n": 1}))[0].body == "one"

    (dead,) = fanout.received(SubQueue.DEAD_LETTER)
    assert dead.body == "zero"
    assert dead.properties["DeadLetterReason"] == "FilterEvaluationException"
    assert dead.properties["DeadLetterErrorDescription"] == "rule 'r': an integer is divided by zero"


def test_without_dead_lettering_of_filter_errors_such_a_message_is_passed_over():
    fanout = Fanout(sql("r", "1 / n = 1"), dead_lettering_on_filter_evaluation_exceptions=False)

    assert fanout.send(message("zero", properties={"n": 0})) == []
    assert fanout.subscription.counts() == MessageCounts()


class Refusing(AmqpProperties):
    """A codec that may not be asked to read."""

    def read(self, content: Content) -> Any:
        raise AssertionError(f"a message of {content.size} bytes was decoded")


def test_no_message_is_decoded_for_subscriptions_that_receive_everything_or_nothing():
    namespace = Namespace("contoso", clock=ManualClock(), codec=Refusing())
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


def test_a_rule_is_added_once_updated_in_its_place_and_removed_by_name():
    fanout = Fanout(sql("First", "a = 1"), sql("second", "a = 2"))
    namespace = fanout.namespace

    with pytest.raises(EntityExists, match="rule 'first' already"):
        namespace.add_rule("t", "s", sql("first", "a = 3"))
    namespace.update_rule("t", "s", sql("FIRST", "a = 4"))
    namespace.remove_rule("t", "s", "SECOND")

    assert namespace.get_subscription("t", "s").rules == (sql("First", "a = 4"),)
    for attempt in (
        lambda: namespace.update_rule("t", "s", sql("second", "a = 5")),
        lambda: namespace.remove_rule("t", "s", "second"),
    ):
        with pytest.raises(EntityNotFound, match="has no rule 'second'"):
            attempt()


WRONG = RuleDescription("r", SqlFilter(expression="a ="))


@pytest.mark.parametrize(
    "attempt",
    [
        lambda namespace: namespace.add_rule("t", "s", WRONG),
        lambda namespace: namespace.update_rule("t", "s", RuleDescription("$Default", WRONG.filter)),
        lambda namespace: namespace.create_subscription(SubscriptionDescription("t", "s2", rules=(WRONG,))),
        lambda namespace: namespace.add_rule("t", "s", sql("r", "a = '\x00'")),
        lambda namespace: namespace.add_rule("t", "s", RuleDescription("r", CorrelationFilter())),
        lambda namespace: namespace.add_rule("t", "s", RuleDescription("r", CorrelationFilter(label="\x01"))),
        lambda namespace: namespace.add_rule(
            "t", "s", RuleDescription("r", CorrelationFilter(properties=(("n", 2**63),)))
        ),
        lambda namespace: namespace.add_rule(
            "t", "s", RuleDescription("r", SqlFilter(expression="1=1", parameters=(("@\x00", 1),)))
        ),
        lambda namespace: namespace.add_rule("t", "s", sql("r", "a = 1", "DROP a")),
    ],
)
def test_a_rule_that_cannot_work_changes_nothing(attempt: Callable[[Namespace], None]):
    fanout = Fanout(DEFAULT_RULE)

    with pytest.raises(DescriptionError, match="allowed: "):
        attempt(fanout.namespace)

    assert fanout.namespace.list_subscriptions("t") == (SubscriptionDescription("t", "s"),)


@pytest.mark.parametrize("filtered", [SqlFilter(expression="a = 1"), CorrelationFilter(label="x")])
def test_a_namespace_without_codec_dead_letters_what_it_cannot_read(bench: Bench, filtered: RuleFilter):
    topic = bench.topic(TopicDescription("t"))
    subscription = bench.subscription(SubscriptionDescription("t", "s", rules=(RuleDescription("r", filtered),)))

    topic.send([message("x")])

    assert subscription.counts() == MessageCounts(dead_lettered=1)
