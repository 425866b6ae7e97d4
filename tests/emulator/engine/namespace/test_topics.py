"""Topics and subscriptions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from servicebus_emulator.engine.model.descriptions import (
    MessageCounts,
    SubscriptionDescription,
    TopicDescription,
)
from servicebus_emulator.engine.model.entity_names import DescriptionError
from servicebus_emulator.engine.model.errors import EntityExists, EntityNotFound
from servicebus_emulator.engine.model.rule_descriptions import (
    DEFAULT_RULE,
    CorrelationFilter,
    RuleDescription,
    RuleFilter,
    SqlFilter,
)
from servicebus_emulator.engine.namespace.entities import SubQueue
from servicebus_emulator.engine.namespace.namespace import Namespace
from servicebus_emulator.engine.runtime import rule_set
from servicebus_emulator.engine.sql.nodes import Predicate
from servicebus_emulator.engine.sql.parser import parse_filter
from tests.emulator.support.engine import EngineHarness, content, reason_of, texts
from tests.emulator.support.subscriptions import SubscriptionHarness, message, sql


def test_a_topic_publishes_to_all_subscriptions(harness: EngineHarness):
    topic = harness.topic(TopicDescription("delays"))
    one = harness.subscription(SubscriptionDescription("delays", "one"))
    two = harness.subscription(SubscriptionDescription("Delays", "two"))
    topic.send([content("a"), content("b"), content("p", ping=True)])
    assert texts(one.main.receive(10)) == texts(two.main.receive(10)) == ["a", "b"]
    assert harness.namespace.counts("delays/subscriptions/ONE").active == 2
    assert topic.size_in_bytes == 4


def test_a_topic_publishes_scheduled_messages_when_due(harness: EngineHarness):
    topic = harness.topic(TopicDescription("delays"))
    subscription = harness.subscription(SubscriptionDescription("delays", "one"))
    topic.send([content("later", scheduled_for=harness.clock.now() + 1000)])
    (cancelled,) = topic.schedule([content("never", scheduled_for=harness.clock.now() + 1000)])
    topic.cancel([cancelled])
    assert topic.counts().scheduled == 1
    harness.advance(1)
    assert texts(subscription.main.receive(10)) == ["later"]
    assert topic.counts().total == 0


def test_a_subscription_with_sessions_dead_letters_messages_without_session_id(harness: EngineHarness):
    topic = harness.topic(TopicDescription("delays"))
    subscription = harness.subscription(SubscriptionDescription("delays", "one", requires_session=True))
    topic.send([content("x")])
    (message,) = subscription.sub_queue(SubQueue.DEAD_LETTER).receive(1)
    assert reason_of(message) == "Session ID is null"


def test_a_subscription_without_rules_receives_nothing():
    harness = SubscriptionHarness()
    assert harness.send(message("lost")) == []

    harness.namespace.add_rule("T", "S", DEFAULT_RULE)
    assert [each.body for each in harness.send(message("kept"))] == ["kept"]

    harness.namespace.remove_rule("t", "s", "$DEFAULT")
    assert [each.body for each in harness.send(message("lost"))] == ["kept"]


def test_a_filter_error_dead_letters_the_message_with_a_reason():
    harness = SubscriptionHarness(sql("r", "1 / n = 1"))

    assert harness.send(message("zero", properties={"n": 0}), message("one", properties={"n": 1}))[0].body == "one"

    (dead,) = harness.received(SubQueue.DEAD_LETTER)
    assert dead.body == "zero"
    assert dead.properties == {
        "n": 0,
        "DeadLetterReason": "FilterEvaluationException",
        "DeadLetterErrorDescription": "rule 'r': integer division by zero",
    }


def test_without_dead_lettering_of_filter_errors_the_message_is_skipped():
    harness = SubscriptionHarness(sql("r", "1 / n = 1"), dead_lettering_on_filter_evaluation_exceptions=False)

    assert harness.send(message("zero", properties={"n": 0})) == []
    assert harness.subscription.counts() == MessageCounts()


def test_rules_are_added_updated_in_place_and_removed_by_name():
    harness = SubscriptionHarness(sql("First", "a = 1"), sql("second", "a = 2"))
    namespace = harness.namespace

    with pytest.raises(EntityExists, match="rule 'first' already"):
        namespace.add_rule("t", "s", sql("first", "a = 3"))
    namespace.update_rule("t", "s", sql("FIRST", "a = 4"))
    namespace.remove_rule("t", "s", "SECOND")

    assert namespace.get_subscription("t", "s").rules == (sql("First", "a = 4"),)
    with pytest.raises(EntityNotFound, match="has no rule 'second'"):
        namespace.update_rule("t", "s", sql("second", "a = 5"))
    with pytest.raises(EntityNotFound, match="has no rule 'second'"):
        namespace.remove_rule("t", "s", "second")


def test_a_new_rule_is_compiled_without_those_before_it(monkeypatch: pytest.MonkeyPatch):
    harness = SubscriptionHarness(sql("one", "a = 1"), sql("true", "a = TRUE"))
    parsed: list[str] = []

    def parse(text: str, **parameters: Any) -> Predicate:
        parsed.append(text)
        return parse_filter(text, **parameters)

    monkeypatch.setattr(rule_set, "parse_filter", parse)
    for number in range(50):
        harness.namespace.add_rule("t", "s", sql(f"r{number}", f"a = {number}"))
    harness.namespace.update_rule("t", "s", sql("r7", "a = 70"))
    harness.namespace.remove_rule("t", "s", "r8")
    found = [len(harness.send(message("m", properties={"a": each}))) for each in (70, 7, 8, 9, True)]

    # Checked and compiled once: compiling all again, 2,000 rules took minutes in which nothing else was served.
    assert len(parsed) == 2 * 51
    assert found == [1, 1, 1, 2, 3]  # in all


INVALID = RuleDescription("r", SqlFilter(expression="a ="))


@pytest.mark.parametrize(
    "attempt",
    [
        lambda namespace: namespace.add_rule("t", "s", INVALID),
        lambda namespace: namespace.update_rule("t", "s", RuleDescription("$Default", INVALID.filter)),
        lambda namespace: namespace.create_subscription(SubscriptionDescription("t", "s2", rules=(INVALID,))),
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
def test_an_invalid_rule_changes_nothing(attempt: Callable[[Namespace], None]):
    harness = SubscriptionHarness(DEFAULT_RULE)

    with pytest.raises(DescriptionError, match="allowed: "):
        attempt(harness.namespace)

    assert harness.namespace.list_subscriptions("t") == (SubscriptionDescription("t", "s"),)


@pytest.mark.parametrize("filtered", [SqlFilter(expression="a = 1"), CorrelationFilter(label="x")])
def test_a_namespace_without_codec_dead_letters_filtered_messages(harness: EngineHarness, filtered: RuleFilter):
    topic = harness.topic(TopicDescription("t"))
    subscription = harness.subscription(SubscriptionDescription("t", "s", rules=(RuleDescription("r", filtered),)))

    topic.send([message("x")])

    assert subscription.counts() == MessageCounts(dead_lettered=1)
