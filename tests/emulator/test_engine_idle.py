"""Issue 3: an entity that nobody uses for the time it names is deleted."""

from __future__ import annotations

import logging
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from servicebus_emulator.engine.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from servicebus_emulator.engine.errors import EntityNotFound
from servicebus_emulator.engine.namespace import Namespace
from servicebus_emulator.engine.timespan import TimeSpan
from servicebus_emulator.store.sqlite import SqliteJournal
from tests.emulator.broker import Bench, content
from tests.emulator.clock import ManualClock

IDLE = 300
SPAN = TimeSpan.of(timedelta(seconds=IDLE))
QUEUE = QueueDescription("q", auto_delete_on_idle=SPAN)


def exists(bench: Bench, path: str) -> bool:
    try:
        bench.namespace.find(path)
    except EntityNotFound:
        return False
    return True


def test_an_idle_queue_is_deleted_on_time_and_others_are_not(bench: Bench, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO)
    bench.queue(QUEUE)
    bench.queue(QueueDescription("other"))
    bench.go_on(IDLE - 1)
    assert exists(bench, "q")
    bench.go_on(1)
    assert not exists(bench, "q")
    assert exists(bench, "other")
    assert "namespace contoso: deleted q, idle for PT5M" in caplog.messages


def test_use_puts_the_end_off_and_sending_to_a_queue_is_no_use(bench: Bench):
    entity = bench.queue(QUEUE)
    bench.go_on(IDLE - 1)
    entity.touch()
    bench.go_on(IDLE - 1)
    entity.send([content("x")])
    assert exists(bench, "q")
    bench.go_on(1)
    assert not exists(bench, "q")


def test_a_queue_with_a_receiver_is_not_idle(bench: Bench):
    entity = bench.queue(QUEUE)
    bench.namespace.idle.in_use = lambda key: key == entity.key
    bench.go_on(10 * IDLE)
    assert exists(bench, "q")
    bench.namespace.idle.in_use = lambda _: False
    bench.go_on(IDLE)
    assert not exists(bench, "q")


def test_a_queue_that_waits_for_a_scheduled_message_is_not_idle(bench: Bench):
    entity = bench.queue(QUEUE)
    entity.schedule([content("x", scheduled_for=bench.clock.now() + 2 * IDLE * 1000)])
    bench.go_on(IDLE)
    assert exists(bench, "q")
    bench.go_on(IDLE)
    bench.go_on(IDLE)
    assert not exists(bench, "q")


def test_a_queue_that_passes_messages_on_is_not_idle(bench: Bench):
    bench.queue(QueueDescription("last"))
    entity = bench.queue(replace(QUEUE, forward_to="last"))
    bench.go_on(IDLE - 1)
    entity.send([content("x")])
    bench.go_on(IDLE - 1)
    assert exists(bench, "q")


def test_a_new_description_begins_and_ends_the_watch(bench: Bench):
    bench.queue(QueueDescription("q"))
    bench.go_on(IDLE)
    bench.namespace.update_queue(QUEUE)
    bench.go_on(IDLE - 1)
    bench.namespace.update_queue(QueueDescription("q"))
    bench.go_on(10 * IDLE)
    assert exists(bench, "q")
    bench.namespace.update_queue(QUEUE)
    bench.go_on(IDLE)
    assert not exists(bench, "q")


def test_a_queue_created_anew_has_a_time_of_its_own(bench: Bench):
    bench.queue(QUEUE)
    bench.go_on(IDLE - 1)
    bench.namespace.delete_queue("q")
    bench.queue(QUEUE)
    bench.go_on(IDLE - 1)
    assert exists(bench, "q")


def test_a_topic_is_in_use_while_it_is_sent_to_or_a_subscription_is_received_from(bench: Bench):
    topic = bench.topic(TopicDescription("t", auto_delete_on_idle=SPAN))
    subscription = bench.subscription(SubscriptionDescription("t", "s"))
    bench.go_on(IDLE - 1)
    topic.send([content("x")])
    bench.go_on(IDLE - 1)
    subscription.touch()
    bench.go_on(IDLE - 1)
    assert exists(bench, "t")
    bench.go_on(1)
    assert not exists(bench, "t/Subscriptions/s")


def test_a_subscription_that_nobody_receives_from_is_deleted_though_messages_arrive(bench: Bench):
    topic = bench.topic(TopicDescription("t"))
    bench.subscription(SubscriptionDescription("t", "s", auto_delete_on_idle=SPAN))
    for _ in range(IDLE):
        topic.send([content("x")])
        bench.go_on(1)
    assert not exists(bench, "t/Subscriptions/s")
    assert exists(bench, "t")


def test_the_time_while_nothing_runs_does_not_count(tmp_path: Path):
    clock, path = ManualClock(), tmp_path / "contoso.sqlite"
    with closing(SqliteJournal(path)) as journal:
        Namespace("contoso", clock=clock, journal=journal, snapshot=journal.snapshot()).create_queue(QUEUE)
    clock.go_on(10 * IDLE)
    for left, after in ((1, IDLE - 1), (0, 1)):
        with closing(SqliteJournal(path)) as journal:
            namespace = Namespace("contoso", clock=clock, journal=journal, snapshot=journal.snapshot())
            namespace.take_effects()
            clock.go_on(after if left == 1 else IDLE)
            namespace.advance()
            assert len(namespace.list_queues()) == left
