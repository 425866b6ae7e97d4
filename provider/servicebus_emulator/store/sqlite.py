"""The journal of a namespace in one SQLite file.

Durability: after a commit returns, its changes survive the death of the process, including ``kill -9``. The file uses
write-ahead logging with ``synchronous=NORMAL``: a commit is written to the operating system but not forced to disk, so
a power failure may lose the latest commits as a whole, but never corrupts the file. Locks are not persisted: after a
restart, locked messages are ready again and keep their delivery count.

The file contains messages and keys and is therefore readable by its owner only. It is locked while open; a second
process is refused.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable
from pathlib import Path

from servicebus_emulator.engine.model.access_policy import SharedAccessPolicy
from servicebus_emulator.engine.model.message import Message
from servicebus_emulator.engine.runtime.journal import EntityRecord, Journal, JournalError, Snapshot
from servicebus_emulator.store import message_rows
from servicebus_emulator.store.message_rows import QueuedMessage
from servicebus_emulator.store.schema import MIGRATIONS
from servicebus_emulator.store.serialization import (
    dump_access_policy,
    dump_description,
    load_access_policy,
    load_description,
)


class SqliteJournal(Journal):
    """Persists a namespace in a file. See the module for the durability guarantee.

    :meth:`commit` writes the changes in one transaction. A message that is added and removed between two commits is
    never written.

    :param path: the file; it and its folder are created if necessary.
    :ivar commits: the number of transactions written.
    :ivar commit_seconds: the total time of these transactions.
    :raises JournalError: when the file cannot be opened, is in use, or has a newer version.
    """

    is_durable = True

    def __init__(self, path: Path) -> None:
        self.commits = 0
        self.commit_seconds = 0.0
        self._path = path
        self._added: dict[int, QueuedMessage] = {}
        self._updated: dict[int, QueuedMessage] = {}
        self._removed: list[tuple[int]] = []
        self._touched_entities: dict[int, tuple[int, int]] = {}
        self._seen: list[tuple[int, bytes, int]] = []
        self._statements: list[tuple[str, tuple[int | str | bytes, ...]]] = []
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
        """Close the file and discard uncommitted changes."""
        self._database.close()

    def destroy(self) -> None:
        """Delete the file. Close it first."""
        for suffix in ("", "-wal", "-shm"):
            self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)

    def snapshot(self) -> Snapshot:
        """Return the persisted state. Messages are read while they are iterated over."""
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
        last_row_id: int | None = self._database.execute("SELECT max(id) FROM message").fetchone()[0]
        return Snapshot(
            entities=entities,
            messages=map(message_rows.from_row, self._database.execute(message_rows.SELECT)),
            session_states=states.fetchall(),
            seen=seen.fetchall(),
            last_row_id=0 if last_row_id is None else last_row_id,
            access_policies=tuple(map(load_access_policy, self._database.execute("SELECT * FROM access_rule"))),
        )

    # Recording

    def add(self, queue: int, message: Message) -> None:
        """Record a new message of a queue."""
        self._added[message.row_id] = (queue, message)

    def add_all(self, queue: int, messages: Iterable[Message]) -> None:
        """Record new messages of a queue."""
        self._added.update((message.row_id, (queue, message)) for message in messages)

    def update(self, queue: int, message: Message) -> None:
        """Record a changed message, or its move to this queue."""
        (self._added if message.row_id in self._added else self._updated)[message.row_id] = (queue, message)

    def remove(self, message: Message) -> None:
        """Record the removal of a message."""
        self.remove_all((message,))

    def remove_all(self, messages: Iterable[Message]) -> None:
        """Record the removal of messages."""
        for message in messages:
            if self._added.pop(message.row_id, None) is None:
                self._updated.pop(message.row_id, None)
                self._removed.append((message.row_id,))

    def set_session_state(self, queue: int, session_id: str, state: bytes | None, *, at: int) -> None:
        """Record the state of a session; None removes it."""
        if state is None:
            self._execute_later("DELETE FROM session_state WHERE queue = ? AND session_id = ?", queue, session_id)
        else:
            self._execute_later(
                "INSERT OR REPLACE INTO session_state VALUES (?, ?, ?, ?)", queue, session_id, state, at
            )

    def add_seen(self, entity: int, identity: bytes, *, seen_at: int) -> None:
        """Record the identity of a message for duplicate detection."""
        self._seen.append((entity, identity, seen_at))

    def expire_seen(self, entity: int, *, until: int) -> None:
        """Record that identities seen up to `until` are no longer needed."""
        self._execute_later("DELETE FROM seen WHERE entity = ? AND seen_at <= ?", entity, until)

    def save_entity(self, record: EntityRecord) -> None:
        """Record a new or changed entity."""
        self._execute_later(
            "INSERT OR REPLACE INTO entity VALUES (?, ?, ?, ?, ?, ?)",
            record.key,
            dump_description(record.description),
            record.created,
            record.updated,
            record.accessed,
            record.last_number,
        )

    def delete_entity(self, key: int, *, queues: Iterable[int]) -> None:
        """Record the deletion of an entity and of all messages in its queues."""
        deleted = frozenset(queues)
        for messages in (self._added, self._updated):
            for row_id in [row_id for row_id, (queue, _) in messages.items() if queue in deleted]:
                del messages[row_id]
        self._touched_entities.pop(key, None)
        self._seen = [each for each in self._seen if each[0] != key]
        self._execute_later("DELETE FROM entity WHERE key = ?", key)
        self._execute_later("DELETE FROM seen WHERE entity = ?", key)
        for queue in sorted(deleted):
            self._execute_later("DELETE FROM message WHERE queue = ?", queue)
            self._execute_later("DELETE FROM session_state WHERE queue = ?", queue)

    def touch_entity(self, key: int, *, last_number: int, accessed: int) -> None:
        """Record the last sequence number and the access time of an entity."""
        self._touched_entities[key] = (last_number, accessed)

    def save_access_policy(self, policy: SharedAccessPolicy) -> None:
        """Record a new or changed shared access policy of the namespace."""
        self._execute_later("INSERT OR REPLACE INTO access_rule VALUES (?, ?, ?, ?, ?, ?)", *dump_access_policy(policy))

    def delete_access_policy(self, name: str) -> None:
        """Record the deletion of a shared access policy of the namespace."""
        self._execute_later("DELETE FROM access_rule WHERE name = ?", name)

    def commit(self) -> None:
        """Persist the recorded changes in one transaction.

        :raises JournalError: when that fails; then none of them is persisted.
        """
        if not (
            self._added or self._updated or self._removed or self._touched_entities or self._seen or self._statements
        ):
            return
        started = time.perf_counter()
        try:
            self._write()
        except sqlite3.Error as error:
            raise JournalError(f"{self._path} cannot be written: {error}") from error
        self.commits += 1
        self.commit_seconds += time.perf_counter() - started
        for mapping in (self._added, self._updated, self._touched_entities):
            mapping.clear()
        for sequence in (self._removed, self._seen, self._statements):
            sequence.clear()

    # Internals

    def _execute_later(self, statement: str, *values: int | str | bytes) -> None:
        self._statements.append((statement, values))

    def _write(self) -> None:
        database = self._database
        database.execute("BEGIN IMMEDIATE")
        try:
            for statement, values in self._statements:
                database.execute(statement, values)
            new = {row_id: queued for row_id, queued in self._added.items() if message_rows.is_new(queued[1])}
            database.executemany(message_rows.INSERT_NEW, map(message_rows.to_new_values, new.values()))
            if len(new) < len(self._added):
                others = (queued for row_id, queued in self._added.items() if row_id not in new)
                database.executemany(message_rows.INSERT, map(message_rows.to_insert_values, others))
            database.executemany(message_rows.UPDATE, map(message_rows.to_update_values, self._updated.values()))
            database.executemany("DELETE FROM message WHERE id = ?", self._removed)
            database.executemany(
                "UPDATE entity SET last_number = ?, accessed = ? WHERE key = ?",
                ((number, accessed, key) for key, (number, accessed) in self._touched_entities.items()),
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
        if version > len(MIGRATIONS):
            raise JournalError(
                f"{self._path} is of version {version}; this program reads versions up to {len(MIGRATIONS)}:"
                " choose another folder"
            )
        if version < len(MIGRATIONS):
            script = "".join(MIGRATIONS[version:])
            database.executescript(f"BEGIN IMMEDIATE; {script} PRAGMA user_version = {len(MIGRATIONS)}; COMMIT;")
