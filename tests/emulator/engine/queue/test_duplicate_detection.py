"""Duplicate detection: a message seen within the window is accepted and dropped."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import timedelta

import pytest

from servicebus_emulator.engine.model.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from servicebus_emulator.engine.model.errors import QuotaExceeded
from servicebus_emulator.engine.model.timespan import TimeSpan
from servicebus_emulator.engine.namespace.entities import QueueEntity
from servicebus_emulator.engine.queue.duplicate_detection import DuplicateDetector
from tests.emulator.support.engine import EngineHarness, PersistentNamespace, content, queue_of, texts, token_of

WINDOW = 60
UNIQUE = QueueDescription(
    "flights",
    requires_duplicate_detection=True,
    duplicate_detection_history_time_window=TimeSpan.of(timedelta(seconds=WINDOW)),
)


@pytest.fixture
def entity(harness: EngineHarness) -> QueueEntity:
    return harness.queue(UNIQUE)


def detector_of(entity: QueueEntity) -> DuplicateDetector:
    detector = entity.ingress.duplicate_detector
    assert detector is not None
    return detector


def test_a_duplicate_of_a_completed_message_is_dropped(entity: QueueEntity):
    entity.send([content("a")])
    entity.main.complete(token_of(entity.main.receive(1)[0]))
    entity.send([content("a"), content("b")])
    assert texts(entity.main.receive(10)) == ["b"]


def test_a_duplicate_within_one_batch_is_dropped(entity: QueueEntity):
    entity.send([content("a"), content("b"), content("a")])
    assert [(message.sequence_number, *texts([message])) for message in entity.main.receive(10)] == [(1, "a"), (2, "b")]


def test_the_window_starts_when_a_message_is_first_seen(harness: EngineHarness, entity: QueueEntity):
    entity.send([content("a")])
    harness.advance(WINDOW - 1)
    entity.send([content("a")])
    assert entity.counts().active == 1
    harness.advance(1)
    entity.send([content("a")])
    assert entity.counts().active == 2


def test_a_shorter_window_applies_to_earlier_messages(harness: EngineHarness, entity: QueueEntity):
    entity.send([content("a")])
    shorter = TimeSpan.of(timedelta(seconds=20))
    harness.namespace.update(replace(UNIQUE, duplicate_detection_history_time_window=shorter))
    harness.advance(20)
    entity.send([content("a")])
    assert entity.counts().active == 2


def test_a_scheduled_message_is_remembered_and_its_duplicate_gets_number_zero(
    harness: EngineHarness, entity: QueueEntity
):
    due = harness.clock.now() + 5000
    assert entity.schedule([content(name, scheduled_for=due) for name in "aab"]) == [1, 0, 2]
    entity.cancel([1])
    entity.send([content("a")])
    assert entity.counts().total == 1


def test_a_refused_batch_is_not_remembered(harness: EngineHarness):
    entity = harness.queue(replace(UNIQUE, max_size_in_megabytes=1))
    with pytest.raises(QuotaExceeded):
        entity.send([content("a"), content("x" * 1024 * 1024)])
    entity.send([content("a")])
    assert entity.counts().active == 1


def test_a_full_entity_still_accepts_duplicates(harness: EngineHarness):
    entity = harness.queue(replace(UNIQUE, max_size_in_megabytes=1))
    whole = content("x" * 1024 * 1024)
    entity.send([whole])
    entity.send([whole])
    assert entity.counts().active == 1


def test_pings_are_not_remembered(entity: QueueEntity):
    entity.send([content("p", ping=True)] * 2)
    assert len(detector_of(entity)) == 0


def test_each_entity_has_its_own_history(harness: EngineHarness, entity: QueueEntity):
    other = harness.queue(replace(UNIQUE, path="others"))
    plain = harness.queue(QueueDescription("plain"))
    for each in (entity, other, plain, plain):
        each.send([content("a")])
    assert [each.counts().active for each in (entity, other, plain)] == [1, 1, 2]


def test_a_topic_drops_duplicates(harness: EngineHarness):
    topic = harness.topic(TopicDescription("delays", requires_duplicate_detection=True))
    subscription = harness.subscription(SubscriptionDescription("delays", "all"))
    for _ in range(2):
        topic.send([content("a")])
    assert topic.schedule([content("a")]) == [0]
    assert subscription.counts().active == 1


def test_identities_outside_the_window_are_removed_from_memory(harness: EngineHarness, entity: QueueEntity):
    for number in range(3 * WINDOW):
        entity.send([content(str(number))])
        harness.advance(1)
    assert len(detector_of(entity)) <= WINDOW


def restart_and_send(persistent: PersistentNamespace, *names: str) -> int:
    """Reopen the namespace, send and commit; return the number of messages in the queue."""
    with persistent.open() as namespace:
        if namespace.list_queues() == ():
            namespace.create_queue(UNIQUE)
        entity = queue_of(namespace, UNIQUE.path)
        entity.send([content(name) for name in names])
        namespace.commit()
        return entity.counts().active


def stored_identities(persistent: PersistentNamespace) -> int:
    with closing(sqlite3.connect(persistent.path)) as database:
        [count] = database.execute("SELECT count(*) FROM seen").fetchone()
        return int(count)


def test_duplicates_are_detected_across_a_restart(persistent: PersistentNamespace):
    assert restart_and_send(persistent, "a") == 1
    persistent.clock.advance(WINDOW - 1)
    assert restart_and_send(persistent, "a", "b") == 2
    persistent.clock.advance(1)
    assert restart_and_send(persistent, "a", "b") == 3


def test_identities_outside_the_window_are_removed_from_disk(persistent: PersistentNamespace):
    restart_and_send(persistent, *(str(number) for number in range(1500)))
    persistent.clock.advance(WINDOW)
    restart_and_send(persistent, "a")
    assert stored_identities(persistent) == 1


def test_the_history_of_a_deleted_entity_is_removed(persistent: PersistentNamespace):
    restart_and_send(persistent, "a")
    with persistent.open() as namespace:
        namespace.delete_queue(UNIQUE.path)
    assert stored_identities(persistent) == 0
    assert restart_and_send(persistent, "a") == 1
