"""What the broker tells its memory on disk, and what it hears from it after a restart."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from servicebus_emulator.engine.access_rules import AccessRule
from servicebus_emulator.engine.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from servicebus_emulator.engine.message import Message

__all__ = ["Description", "EntityRecord", "Journal", "JournalError", "MemoryJournal", "Snapshot"]

Description = QueueDescription | TopicDescription | SubscriptionDescription


class JournalError(Exception):
    """The state cannot be written or read; what was not yet confirmed must not be confirmed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityRecord:
    """An entity as it is kept. Times in milliseconds since 1970.

    :ivar last_number: the last sequence number given out.
    """

    key: int
    description: Description
    created: int
    updated: int
    accessed: int
    last_number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """All that a journal remembers of a namespace.

    :ivar messages: pairs of queue key and message, by queue and sequence number.
    :ivar session_states: queue key, session id, state, and the time at which it was set.
    :ivar seen: triples of entity key, message identity and time at which it was seen, in order of time.
    :ivar access_rules: the shared access rules of the namespace itself; those of entities are in their descriptions.
    """

    entities: tuple[EntityRecord, ...] = ()
    messages: Iterable[tuple[int, Message]] = field(default=())
    session_states: Iterable[tuple[int, str, bytes, int]] = field(default=())
    seen: Iterable[tuple[int, bytes, int]] = field(default=())
    last_row: int = 0
    access_rules: tuple[AccessRule, ...] = ()


class Journal(Protocol):
    """Takes note of changes and makes them last when asked to.

    Nothing is durable before :meth:`commit` has returned; a commit is all or nothing.
    """

    @property
    def is_durable(self) -> bool:
        """Whether anything outlasts the process."""
        ...

    def add(self, queue: int, message: Message) -> None:
        """Note a new message of a queue."""
        ...

    def add_all(self, queue: int, messages: Iterable[Message]) -> None:
        """Note new messages of a queue."""
        ...

    def change(self, queue: int, message: Message) -> None:
        """Note that a message changed, or that it is in this queue now."""
        ...

    def remove(self, message: Message) -> None:
        """Note that a message is gone."""
        ...

    def set_session_state(self, queue: int, session_id: str, state: bytes | None, *, at: int) -> None:
        """Note the state of a session; None removes it."""
        ...

    def remember(self, entity: int, identity: bytes, *, seen_at: int) -> None:
        """Note that an entity which detects duplicates took in a message."""
        ...

    def forget(self, entity: int, *, until: int) -> None:
        """Note that what an entity took in until then no longer matters."""
        ...

    def save_entity(self, record: EntityRecord) -> None:
        """Note a new or changed entity."""
        ...

    def drop_entity(self, key: int, *, queues: Iterable[int]) -> None:
        """Note that an entity is gone, with all messages of its queues."""
        ...

    def use_entity(self, key: int, *, last_number: int, accessed: int) -> None:
        """Note the last sequence number given out and the time of use."""
        ...

    def save_access_rule(self, rule: AccessRule) -> None:
        """Note a new or changed shared access rule of the namespace."""
        ...

    def drop_access_rule(self, name: str) -> None:
        """Note that a shared access rule of the namespace is gone."""
        ...

    def commit(self) -> None:
        """Make lasting what was noted.

        :raises JournalError: when that failed; then nothing of it lasts.
        """
        ...


class MemoryJournal:
    """The journal of a namespace that lives in memory only: it keeps nothing."""

    is_durable = False

    def add(self, queue: int, message: Message) -> None:
        """Keep nothing."""

    def add_all(self, queue: int, messages: Iterable[Message]) -> None:
        """Keep nothing."""

    def change(self, queue: int, message: Message) -> None:
        """Keep nothing."""

    def remove(self, message: Message) -> None:
        """Keep nothing."""

    def set_session_state(self, queue: int, session_id: str, state: bytes | None, *, at: int) -> None:
        """Keep nothing."""

    def remember(self, entity: int, identity: bytes, *, seen_at: int) -> None:
        """Keep nothing."""

    def forget(self, entity: int, *, until: int) -> None:
        """Keep nothing."""

    def save_entity(self, record: EntityRecord) -> None:
        """Keep nothing."""

    def drop_entity(self, key: int, *, queues: Iterable[int]) -> None:
        """Keep nothing."""

    def use_entity(self, key: int, *, last_number: int, accessed: int) -> None:
        """Keep nothing."""

    def save_access_rule(self, rule: AccessRule) -> None:
        """Keep nothing."""

    def drop_access_rule(self, name: str) -> None:
        """Keep nothing."""

    def commit(self) -> None:
        """Do nothing."""
