"""Side effects of operations that the AMQP broker has to act on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from servicebus_emulator.engine.model.session_locks import SessionLock


class TimerDriven(Protocol):
    """A component with work that becomes due as time passes."""

    def __hash__(self) -> int: ...

    def next_due(self) -> int | None:
        """Return when :meth:`advance` next has work to do (milliseconds since 1970), or None."""

    def advance(self) -> None:
        """Do the work that is due."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectBatch:
    """The effects since the previous batch.

    :ivar changed: queues and topics that may have new messages for waiting receivers.
    :ivar invalidated: the keys of entities that were deleted or whose description changed.
    :ivar lost_session_locks: session locks that expired.
    """

    changed: frozenset[TimerDriven]
    invalidated: frozenset[int]
    lost_session_locks: tuple[SessionLock, ...]


NO_EFFECTS: Final = EffectBatch(changed=frozenset(), invalidated=frozenset(), lost_session_locks=())
"""The effects of most operations, such as receiving and settling: none."""


class PendingEffects:
    """Collects effects until they are taken.

    :ivar deadline_changes: the components whose next due time may have changed, until somebody clears it.
    :ivar on_first: called when the first effect after :meth:`take` is recorded.
    """

    __slots__ = ("_changed", "_invalidated", "_is_empty", "_lost_session_locks", "deadline_changes", "on_first")

    def __init__(self) -> None:
        self._changed: set[TimerDriven] = set()
        self.deadline_changes: set[TimerDriven] = set()
        self._invalidated: set[int] = set()
        self._lost_session_locks: list[SessionLock] = []
        self._is_empty = True
        self.on_first: Callable[[], None] | None = None

    def changed(self, queue: TimerDriven) -> None:
        """Record that a queue may have more messages to deliver, or another due time."""
        self._changed.add(queue)
        self.deadline_changes.add(queue)
        if self._is_empty:
            self._notify()

    def deadline_changed(self, queue: TimerDriven) -> None:
        """Record that only the next due time of a queue may have changed."""
        self.deadline_changes.add(queue)

    def invalidated(self, entity: int) -> None:
        """Record that an entity was deleted or its description changed."""
        self._invalidated.add(entity)
        self._notify()

    def session_lock_lost(self, session_lock: SessionLock) -> None:
        """Record that a session lock expired."""
        self._lost_session_locks.append(session_lock)
        self._notify()

    def take(self) -> EffectBatch:
        """Return and clear the recorded effects."""
        if self._is_empty:
            return NO_EFFECTS
        batch = EffectBatch(
            changed=frozenset(self._changed),
            invalidated=frozenset(self._invalidated),
            lost_session_locks=tuple(self._lost_session_locks),
        )
        self._changed.clear()
        self._invalidated.clear()
        self._lost_session_locks.clear()
        self._is_empty = True
        return batch

    def _notify(self) -> None:
        if self._is_empty:
            self._is_empty = False
            if self.on_first is not None:
                self.on_first()
