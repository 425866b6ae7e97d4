"""The schema of the SQLite file, as a list of migrations."""

from __future__ import annotations

from typing import Final

_INITIAL: Final = """
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
_DUPLICATE_DETECTION: Final = """
    CREATE TABLE seen (
        entity INTEGER NOT NULL, identity BLOB NOT NULL, seen_at INTEGER NOT NULL, PRIMARY KEY (entity, identity)
    ) STRICT, WITHOUT ROWID;
"""
_FORWARDING: Final = """
    ALTER TABLE message ADD COLUMN hops INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE message ADD COLUMN died_in TEXT;
"""
_SESSION_STATE_TIMES: Final = "ALTER TABLE session_state ADD COLUMN set_at INTEGER NOT NULL DEFAULT 0;"
# Earlier versions stored messages that a deleted topic published from its schedule.
_ORPHANED_MESSAGES: Final = "DELETE FROM message WHERE queue / 4 NOT IN (SELECT key FROM entity);"
_ACCESS_POLICIES: Final = """
    CREATE TABLE access_rule (
        name TEXT PRIMARY KEY COLLATE NOCASE, rights TEXT NOT NULL,
        primary_key TEXT NOT NULL, secondary_key TEXT NOT NULL, created TEXT NOT NULL, modified TEXT NOT NULL
    ) STRICT, WITHOUT ROWID;
"""

MIGRATIONS: Final = (
    _INITIAL,
    _DUPLICATE_DETECTION,
    _FORWARDING,
    _SESSION_STATE_TIMES,
    _ORPHANED_MESSAGES,
    _ACCESS_POLICIES,
)
"""The n-th migration upgrades a file to version n. Existing migrations must never change."""
