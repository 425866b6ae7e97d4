"""The journal: the interface through which the engine persists its state."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from servicebus_emulator.engine.model.access_policy import SharedAccessPolicy
from servicebus_emulator.engine.model.descriptions import Description
from servicebus_emulator.engine.model.message import Message


class JournalError(Exception):
    """The state cannot be written or read. Uncommitted changes must not be confirmed to clients."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityRecord:
    """A persisted entity. Times are in milliseconds since 1970.

    :ivar last_number: the last sequence number assigned.
    """

    key: int
    description: Description
    created: int
    updated: int
    accessed: int
    last_number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The persisted state of a namespace. Times are in milliseconds since 1970.

    :ivar messages: pairs of queue key and message, by queue and sequence number.
    :ivar session_states: tuples of queue key, session id, state and the time it was set.
    :ivar seen: tuples of entity key, message identity and arrival time, by time, for duplicate detection.
    :ivar access_policies: the policies of the namespace itself; those of entities are in their descriptions.
    """

    entities: tuple[EntityRecord, ...] = ()
    messages: Iterable[tuple[int, Message]] = field(default=())
    session_states: Iterable[tuple[int, str, bytes, int]] = field(default=())
    seen: Iterable[tuple[int, bytes, int]] = field(default=())
    last_row_id: int = 0
    access_policies: tuple[SharedAccessPolicy, ...] = ()


class Journal:
    """Records changes and persists them on :meth:`commit`, all or none.

    This class persists nothing, for a namespace in memory; its subclasses do.

    :ivar is_durable: whether committed changes survive the process.
    """

    is_durable = False

    def add(self, queue: int, message: Message) -> None:
        """Record a new message of a queue."""

    def add_all(self, queue: int, messages: Iterable[Message]) -> None:
        """Record new messages of a queue."""

    def update(self, queue: int, message: Message) -> None:
        """Record a changed message, or its move to this queue."""

    def remove(self, message: Message) -> None:
        """Record the removal of a message."""

    def remove_all(self, messages: Iterable[Message]) -> None:
        """Record the removal of messages."""

    def set_session_state(self, queue: int, session_id: str, state: bytes | None, *, at: int) -> None:
        """Record the state of a session; None removes it."""

    def add_seen(self, entity: int, identity: bytes, *, seen_at: int) -> None:
        """Record the identity of a message for duplicate detection."""

    def expire_seen(self, entity: int, *, until: int) -> None:
        """Record that identities seen up to `until` are no longer needed."""

    def save_entity(self, record: EntityRecord) -> None:
        """Record a new or changed entity."""

    def delete_entity(self, key: int, *, queues: Iterable[int]) -> None:
        """Record the deletion of an entity and of all messages in its queues."""

    def touch_entity(self, key: int, *, last_number: int, accessed: int) -> None:
        """Record the last sequence number and the access time of an entity."""

    def save_access_policy(self, policy: SharedAccessPolicy) -> None:
        """Record a new or changed shared access policy of the namespace."""

    def delete_access_policy(self, name: str) -> None:
        """Record the deletion of a shared access policy of the namespace."""

    def commit(self) -> None:
        """Persist the recorded changes.

        :raises JournalError: when that fails; then none of them is persisted.
        """
