"""Issue 3: duplicate detection: a message seen within the window is accepted and dropped."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from servicebus_emulator.engine.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from servicebus_emulator.engine.entities import QueueEntity
from servicebus_emulator.engine.errors import QuotaExceeded
from servicebus_emulator.engine.history import History
from servicebus_emulator.engine.journal import JournalError
from servicebus_emulator.engine.namespace import Namespace
from servicebus_emulator.engine.timespan import TimeSpan
from servicebus_emulator.store.sqlite import SqliteJournal
from tests.emulator.broker import Bench, content, texts, token_of
from tests.emulator.clock import ManualClock

WINDOW = 60
UNIQUE = QueueDescription(
    "flights",
    requires_duplicate_detection=True,
    duplicate_detection_history_time_window=TimeSpan.of(timedelta(seconds=WINDOW)),
)


@pytest.fixture
def entity(bench: Bench) -> QueueEntity:
    return bench.queue(UNIQUE)


def history_of(entity: QueueEntity) -> History:
    assert entity.reception.history is not None
    return entity.reception.history


def test_a_duplicate_is_dropped_even_when_the_first_is_done_with(entity: QueueEntity):
    entity.send([content("a")])
    entity.main.complete(token_of(entity.main.take(1)[0]))
    entity.send([content("a"), content("b")])
    assert texts(entity.main.take(10)) == ["b"]


def test_a_duplicate_within_one_batch_is_dropped(entity: QueueEntity):
    entity.send([content("a"), content("b"), content("a")])
    assert [(message.number, *texts([message])) for message in entity.main.take(10)] == [(1, "a"), (2, "b")]


def test_an_id_is_forgotten_when_the_window_has_passed_since_it_was_first_seen(bench: Bench, entity: QueueEntity):
    entity.send([content("a")])
    bench.go_on(WINDOW - 1)
    entity.send([content("a")])
    assert entity.counts().active == 1
    bench.go_on(1)
    entity.send([content("a")])
    assert entity.counts().active == 2


def test_a_shorter_window_applies_to_what_was_seen_before(bench: Bench, entity: QueueEntity):
    entity.send([content("a")])
    shorter = TimeSpan.of(timedelta(seconds=10))
    bench.namespace.update_queue(replace(UNIQUE, duplicate_detection_history_time_window=shorter))
    bench.go_on(10)
    entity.send([content("a")])
    assert entity.counts().active == 2


def test_a_scheduled_message_is_remembered_at_once_and_a_duplicate_has_no_number(bench: Bench, entity: QueueEntity):
    due = bench.clock.now() + 5000
    assert entity.schedule([content(name, scheduled_for=due) for name in "aab"]) == [1, 0, 2]
    entity.cancel([1])
    entity.send([content("a")])
    assert entity.counts().total == 1


def test_a_refused_batch_leaves_nothing_to_remember(bench: Bench):
    entity = bench.queue(replace(UNIQUE, max_size_in_megabytes=1))
    with pytest.raises(QuotaExceeded):
        entity.send([content("a"), content("x" * 1024 * 1024)])
    entity.send([content("a")])
    assert entity.counts().active == 1


def test_a_full_entity_still_accepts_duplicates(bench: Bench):
    entity = bench.queue(replace(UNIQUE, max_size_in_megabytes=1))
    whole = content("x" * 1024 * 1024)
    entity.send([whole])
    entity.send([whole])
    assert entity.counts().active == 1


def test_pings_are_never_duplicates(entity: QueueEntity):
    entity.send([content("p", ping=True)] * 2)
    assert len(history_of(entity)) == 0


def test_each_entity_remembers_for_itself(bench: Bench, entity: QueueEntity):
    other = bench.queue(replace(UNIQUE, path="others"))
    plain = bench.queue(QueueDescription("plain"))
    for each in (entity, other, plain, plain):
        each.send([content("a")])
    assert [each.counts().active for each in (entity, other, plain)] == [1, 1, 2]


def test_a_topic_passes_on_a_duplicate_to_nobody(bench: Bench):
    topic = bench.topic(TopicDescription("delays", requires_duplicate_detection=True))
    subscription = bench.subscription(SubscriptionDescription("delays", "all"))
    for _ in range(2):
        topic.send([content("a")])
    assert topic.schedule([content("a")]) == [0]
    assert subscription.counts().active == 1


def test_the_history_is_as_long_as_the_window_and_no_longer(bench: Bench, entity: QueueEntity):
    for number in range(3 * WINDOW):
        entity.send([content(str(number))])
        bench.go_on(1)
    assert len(history_of(entity)) <= WINDOW


class Disk:
    """A namespace with one queue, as it is after each restart."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = ManualClock()

    def send(self, *names: str) -> int:
        """Start, send, commit, stop without any farewell; return how many messages there are."""
        with closing(SqliteJournal(self.path)) as journal:
            namespace = Namespace("contoso", clock=self.clock, journal=journal, snapshot=journal.snapshot())
            if namespace.list_queues() == ():
                namespace.create_queue(UNIQUE)
            entity = namespace.find(UNIQUE.path)
            entity.send([content(name) for name in names])
            namespace.commit()
            return entity.counts().active

    def rows(self) -> int:
        with closing(sqlite3.connect(self.path)) as database:
            return database.execute("SELECT count(*) FROM seen").fetchone()[0]


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path / "contoso.sqlite")


def test_a_duplicate_is_known_after_a_restart_and_forgotten_in_time(disk: Disk):
    assert disk.send("a") == 1
    disk.clock.go_on(WINDOW - 1)
    assert disk.send("a", "b") == 2
    disk.clock.go_on(1)
    assert disk.send("a", "b") == 3


def test_what_is_forgotten_leaves_the_disk_too(disk: Disk):
    disk.send(*(str(number) for number in range(1500)))
    disk.clock.go_on(WINDOW)
    disk.send("a")
    assert disk.rows() == 1


def test_a_deleted_entity_leaves_no_history_behind(disk: Disk):
    disk.send("a")
    with closing(SqliteJournal(disk.path)) as journal:
        Namespace("contoso", clock=disk.clock, journal=journal, snapshot=journal.snapshot()).delete_queue(UNIQUE.path)
    assert disk.rows() == 0
    assert disk.send("a") == 1


def test_a_file_of_the_first_version_still_opens_and_one_of_the_future_does_not(disk: Disk):
    disk.send("a")
    with closing(sqlite3.connect(disk.path, isolation_level=None)) as database:
        for change in (
            "DROP TABLE seen",
            "DROP TABLE access_rule",
            "ALTER TABLE message DROP COLUMN hops",
            "ALTER TABLE message DROP COLUMN died_in",
            "ALTER TABLE session_state DROP COLUMN set_at",
            # Of an entity that is gone: such rows were left by version 1.
            "CREATE TEMPORARY TABLE stray AS SELECT * FROM message",
            "UPDATE stray SET id = id + 1, queue = 4000",
            "INSERT INTO message SELECT * FROM stray",
            "PRAGMA user_version = 1",
        ):
            database.execute(change)
    assert disk.send("b") == 2
    with closing(sqlite3.connect(disk.path)) as database:
        database.execute("PRAGMA user_version = 99")
    with pytest.raises(JournalError, match="version 99"):
        SqliteJournal(disk.path)
