"""Deletion of idle entities."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import timedelta

import pytest

from servicebus_emulator.engine.model.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from servicebus_emulator.engine.model.errors import EntityNotFound
from servicebus_emulator.engine.model.timespan import TimeSpan
from tests.emulator.support.engine import EngineHarness, PersistentNamespace, content

IDLE = 300
SPAN = TimeSpan.of(timedelta(seconds=IDLE))
QUEUE = QueueDescription("q", auto_delete_on_idle=SPAN)


def exists(harness: EngineHarness, path: str) -> bool:
    try:
        harness.namespace.find(path)
    except EntityNotFound:
        return False
    return True


def test_an_idle_queue_is_deleted(harness: EngineHarness, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO)
    harness.queue(QUEUE)
    harness.queue(QueueDescription("other"))
    harness.advance(IDLE - 1)
    assert exists(harness, "q")
    harness.advance(1)
    assert not exists(harness, "q")
    assert exists(harness, "other")
    assert "namespace contoso: deleted q, idle for PT5M" in caplog.messages


def test_a_use_restarts_the_idle_time_but_sending_to_a_queue_does_not(harness: EngineHarness):
    entity = harness.queue(QUEUE)
    harness.advance(IDLE - 1)
    entity.touch()
    harness.advance(IDLE - 1)
    entity.send([content("x")])
    assert exists(harness, "q")
    harness.advance(1)
    assert not exists(harness, "q")


def test_a_queue_with_a_receiver_is_not_idle(harness: EngineHarness):
    entity = harness.queue(QUEUE)
    harness.namespace.auto_delete.has_receiver = lambda key: key == entity.key
    harness.advance(10 * IDLE)
    assert exists(harness, "q")
    harness.namespace.auto_delete.has_receiver = lambda _: False
    harness.advance(IDLE)
    assert not exists(harness, "q")


def test_a_queue_with_a_scheduled_message_is_not_idle(harness: EngineHarness):
    entity = harness.queue(QUEUE)
    entity.schedule([content("x", scheduled_for=harness.clock.now() + 2 * IDLE * 1000)])
    harness.advance(IDLE)
    assert exists(harness, "q")
    harness.advance(IDLE)
    harness.advance(IDLE)
    assert not exists(harness, "q")


def test_a_queue_that_forwards_messages_is_not_idle(harness: EngineHarness):
    harness.queue(QueueDescription("last"))
    entity = harness.queue(replace(QUEUE, forward_to="last"))
    harness.advance(IDLE - 1)
    entity.send([content("x")])
    harness.advance(IDLE - 1)
    assert exists(harness, "q")


def test_an_updated_description_starts_and_stops_the_idle_time(harness: EngineHarness):
    harness.queue(QueueDescription("q"))
    harness.advance(IDLE)
    harness.namespace.update(QUEUE)
    harness.advance(IDLE - 1)
    harness.namespace.update(QueueDescription("q"))
    harness.advance(10 * IDLE)
    assert exists(harness, "q")
    harness.namespace.update(QUEUE)
    harness.advance(IDLE)
    assert not exists(harness, "q")


def test_a_recreated_queue_has_a_new_idle_time(harness: EngineHarness):
    harness.queue(QUEUE)
    harness.advance(IDLE - 1)
    harness.namespace.delete_queue("q")
    harness.queue(QUEUE)
    harness.advance(IDLE - 1)
    assert exists(harness, "q")


def test_sending_to_a_topic_or_using_its_subscriptions_restarts_its_idle_time(harness: EngineHarness):
    topic = harness.topic(TopicDescription("t", auto_delete_on_idle=SPAN))
    subscription = harness.subscription(SubscriptionDescription("t", "s"))
    harness.advance(IDLE - 1)
    topic.send([content("x")])
    harness.advance(IDLE - 1)
    subscription.touch()
    harness.advance(IDLE - 1)
    assert exists(harness, "t")
    harness.advance(1)
    assert not exists(harness, "t/Subscriptions/s")


def test_a_subscription_without_receivers_is_deleted_although_messages_arrive(harness: EngineHarness):
    topic = harness.topic(TopicDescription("t"))
    harness.subscription(SubscriptionDescription("t", "s", auto_delete_on_idle=SPAN))
    for _ in range(IDLE):
        topic.send([content("x")])
        harness.advance(1)
    assert not exists(harness, "t/Subscriptions/s")
    assert exists(harness, "t")


def test_a_restart_restarts_the_idle_time(persistent: PersistentNamespace):
    with persistent.open() as namespace:
        namespace.create_queue(QUEUE)
    persistent.clock.advance(10 * IDLE)
    for seconds, remaining in ((IDLE - 1, 1), (IDLE, 0)):
        with persistent.open() as namespace:
            persistent.clock.advance(seconds)
            namespace.advance()
            assert len(namespace.list_queues()) == remaining
