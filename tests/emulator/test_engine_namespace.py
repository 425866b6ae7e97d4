"""SPEC 1: entities are named by their path, without case; topics pass messages on to their subscriptions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from servicebus_emulator.engine.descriptions import (
    EntityStatus,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from servicebus_emulator.engine.entities import SubQueue
from servicebus_emulator.engine.errors import EntityExists, EntityNotFound, InvalidArgument
from tests.emulator.broker import Bench, content, texts


def test_paths_are_compared_without_case_and_keep_their_first_spelling(bench: Bench):
    bench.namespace.create_queue(QueueDescription("contoso/X-ServiceBus-Transfer/0"))
    assert bench.namespace.get_queue("CONTOSO/x-servicebus-transfer/0").path == "contoso/X-ServiceBus-Transfer/0"
    with pytest.raises(EntityExists):
        bench.namespace.create_queue(QueueDescription("contoso/x-servicebus-transfer/0"))


def test_queues_and_topics_share_one_set_of_paths(bench: Bench):
    bench.namespace.create_topic(TopicDescription("delays"))
    with pytest.raises(EntityExists):
        bench.namespace.create_queue(QueueDescription("Delays"))
    with pytest.raises(EntityNotFound):
        bench.namespace.get_queue("delays")


def test_entities_are_listed_by_path(bench: Bench):
    for path in ("b", "a/2", "a/10"):
        bench.namespace.create_queue(QueueDescription(path))
    assert [queue.path for queue in bench.namespace.list_queues()] == ["a/10", "a/2", "b"]


def test_a_deleted_entity_is_gone_with_its_messages(bench: Bench):
    entity = bench.queue(QueueDescription("q"))
    entity.send([content("x")])
    bench.namespace.delete_queue("Q")
    assert entity.deleted
    assert entity.key in bench.namespace.take_effects().gone
    assert bench.queue(QueueDescription("q")).counts().total == 0


def test_what_is_fixed_at_creation_cannot_be_updated(bench: Bench):
    description = bench.namespace.create_queue(QueueDescription("q"))
    with pytest.raises(InvalidArgument, match="requires_session"):
        bench.namespace.update_queue(replace(description, requires_session=True))
    bench.namespace.update_queue(replace(description, status=EntityStatus.DISABLED))
    assert bench.namespace.get_entity("q") == replace(description, status=EntityStatus.DISABLED)


def test_an_updated_queue_obeys_at_once(bench: Bench):
    entity = bench.queue(QueueDescription("q", max_delivery_count=1))
    bench.namespace.update_queue(replace(entity.description, max_delivery_count=5))
    assert entity.main.settings.max_delivery_count == 5


def test_times_tell_creation_update_and_use(bench: Bench):
    entity = bench.queue(QueueDescription("q"))
    created = bench.clock.now()
    bench.go_on(1)
    bench.namespace.update_queue(entity.description)
    bench.go_on(1)
    entity.send([content("x")])
    times = bench.namespace.times("q")
    assert [
        round(moment.timestamp() * 1000) - created for moment in (times.created, times.updated, times.accessed)
    ] == [
        0,
        1000,
        2000,
    ]


def test_a_topic_passes_each_message_on_to_all_of_its_subscriptions(bench: Bench):
    topic = bench.topic(TopicDescription("delays"))
    one = bench.subscription(SubscriptionDescription("delays", "one"))
    two = bench.subscription(SubscriptionDescription("Delays", "two"))
    topic.send([content("a"), content("b"), content("p", ping=True)])
    assert texts(one.main.take(10)) == texts(two.main.take(10)) == ["a", "b"]
    assert bench.namespace.counts("delays/subscriptions/ONE").active == 2
    assert topic.size_in_bytes == 4


def test_a_topic_keeps_a_scheduled_message_until_its_time(bench: Bench):
    topic = bench.topic(TopicDescription("delays"))
    subscription = bench.subscription(SubscriptionDescription("delays", "one"))
    topic.send([content("later", scheduled_for=bench.clock.now() + 1000)])
    (cancelled,) = topic.schedule([content("never", scheduled_for=bench.clock.now() + 1000)])
    topic.cancel([cancelled])
    assert topic.counts().scheduled == 1
    bench.go_on(1)
    assert texts(subscription.main.take(10)) == ["later"]
    assert topic.counts().total == 0


def test_a_subscription_that_requires_sessions_dead_letters_what_has_none(bench: Bench):
    topic = bench.topic(TopicDescription("delays"))
    subscription = bench.subscription(SubscriptionDescription("delays", "one", requires_session=True))
    topic.send([content("x")])
    (message,) = subscription.part(SubQueue.DEAD_LETTER).take(1)
    assert message.dead_letter is not None
    assert message.dead_letter.reason == "Session ID is null"


def test_deleting_a_topic_deletes_its_subscriptions(bench: Bench):
    bench.topic(TopicDescription("delays"))
    subscription = bench.subscription(SubscriptionDescription("delays", "one"))
    bench.namespace.delete_topic("delays")
    assert subscription.deleted
    with pytest.raises(EntityNotFound, match="create it first"):
        bench.namespace.get_subscription("delays", "one")
