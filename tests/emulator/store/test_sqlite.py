"""The SQLite journal: what survives a restart, and upgrades from older versions."""

from __future__ import annotations

import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from servicebus_emulator.engine.model.descriptions import (
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from servicebus_emulator.engine.model.errors import EntityNotFound
from servicebus_emulator.engine.model.timespan import TimeSpan
from servicebus_emulator.engine.namespace.entities import SubQueue
from servicebus_emulator.engine.namespace.namespace import Namespace
from servicebus_emulator.engine.namespace.topics import SubscriptionEntity
from servicebus_emulator.engine.runtime.journal import JournalError
from servicebus_emulator.store.sqlite import SqliteJournal
from tests.emulator.support.engine import PersistentNamespace, content, queue_of, texts, token_of


def _count_transactions(namespace: Namespace, action: Callable[[], None]) -> int:
    started: list[str] = []
    database = namespace._context.journal._database  # type: ignore[attr-defined]
    database.set_trace_callback(lambda statement: started.append(statement) if statement.startswith("BEGIN") else None)
    action()
    return len(started)


def test_messages_are_restored_in_their_state(persistent: PersistentNamespace):
    due = persistent.clock.now() + 60_000
    with persistent.open() as namespace:
        namespace.create_queue(QueueDescription("q", lock_duration=TimeSpan.of(timedelta(minutes=5))))
        entity = queue_of(namespace)
        entity.send(
            [content(text, time_to_live=90_000) for text in ("ready", "locked", "failed", "deferred", "dead", "done")]
        )
        entity.schedule([content("scheduled", scheduled_for=due)])
        by_text = {message.content.sections.decode(): message for message in entity.main.receive(6)}
        entity.main.release(token_of(by_text["ready"]))
        entity.main.abandon(token_of(by_text["failed"]))
        entity.main.defer(token_of(by_text["deferred"]))
        entity.main.dead_letter(token_of(by_text["dead"]), reason="why", description=None)
        entity.main.complete(token_of(by_text["done"]))
        namespace.commit()
    with persistent.open() as namespace:
        entity = queue_of(namespace)
        assert entity.counts().active == 4
        received = entity.main.receive(10)
        assert [(*texts([message]), message.delivery_count) for message in received] == [
            ("ready", 0),
            ("locked", 0),
            ("failed", 1),
        ]
        assert texts(entity.main.receive_deferred([4], session_id=None)) == ["deferred"]
        (dead,) = entity.sub_queue(SubQueue.DEAD_LETTER).receive(10)
        assert (dead.sequence_number, dead.dead_letter, dead.content.time_to_live) == (5, ("why", None), 90_000)
        persistent.clock.advance(60)
        assert texts(entity.main.receive(10)) == ["scheduled"]
        persistent.clock.advance(30)
        entity.main.complete(token_of(received[0]))
        assert entity.sequence.last == 8


def test_messages_expire_while_the_process_is_down(persistent: PersistentNamespace):
    with persistent.open() as namespace:
        namespace.create_queue(QueueDescription("q"))
        queue_of(namespace).send([content("x", time_to_live=1000)])
        namespace.commit()
    persistent.clock.advance(1)
    with persistent.open() as namespace:
        assert queue_of(namespace).main.receive(1) == []


def test_sequence_numbers_are_not_reused_after_a_restart(persistent: PersistentNamespace):
    with persistent.open() as namespace:
        namespace.create_queue(QueueDescription("q"))
        queue_of(namespace).send([content("x")])
        queue_of(namespace).main.receive(1, delete=True)
        namespace.commit()
    with persistent.open() as namespace:
        queue_of(namespace).send([content("y")])
        assert queue_of(namespace).main.receive(1)[0].sequence_number == 2


def test_topics_and_sessions_are_restored(persistent: PersistentNamespace):
    with persistent.open() as namespace:
        namespace.create_topic(TopicDescription("t"))
        namespace.create_subscription(SubscriptionDescription("t", "s", requires_session=True))
        topic: Any = namespace.find("t")
        topic.send(
            [content("now", session_id="a"), content("later", session_id="a", scheduled_for=persistent.clock.now() + 5)]
        )
        subscription = namespace.find("t/Subscriptions/s")
        assert isinstance(subscription, SubscriptionEntity)
        subscription.main.accept_session("a")
        subscription.main.set_session_state("a", b"half way")
        namespace.commit()
    with persistent.open() as namespace:
        assert namespace.counts("t").scheduled == 1
        persistent.clock.advance(1)
        namespace.advance()
        again: Any = namespace.find("t/Subscriptions/s")
        lock = again.main.accept_session(None)
        assert again.main.session_state("a") == b"half way"
        assert again.main.session_ids(state_after=persistent.clock.now() - 1001) == ["a"]
        assert again.main.session_ids(state_after=persistent.clock.now() - 1000) == []
        assert texts(again.main.receive(10, session_lock=lock)) == ["now", "later"]


def test_a_deleted_entity_stays_deleted_with_its_messages(persistent: PersistentNamespace):
    with persistent.open() as namespace:
        namespace.create_queue(QueueDescription("q"))
        queue_of(namespace).send([content("x")])
        namespace.delete_queue("q")
    with persistent.open() as namespace:
        with pytest.raises(EntityNotFound):
            namespace.find("q")
        namespace.create_queue(QueueDescription("q"))
        assert queue_of(namespace).counts().total == 0


def test_scheduled_messages_of_a_deleted_topic_are_deleted(persistent: PersistentNamespace):
    with persistent.open() as namespace:
        namespace.create_topic(TopicDescription("t"))
        namespace.create_subscription(SubscriptionDescription("t", "s"))
        topic: Any = namespace.find("t")
        topic.send([content("later", scheduled_for=persistent.clock.now() + 5)])
        namespace.take_effects()
        namespace.delete(TopicDescription("t"))
        persistent.clock.advance(1)
        namespace.advance()
        namespace.take_effects()
        assert namespace.next_due() is None
        namespace.commit()
    with persistent.open() as namespace:
        assert namespace.list_topics() == ()


def test_uncommitted_changes_are_lost(persistent: PersistentNamespace):
    with persistent.open() as namespace:
        namespace.create_queue(QueueDescription("q"))
        queue_of(namespace).send([content("x")])
    with persistent.open() as namespace:
        assert queue_of(namespace).counts().total == 0


def test_a_file_in_use_is_refused(persistent: PersistentNamespace):
    with persistent.open() as namespace:
        namespace.create_queue(QueueDescription("q"))
        with pytest.raises(JournalError, match="another process"):
            SqliteJournal(persistent.path)


def test_a_file_of_another_kind_is_refused(tmp_path: Path):
    path = tmp_path / "contoso.sqlite"
    path.write_bytes(b"no database" * 1000)
    with pytest.raises(JournalError, match="cannot be opened"):
        SqliteJournal(path)


def test_only_the_owner_can_read_the_file(persistent: PersistentNamespace):
    with persistent.open():
        assert stat.S_IMODE(persistent.path.stat().st_mode) == 0o600


@pytest.mark.parametrize("count", [1, 500])
def test_a_batch_is_one_transaction(persistent: PersistentNamespace, count: int):
    with persistent.open() as namespace:
        namespace.create_queue(QueueDescription("q"))
        queue_of(namespace).send([content("x")] * count)
        started = _count_transactions(namespace, namespace.commit)
    assert started == 1


def test_modified_content_survives_a_restart(persistent: PersistentNamespace):
    with persistent.open() as namespace:
        namespace.create_queue(QueueDescription("q"))
        queue = queue_of(namespace).main
        queue_of(namespace).send([content("before"), content("other")])
        namespace.commit()
        token = token_of(queue.receive(1)[0])
        queue.modify(token, lambda given: given._replace(sections=b"changed and longer"))
        assert queue.size_in_bytes == len(b"changed and longer" + b"other")
        queue.abandon(token)
        namespace.commit()
    with persistent.open() as namespace:
        (first, second) = queue_of(namespace).main.receive(2)
        assert (texts([first, second]), first.delivery_count) == (["changed and longer", "other"], 1)


DOWNGRADE = (
    "DROP TABLE seen",
    "DROP TABLE access_rule",
    "ALTER TABLE message DROP COLUMN hops",
    "ALTER TABLE message DROP COLUMN died_in",
    "ALTER TABLE session_state DROP COLUMN set_at",
    # A message of a deleted entity, as version 1 left them.
    "CREATE TEMPORARY TABLE orphan AS SELECT * FROM message",
    "UPDATE orphan SET id = id + 1, queue = 4000",
    "INSERT INTO message SELECT * FROM orphan",
    "PRAGMA user_version = 1",
)


def test_a_file_of_version_1_is_upgraded(persistent: PersistentNamespace):
    with persistent.open() as namespace:
        namespace.create_queue(QueueDescription("q"))
        queue_of(namespace).send([content("a")])
        namespace.commit()
    with closing(sqlite3.connect(persistent.path, isolation_level=None)) as database:
        for statement in DOWNGRADE:
            database.execute(statement)
    with persistent.open() as namespace:
        assert queue_of(namespace).counts().total == 1


def test_a_file_of_a_newer_version_is_refused(persistent: PersistentNamespace):
    with persistent.open():
        pass
    with closing(sqlite3.connect(persistent.path)) as database:
        database.execute("PRAGMA user_version = 99")
    with pytest.raises(JournalError, match="version 99"), persistent.open():
        pass
