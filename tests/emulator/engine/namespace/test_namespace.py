"""Entity management of a namespace."""

from __future__ import annotations

from dataclasses import replace

import pytest

from servicebus_emulator.engine.model.descriptions import (
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from servicebus_emulator.engine.model.errors import EntityNotFound
from tests.emulator.support.engine import EngineHarness, content


def test_queues_are_listed_by_path(harness: EngineHarness):
    for path in ("b", "a/2", "a/10"):
        harness.namespace.create_queue(QueueDescription(path))
    assert [queue.path for queue in harness.namespace.list_queues()] == ["a/10", "a/2", "b"]


def test_delete_removes_an_entity_with_its_messages(harness: EngineHarness):
    entity = harness.queue(QueueDescription("q"))
    entity.send([content("x")])
    harness.namespace.delete_queue("Q")
    assert entity.deleted
    assert entity.key in harness.namespace.take_effects().invalidated
    assert harness.queue(QueueDescription("q")).counts().total == 0


def test_an_update_takes_effect_immediately(harness: EngineHarness):
    entity = harness.queue(QueueDescription("q", max_delivery_count=1))
    harness.namespace.update(replace(entity.description, max_delivery_count=5))
    assert entity.main.settings.max_delivery_count == 5


def test_times_returns_creation_update_and_access(harness: EngineHarness):
    entity = harness.queue(QueueDescription("q"))
    created = harness.clock.now()
    harness.advance(1)
    harness.namespace.update(entity.description)
    harness.advance(1)
    entity.send([content("x")])
    times = harness.namespace.times("q")
    assert [round(time.timestamp() * 1000) - created for time in (times.created, times.updated, times.accessed)] == [
        0,
        1000,
        2000,
    ]


def test_deleting_a_topic_deletes_its_subscriptions(harness: EngineHarness):
    harness.topic(TopicDescription("delays"))
    subscription = harness.subscription(SubscriptionDescription("delays", "one"))
    harness.namespace.delete(TopicDescription("delays"))
    assert subscription.deleted
    with pytest.raises(EntityNotFound, match="create it first"):
        harness.namespace.get_subscription("delays", "one")
