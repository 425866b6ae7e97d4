"""The journal of a namespace in one SQLite file.

What is guaranteed: when a commit has returned, its changes survive the death of the process at any
moment, ``kill -9`` included. The file is in write-ahead mode with ``synchronous=NORMAL``: a commit is
written to the operating system, not forced to the medium, so that a power failure or a crash of the
machine may take back the last commits (as a whole, oldest kept) but never breaks the file. Locks are not
kept: after a restart every message that was in someone's hands waits again, with the deliveries counted
that had failed before.

The file is readable by its owner only, since messages and the keys of entities are in it, and is locked
while it is open: a second process is refused.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from servicebus_emulator.engine.access_rules import AccessRule
from servicebus_emulator.engine.journal import EntityRecord, JournalError, Snapshot
from servicebus_emulator.engine.message import Content, DeadLetterMark, Message, MessageState
from servicebus_emulator.store.describing import dump_access_rule, dump_description, load_access_rule, load_description

__all__ = ["SqliteJournal"]

_FIRST: Final = """
    CREATE TABLE entity (
        key INTEGER PRIMARY KEY, description TEXT NOT NULL,
        created INTEGER NOT NULL, updated INTEGER NOT NULL, accessed INTEGER NOT NULL, last_number INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE message (
        id INTEGER PRIMARY KEY, queue INTEGER NOT NULL, number INTEGER NOT NULL, origin INTEGER NOT NULL,
        state INTEGER NOT NULL, delivery_count INTEGER NOT NULL,
        enqueued_at INTEGER NOT NULL, expires_at INTEGER, due INTEGER,
        dead INTEGER NOT NULL, reason TEXT, reason_description TEXT,
        header BLOB NOT NULL, annotations BLOB NOT NULL, annotation_count INTEGER NOT NULL, sections BLOB NOT NULL,
        time_to_live INTEGER, scheduled_for INTEGER, session_id TEXT
    ) STRICT;
    CREATE TABLE session_state (
        queue INTEGER NOT NULL, session_id TEXT NOT NULL, state BLOB NOT NULL, PRIMARY KEY (queue, session_id)
    ) STRICT, WITHOUT ROWID;
"""
_DUPLICATES: Final = """
    CREATE TABLE seen (
        entity INTEGER NOT NULL, identity BLOB NOT NULL, seen_at INTEGER NOT NULL, PRIMARY KEY (entity, identity)
    ) STRICT, WITHOUT ROWID;
"""
_FORWARDING: Final = """
    ALTER TABLE message ADD COLUMN hops INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE message ADD COLUMN died_in TEXT;
"""
_STATE_TIMES: Final = "ALTER TABLE session_state ADD COLUMN set_at INTEGER NOT NULL DEFAULT 0;"
# Deleted topics used to pass on what was scheduled in them; such messages belong to nobody.
_STRAYS: Final = "DELETE FROM message WHERE queue / 4 NOT IN (SELECT key FROM entity);"
_ACCESS_RULES: Final = """
    CREATE TABLE access_rule (
        name TEXT PRIMARY KEY COLLATE NOCASE, rights TEXT NOT NULL,
        primary_key TEXT NOT NULL, secondary_key TEXT NOT NULL, created TEXT NOT NULL, modified TEXT NOT NULL
    ) STRICT, WITHOUT ROWID;
"""
# Each step makes the next version of the file, so that older ones can be read; none is ever changed.
_STEPS: Final = (_FIRST, _DUPLICATES, _FORWARDING, _STATE_TIMES, _STRAYS, _ACCESS_RULES)
_COLUMNS: Final = (
    "id, queue, number, origin, state, delivery_count, enqueued_at, expires_at, due, dead, reason, reason_description,"
    " hops, died_in, header, annotations, annotation_count, sections, time_to_live, scheduled_for, session_id"
)
_INSERT: Final = f"INSERT INTO message ({_COLUMNS}) VALUES ({', '.join('?' * 21)})"  # noqa: S608 - constants
# Of a message that is only what was sent, which is almost every one: binding a value costs as much as storing it.
_INSERT_SENT: Final = (
    "INSERT INTO message (id, queue, number, origin, state, delivery_count, enqueued_at, expires_at, dead, header,"
    " annotations, annotation_count, sections, time_to_live, session_id)"
    " VALUES (?, ?, ?, ?, 0, 0, ?, ?, 0, ?, ?, ?, ?, ?, ?)"
)
_UPDATE: Final = (
    "UPDATE message SET queue = ?, number = ?, state = ?, delivery_count = ?, enqueued_at = ?, expires_at = ?, due = ?,"
    " dead = ?, reason = ?, reason_description = ? WHERE id = ?"
)
_SELECT: Final = f"SELECT {_COLUMNS} FROM message ORDER BY queue, number"  # noqa: S608 - constants


class SqliteJournal:
    """Keeps a namespace in a file. See the module for what is guaranteed.

    Changes are collected and written by :meth:`commit` in one transaction; a message that comes and goes
    between two commits is never written.

    :ivar commits: how many transactions were written.
    :ivar commit_seconds: how long that took altogether.
    :param path: the file; it is made when it does not exist, its folder too.
    :raises JournalError: when it cannot be opened, is in use, or is of another version.
    """

    is_durable = True

    def __init__(self, path: Path) -> None:
        self.commits = 0
        self.commit_seconds = 0.0
        self._path = path
        self._added: dict[int, tuple[int, Message]] = {}
        self._changed: dict[int, tuple[int, Message]] = {}
        self._removed: list[tuple[int]] = []
        self._used: dict[int, tuple[int, int]] = {}
        self._seen: list[tuple[int, bytes, int]] = []
        self._others: list[tuple[str, tuple[int | str | bytes, ...]]] = []
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(mode=0o600)
            self._database = sqlite3.connect(path, isolation_level=None, timeout=1)
            self._prepare()
        except OSError as error:
            raise JournalError(
                f"{path} cannot be opened: {error}; allowed: a folder that this process can write to"
            ) from error
        except sqlite3.Error as error:
            raise JournalError(
                f"{path} cannot be opened: {error}; is another process using the same --data folder?"
            ) from error

    def close(self) -> None:
        """Close the file. What was not committed is lost."""
        self._database.close()

    def destroy(self) -> None:
        """Remove the file, which is closed, with all that it remembers."""
        for suffix in ("", "-wal", "-shm"):
            self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)

    def snapshot(self) -> Snapshot:
        """Return all that the file remembers. Messages are read while they are iterated over."""
        entities = tuple(
            EntityRecord(
                key=key,
                description=load_description(description),
                created=created,
                updated=updated,
                accessed=accessed,
                last_number=last_number,
            )
            for key, description, created, updated, accessed, last_number in self._database.execute(
                "SELECT key, description, created, updated, accessed, last_number FROM entity ORDER BY key"
            )
        )
        states = self._database.execute("SELECT queue, session_id, state, set_at FROM session_state")
        seen = self._database.execute("SELECT entity, identity, seen_at FROM seen ORDER BY seen_at")
        return Snapshot(
            entities=entities,
            messages=self._messages(),
            session_states=states.fetchall(),
            seen=seen.fetchall(),
            last_row=self._last_row(),
            access_rules=tuple(map(load_access_rule, self._database.execute("SELECT * FROM access_rule"))),
        )

    # Notes

    def add(self, queue: int, message: Message) -> None:
        """Note a new message of a queue."""
        self._added[message.row] = (queue, message)

    def add_all(self, queue: int, messages: Iterable[Message]) -> None:
        """Note new messages of a queue."""
        self._added.update((message.row, (queue, message)) for message in messages)

    def change(self, queue: int, message: Message) -> None:
        """Note that a message changed, or that it is in this queue now."""
        (self._added if message.row in self._added else self._changed)[message.row] = (queue, message)

    def remove(self, message: Message) -> None:
        """Note that a message is gone."""
        if self._added.pop(message.row, None) is None:
            self._changed.pop(message.row, None)
            self._removed.append((message.row,))

    def set_session_state(self, queue: int, session_id: str, state: bytes | None, *, at: int) -> None:
        """Note the state of a session; None removes it."""
        if state is None:
            self._others.append(("DELETE FROM session_state WHERE queue = ? AND session_id = ?", (queue, session_id)))
        else:
            values = (queue, session_id, state, at)
            self._others.append(("INSERT OR REPLACE INTO session_state VALUES (?, ?, ?, ?)", values))

    def remember(self, entity: int, identity: bytes, *, seen_at: int) -> None:
        """Note that an entity which detects duplicates took in a message."""
        self._seen.append((entity, identity, seen_at))

    def forget(self, entity: int, *, until: int) -> None:
        """Note that what an entity took in until then no longer matters."""
        self._others.append(("DELETE FROM seen WHERE entity = ? AND seen_at <= ?", (entity, until)))

    def save_entity(self, record: EntityRecord) -> None:
        """Note a new or changed entity."""
        self._others.append(
            (
                "INSERT OR REPLACE INTO entity VALUES (?, ?, ?, ?, ?, ?)",
                (
                    record.key,
                    dump_description(record.description),
                    record.created,
                    record.updated,
                    record.accessed,
                    record.last_number,
                ),
            )
        )

    def drop_entity(self, key: int, *, queues: Iterable[int]) -> None:
        """Note that an entity is gone, with all messages of its queues."""
        gone = frozenset(queues)
        for notes in (self._added, self._changed):
            for row in [row for row, (queue, _) in notes.items() if queue in gone]:
                del notes[row]
        self._used.pop(key, None)
        self._seen = [each for each in self._seen if each[0] != key]
        self._others.append(("DELETE FROM entity WHERE key = ?", (key,)))
        self._others.append(("DELETE FROM seen WHERE entity = ?", (key,)))
        for queue in sorted(gone):
            self._others.append(("DELETE FROM message WHERE queue = ?", (queue,)))
            self._others.append(("DELETE FROM session_state WHERE queue = ?", (queue,)))

    def use_entity(self, key: int, *, last_number: int, accessed: int) -> None:
        """Note the last sequence number given out and the time of use."""
        self._used[key] = (last_number, accessed)

    def save_access_rule(self, rule: AccessRule) -> None:
        """Note a new or changed shared access rule of the namespace."""
        self._others.append(("INSERT OR REPLACE INTO access_rule VALUES (?, ?, ?, ?, ?, ?)", dump_access_rule(rule)))

    def drop_access_rule(self, name: str) -> None:
        """Note that a shared access rule of the namespace is gone."""
        self._others.append(("DELETE FROM access_rule WHERE name = ?", (name,)))

    def commit(self) -> None:
        """Make lasting what was noted, in one transaction.

        :raises JournalError: when that failed; then nothing of it lasts.
        """
        if not (self._added or self._changed or self._removed or self._used or self._seen or self._others):
            return
        begun = time.perf_counter()
        try:
            self._write()
        except sqlite3.Error as error:
            raise JournalError(f"{self._path} cannot be written: {error}") from error
        self.commits += 1
        self.commit_seconds += time.perf_counter() - begun
        for notes in (self._added, self._changed, self._used):
            notes.clear()
        for done in (self._removed, self._seen, self._others):
            done.clear()

    # Steps

    def _write(self) -> None:
        database = self._database
        database.execute("BEGIN IMMEDIATE")
        try:
            for statement, values in self._others:
                database.execute(statement, values)
            sent = {row: note for row, note in self._added.items() if _is_as_sent(note[1])}
            database.executemany(_INSERT_SENT, map(_sent_row_of, sent.values()))
            if len(sent) < len(self._added):
                others = (note for row, note in self._added.items() if row not in sent)
                database.executemany(_INSERT, map(_row_of, others))
            database.executemany(_UPDATE, map(_changes_of, self._changed.values()))
            database.executemany("DELETE FROM message WHERE id = ?", self._removed)
            database.executemany(
                "UPDATE entity SET last_number = ?, accessed = ? WHERE key = ?",
                ((number, accessed, key) for key, (number, accessed) in self._used.items()),
            )
            database.executemany("INSERT OR REPLACE INTO seen VALUES (?, ?, ?)", self._seen)
            database.execute("COMMIT")
        except sqlite3.Error:
            if database.in_transaction:
                database.execute("ROLLBACK")
            raise

    def _prepare(self) -> None:
        database = self._database
        # Exclusive: the lock is held while the file is open, and no shared-memory file is needed.
        database.execute("PRAGMA locking_mode = EXCLUSIVE")
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = NORMAL")
        version = database.execute("PRAGMA user_version").fetchone()[0]
        if version > len(_STEPS):
            raise JournalError(
                f"{self._path} is of version {version}; this program reads versions up to {len(_STEPS)}:"
                " choose another folder"
            )
        if version < len(_STEPS):
            steps = "".join(_STEPS[version:])
            database.executescript(f"BEGIN IMMEDIATE; {steps} PRAGMA user_version = {len(_STEPS)}; COMMIT;")

    def _messages(self) -> Iterator[tuple[int, Message]]:
        return map(_message_of, self._database.execute(_SELECT))

    def _last_row(self) -> int:
        highest: int | None = self._database.execute("SELECT max(id) FROM message").fetchone()[0]
        return 0 if highest is None else highest


def _is_as_sent(message: Message) -> bool:
    """Tell whether a message is in the state in which messages arrive, and always was."""
    return (
        message.state is MessageState.ACTIVE
        and message.delivery_count == 0
        and message.dead_letter is None
        and message.hops == 0
        and message.content.scheduled_for is None
        and message.due is None
        and message.died_in is None
    )


def _sent_row_of(note: tuple[int, Message]) -> tuple[int | str | bytes | None, ...]:
    queue, message = note
    header, annotations, annotation_count, sections, time_to_live, _, session_id, _ = message.content
    return (
        message.row,
        queue,
        message.number,
        message.origin,
        message.enqueued_at,
        message.expires_at,
        header,
        annotations,
        annotation_count,
        sections,
        time_to_live,
        session_id,
    )


def _row_of(note: tuple[int, Message]) -> tuple[int | str | bytes | None, ...]:
    queue, message = note
    content = message.content
    return (
        message.row,
        queue,
        message.number,
        message.origin,
        int(message.state),
        message.delivery_count,
        message.enqueued_at,
        message.expires_at,
        message.due,
        *_mark_of(message),
        message.hops,
        message.died_in,
        content.header,
        content.annotations,
        content.annotation_count,
        content.sections,
        content.time_to_live,
        content.scheduled_for,
        content.session_id,
    )


def _changes_of(note: tuple[int, Message]) -> tuple[int | str | None, ...]:
    queue, message = note
    return (
        queue,
        message.number,
        int(message.state),
        message.delivery_count,
        message.enqueued_at,
        message.expires_at,
        message.due,
        *_mark_of(message),
        message.row,
    )


def _mark_of(message: Message) -> tuple[int, str | None, str | None]:
    mark = message.dead_letter
    return (0, None, None) if mark is None else (1, mark.reason, mark.description)


def _message_of(row: tuple[Any, ...]) -> tuple[int, Message]:
    key, queue, number, origin, state, delivery_count, enqueued_at, expires_at, due, dead, reason, why, *content = row
    hops, died_in, header, annotations, annotation_count, sections, time_to_live, scheduled_for, session_id = content
    message = Message(
        row=key,
        number=number,
        content=Content(
            header=header,
            annotations=annotations,
            annotation_count=annotation_count,
            sections=sections,
            time_to_live=time_to_live,
            scheduled_for=scheduled_for,
            session_id=session_id,
            ping=False,
        ),
        enqueued_at=enqueued_at,
        expires_at=expires_at,
        due=due,
        origin=origin,
        state=MessageState(state),
        delivery_count=delivery_count,
        dead_letter=DeadLetterMark(reason, why) if dead == 1 else None,
        hops=hops,
        died_in=died_in,
    )
    return queue, message
