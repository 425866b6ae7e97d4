"""Who holds which session of a queue, until when, and the state kept with it."""

from __future__ import annotations

from dataclasses import dataclass, field

from servicebus_emulator.engine.agenda import Agenda
from servicebus_emulator.engine.errors import SessionCannotBeLocked, SessionLockLost

__all__ = ["SessionHold", "SessionTable"]


@dataclass(slots=True, kw_only=True, eq=False)
class SessionHold:
    """A receiver's exclusive hold on a session.

    :ivar until: milliseconds since 1970.
    :ivar lasting: whether the hold does not end then, but with the receiver.
    :ivar tokens: the lock tokens of the session's messages that are in the receiver's hands.
    """

    session_id: str
    until: int
    lasting: bool = False
    tokens: set[bytes] = field(default_factory=set)


class SessionTable:
    """The holds and states of the sessions of one queue."""

    __slots__ = ("_expiry", "_holds", "_states")

    def __init__(self) -> None:
        self._holds: dict[str, SessionHold] = {}
        self._expiry: Agenda[str] = Agenda()
        self._states: dict[str, tuple[bytes, int]] = {}

    def hold(self, session_id: str, *, until: int, lasting: bool) -> SessionHold:
        """Give the session to a receiver.

        :raises SessionCannotBeLocked: when another one has it.
        """
        if session_id in self._holds:
            raise SessionCannotBeLocked(
                f"session {session_id!r} is locked by another receiver; wait until it is closed or its lock expires"
            )
        hold = SessionHold(session_id=session_id, until=until, lasting=lasting)
        self._holds[session_id] = hold
        self.extend(hold, until=until)
        return hold

    def held(self, session_id: str) -> SessionHold:
        """Return the hold on a session.

        :raises SessionLockLost: when no receiver has it.
        """
        hold = self._holds.get(session_id)
        if hold is None:
            raise SessionLockLost(f"session {session_id!r} is not locked; accept it again")
        return hold

    def is_current(self, hold: SessionHold) -> bool:
        """Tell whether the hold is still the one on its session."""
        return self._holds.get(hold.session_id) is hold

    def extend(self, hold: SessionHold, *, until: int) -> None:
        """Let a hold last until `until`."""
        hold.until = until
        if not hold.lasting:
            self._expiry.set(hold.session_id, until)

    def drop(self, hold: SessionHold) -> None:
        """End a hold."""
        del self._holds[hold.session_id]
        self._expiry.discard(hold.session_id)

    def next_due(self) -> int | None:
        """Return when the next hold expires."""
        return self._expiry.next_due()

    @property
    def horizon(self) -> float:
        """No hold expires before this."""
        return self._expiry.horizon

    def expired(self, now: int) -> list[SessionHold]:
        """Return the holds that expired; each is still to be dropped."""
        return [self._holds[session_id] for session_id in self._expiry.pop_due(now)]

    def state(self, session_id: str) -> bytes | None:
        """Return the state kept with a session, or None."""
        kept = self._states.get(session_id)
        return None if kept is None else kept[0]

    def set_state(self, session_id: str, state: bytes | None, *, at: int) -> None:
        """Keep a state with a session from `at` on (milliseconds since 1970); None removes it."""
        if state is None:
            self._states.pop(session_id, None)
        else:
            self._states[session_id] = (state, at)

    def with_state(self, *, after: int | None) -> set[str]:
        """Return the sessions that have a state, or only those whose state was set after a time."""
        return {session_id for session_id, (_, at) in self._states.items() if after is None or at > after}
