"""Serialization of descriptions."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from proton import Message as ProtonMessage

from servicebus_emulator.amqp.codec.transfer_decoder import decode_message
from servicebus_emulator.engine.model.descriptions import (
    INT_MAX,
    AccessRight,
    AuthorizationRule,
    EntityStatus,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from servicebus_emulator.engine.model.rule_descriptions import CorrelationFilter, RuleDescription, SqlAction, SqlFilter
from servicebus_emulator.engine.model.timespan import TimeSpan
from servicebus_emulator.engine.namespace.entities import SubQueue
from servicebus_emulator.engine.namespace.topics import TopicEntity
from servicebus_emulator.store.serialization import dump_description, load_description
from tests.emulator.support.engine import PersistentNamespace, content, queue_of, texts


def test_every_field_of_every_description_is_stored(persistent: PersistentNamespace):
    rule = AuthorizationRule(
        rights=(AccessRight.SEND, AccessRight.LISTEN),
        created_time=datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
        key_name="k",
        primary_key="p",
    )
    queue = QueueDescription(
        "contoso/x-servicebus-transfer/0",
        max_delivery_count=INT_MAX,
        default_message_time_to_live=TimeSpan.MAX,
        lock_duration=TimeSpan(1),
        authorization_rules=(rule,),
        user_metadata="zażółć",
        status=EntityStatus.RECEIVE_DISABLED,
    )
    topic = TopicDescription("delays", max_size_in_megabytes=5120)
    subscription = SubscriptionDescription(
        "delays",
        "one",
        rules=(
            RuleDescription(
                "sql",
                SqlFilter(expression="a = @b", parameters=(("@b", TimeSpan(5)),)),
                SqlAction(expression="SET c = 1"),
            ),
            RuleDescription("correlation", CorrelationFilter(label="x", properties=(("n", 1.5), ("t", True)))),
        ),
    )
    gone = RuleDescription("gone", SqlFilter(expression="1=0"))
    with persistent.open() as namespace:
        namespace.create_queue(replace(queue, max_delivery_count=1))
        namespace.update(queue)
        namespace.create_topic(topic)
        namespace.create_subscription(replace(subscription, rules=(gone,)))
        for added in subscription.rules:
            namespace.add_rule("delays", "one", added)
        namespace.remove_rule("delays", "one", "gone")
    with persistent.open() as namespace:
        assert namespace.list_queues() == (queue,)
        assert namespace.list_topics() == (topic,)
        assert namespace.list_subscriptions("delays") == (subscription,)


def test_an_invalid_stored_rule_does_not_prevent_opening(persistent: PersistentNamespace):
    """An older version took rules from its configuration file without reading them."""
    never_read = SubscriptionDescription("t", "s", rules=(RuleDescription("r", SqlFilter(expression="a ==")),))
    with persistent.open() as namespace:
        namespace.create_topic(TopicDescription("t"))
        namespace.create_subscription(replace(never_read, rules=()))
        namespace.update(never_read)
    with persistent.open() as namespace:
        assert namespace.list_subscriptions("t") == (never_read,)
        topic = namespace.find("t")
        assert isinstance(topic, TopicEntity)
        empty = decode_message(bytes(ProtonMessage().encode()), new_id=lambda: "given")
        topic.send([empty])
        subscription: Any = namespace.find("t/Subscriptions/s")
        (dead,) = subscription.sub_queue(SubQueue.DEAD_LETTER).receive(1)
        assert "rule 'r': the rule cannot be parsed: found '='" in str(dead.dead_letter.description)
        namespace.update_rule("t", "s", RuleDescription("r"))
        topic.send([empty])
        assert namespace.counts("t/Subscriptions/s").active == 1


def test_times_to_live_beyond_year_9999_are_stored(persistent: PersistentNamespace):
    year = timedelta(days=365)
    with persistent.open() as namespace:
        namespace.create_queue(QueueDescription("q", default_message_time_to_live=TimeSpan.of(200 * year)))
        queue_of(namespace).send([content("x", time_to_live=253_402_300_799_999)])
        namespace.commit()
    with persistent.open() as namespace:
        assert texts(queue_of(namespace).main.receive(1)) == ["x"]


def test_a_window_of_an_older_version_is_raised_to_the_shortest_of_the_service():
    description = QueueDescription("q", requires_duplicate_detection=True)
    text = dump_description(description).replace("6000000000", "50000000")
    loaded = load_description(text)
    assert isinstance(loaded, QueueDescription)
    assert loaded.duplicate_detection_history_time_window == TimeSpan.of(timedelta(seconds=20))
