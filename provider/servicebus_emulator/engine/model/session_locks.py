"""The session locks and session states of one queue."""

from __future__ import annotations

from dataclasses import dataclass, field

from servicebus_emulator.engine.model.errors import SessionCannotBeLocked, SessionLockLost
from servicebus_emulator.engine.model.timer_heap import TimerHeap


@dataclass(slots=True, kw_only=True, eq=False)
class SessionLock:
    """A receiver's exclusive lock on a session.

    :ivar locked_until: when the lock expires, in milliseconds since 1970.
    :ivar never_expires: whether the lock lasts until the receiver closes, regardless of `locked_until`.
    :ivar tokens: the lock tokens of the session's unsettled messages.
    """

    session_id: str
    locked_until: int
    never_expires: bool = False
    tokens: set[bytes] = field(default_factory=set)


class SessionLocks:
    """The current locks and the states of one queue's sessions. Times are in milliseconds since 1970.

    :ivar expiry: when each lock expires, by session id; to be read only.
    """

    __slots__ = ("_held", "_locks", "_states", "expiry")

    def __init__(self) -> None:
        self._locks: dict[str, SessionLock] = {}
        self.expiry: TimerHeap[str] = TimerHeap()
        self._held: set[str] = set()
        self._states: dict[str, tuple[bytes, int]] = {}

    def acquire(self, session_id: str, *, until: int, never_expires: bool) -> SessionLock:
        """Lock a session.

        :raises SessionCannotBeLocked: when another receiver has locked it.
        """
        if session_id in self._locks:
            raise SessionCannotBeLocked(
                f"session {session_id!r} is locked by another receiver; wait until it is closed or its lock expires"
            )
        lock = SessionLock(session_id=session_id, locked_until=until, never_expires=never_expires)
        self._locks[session_id] = lock
        self.extend(lock, until=until)
        return lock

    def get(self, session_id: str) -> SessionLock:
        """Return the current lock of a session.

        :raises SessionLockLost: when the session is not locked.
        """
        lock = self._locks.get(session_id)
        if lock is None:
            raise SessionLockLost(f"session {session_id!r} is not locked; accept it again")
        return lock

    def is_current(self, lock: SessionLock) -> bool:
        """Return whether a lock is still the current one of its session."""
        return self._locks.get(lock.session_id) is lock

    def extend(self, lock: SessionLock, *, until: int) -> None:
        """Set the time at which a lock expires."""
        lock.locked_until = until
        if not lock.never_expires:
            self.expiry.set(lock.session_id, until)

    def hold(self, session_id: str) -> None:
        """Keep a lock from expiring."""
        self._held.add(session_id)
        self.expiry.discard(session_id)

    def stop_holding(self) -> None:
        """Let the held locks expire when they are due."""
        for lock in [self._locks[session_id] for session_id in self._held if session_id in self._locks]:
            self.extend(lock, until=lock.locked_until)
        self._held.clear()

    def release(self, lock: SessionLock) -> None:
        """Release a lock."""
        del self._locks[lock.session_id]
        self.expiry.discard(lock.session_id)

    def next_due(self) -> int | None:
        """Return when the next lock expires, or None."""
        return self.expiry.next_due()

    def pop_expired(self, now: int) -> list[SessionLock]:
        """Return the locks that have expired. The caller must release each of them."""
        return [self._locks[session_id] for session_id in self.expiry.pop_due(now)]

    def state(self, session_id: str) -> bytes | None:
        """Return the state of a session, or None."""
        stored = self._states.get(session_id)
        return None if stored is None else stored[0]

    def set_state(self, session_id: str, state: bytes | None, *, at: int) -> None:
        """Set the state of a session at the time `at`; None removes it."""
        if state is None:
            self._states.pop(session_id, None)
        else:
            self._states[session_id] = (state, at)

    def sessions_with_state(self, *, after: int | None) -> set[str]:
        """Return the ids of the sessions with a state, or only those whose state was set later than `after`."""
        return {session_id for session_id, (_, at) in self._states.items() if after is None or at > after}
