"""The life of messages in one queue or sub-queue.

::

    scheduled --due--> waiting --take--> locked --complete--> (gone)
        |                 ^  |              |---abandon, lock expired--> waiting, one delivery counted
      cancel              |  |              |---release----------------> waiting
        v                 |  |              |---defer------------------> deferred --receive by number--> locked
      (gone)              |  |              `---dead-letter------------> dead-letter queue
                          |  `--time to live over----------------------> dead-letter queue or (gone)
                          `--delivery count reaches its maximum: dead-letter queue instead

A locked message does not expire; when its lock ends, a time to live that is over takes effect. A
deferred message whose lock ends is deferred again. Messages of a session hang on the session's lock.
How messages come and wait: :mod:`servicebus_emulator.engine.stock`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice

from servicebus_emulator.engine.agenda import Agenda
from servicebus_emulator.engine.context import Context, Sequence
from servicebus_emulator.engine.errors import MessageLockLost, MessageNotFound, OperationNotAllowed, SessionLockLost
from servicebus_emulator.engine.message import Content, DeadLetterMark, Lock, Message, MessageState
from servicebus_emulator.engine.sessions import SessionHold, SessionTable
from servicebus_emulator.engine.settings import QueueSettings, shortest
from servicebus_emulator.engine.stock import Stock

__all__ = ["MessageQueue"]

_TOKEN_BYTES = 16


class MessageQueue(Stock):
    """Gives out the messages of one queue or sub-queue. Every operation first does what has fallen due."""

    def __init__(
        self,
        key: int,
        *,
        settings: QueueSettings,
        context: Context,
        sequence: Sequence,
        dead_letters: Stock | None,
    ) -> None:
        super().__init__(key, settings=settings, context=context, sequence=sequence, dead_letters=dead_letters)
        self._sessions = SessionTable()
        self._locked: dict[bytes, Message] = {}
        self._lock_expiry: Agenda[bytes] = Agenda()
        self._told_due: int | None = None

    def peek(self, number: int, *, limit: int, session_id: str | None = None) -> list[Message]:
        """Return up to `limit` messages from sequence number `number` on, in whatever state, changing nothing."""
        self.advance()
        found = self._shelf.starting_at(number)
        if session_id is not None:
            found = (message for message in found if message.content.session_id == session_id)
        return list(islice(found, limit))

    def cancel(self, numbers: Iterable[int]) -> None:
        """Remove scheduled messages, all or none.

        :raises MessageNotFound: when one of them is not scheduled (any more).
        """
        self.advance()
        self._schedule.cancel(numbers)
        self._context.effects.changed(self)

    # How messages are received

    def take(self, limit: int, *, hold: SessionHold | None = None, delete: bool = False) -> list[Message]:
        """Receive up to `limit` messages, oldest first.

        :param hold: the session to take from; required when the queue requires sessions.
        :param delete: remove them at once instead of locking them.
        :raises SessionLockLost: when the hold is over.
        """
        self.advance()
        if hold is not None and not self._sessions.is_current(hold):
            raise SessionLockLost(f"the lock on session {hold.session_id!r} has expired; accept it again")
        messages = []
        for _ in range(limit):
            number = self._line.pop() if hold is None else self._pop_of(hold)
            message = None if number is None else self._shelf.get(number)
            if message is None:
                break
            messages.append(message)
        self._hand_out(messages, hold=hold, delete=delete)
        return messages

    def take_deferred(self, numbers: Iterable[int], *, session_id: str | None, delete: bool = False) -> list[Message]:
        """Receive deferred messages by sequence number, all or none.

        :raises MessageNotFound: when one of them is not deferred, or is in someone's hands.
        :raises SessionLockLost: when the queue requires sessions and this one is not locked.
        """
        self.advance()
        hold = self._sessions.held(session_id or "") if self.settings.requires_session else None
        messages = []
        for number in dict.fromkeys(numbers):
            message = self._shelf.get(number)
            if message is None or message.state is not MessageState.DEFERRED or message.lock is not None:
                raise MessageNotFound(f"no deferred message with sequence number {number} is free to be received")
            if hold is not None and message.content.session_id != hold.session_id:
                raise MessageNotFound(f"message {number} does not belong to session {hold.session_id!r}")
            messages.append(message)
        self._hand_out(messages, hold=hold, delete=delete)
        return messages

    def renew(self, token: bytes) -> int:
        """Let a lock last for the lock duration from now; return until when.

        :raises MessageLockLost: when the lock is over.
        :raises OperationNotAllowed: when the message hangs on a session's lock.
        """
        self.advance()
        message, lock = self._holding(token)
        if lock.session_id is not None:
            raise OperationNotAllowed("messages of a session have no lock of their own; renew the session's lock")
        until = self._context.clock.now() + self.settings.lock_duration
        message.lock = lock._replace(until=until)
        self._lock_expiry.set(token, until)
        self._context.effects.retimed(self)
        return until

    # How messages are settled; each of these raises MessageLockLost when the lock is over

    def complete(self, token: bytes) -> None:
        """Remove a locked message: it is done with."""
        self.advance()
        self._remove(self._unlock(token))
        self.tally.completed += 1

    def amend(self, token: bytes, change: Callable[[Content], Content]) -> None:
        """Change a locked message.

        :param change: returns the changed content.
        :raises MessageLockLost: when the lock is over.
        """
        self.advance()
        message, _ = self._holding(token)
        self._replace_content(message, change(message.content))

    def abandon(self, token: bytes) -> None:
        """Give a locked message back, counting a delivery."""
        self.advance()
        self._give_back(self._unlock(token), counted=True)
        self.tally.abandoned += 1

    def release(self, token: bytes) -> None:
        """Give a locked message back as if it had not been delivered."""
        self.advance()
        self._give_back(self._unlock(token), counted=False)
        self.tally.released += 1

    def defer(self, token: bytes) -> None:
        """Set a locked message aside; from now on it is received by sequence number only."""
        self.advance()
        message = self._unlock(token)
        message.state = MessageState.DEFERRED
        self.tally.deferred += 1
        self._context.journal.change(self.key, message)
        if self._is_expired(message):
            self._expire(message)

    def dead_letter(self, token: bytes, *, reason: str | None, description: str | None) -> None:
        """Move a locked message to the dead-letter queue.

        :raises OperationNotAllowed: in a dead-letter queue.
        """
        self.advance()
        if self._dead_letters is None:
            raise OperationNotAllowed(
                "messages of a dead-letter queue cannot be dead-lettered; complete or abandon them"
            )
        self._bury(self._unlock(token), mark=DeadLetterMark(reason, description), grave=self._dead_letters)
        self.tally.rejected += 1

    # Sessions

    def accept_session(self, session_id: str | None, *, lasting: bool = False) -> SessionHold | None:
        """Give a session to a receiver: the one named, or the one that has waited longest (None = no session waits).

        :param lasting: whether the hold ends with the receiver only, as that of one who receives and deletes.
        :raises SessionCannotBeLocked: when another receiver has the named session.
        """
        self.advance()
        lines = self._lines_of_sessions()
        chosen = lines.next_unheld() if session_id is None else session_id
        if chosen is None:
            return None
        until = self._context.clock.now() + self.settings.lock_duration
        hold = self._sessions.hold(chosen, until=until, lasting=lasting)
        lines.hold(chosen)
        self._context.effects.changed(self)
        return hold

    def renew_session(self, session_id: str) -> int:
        """Let a session's lock last for the lock duration from now; return until when.

        :raises SessionLockLost: when it is over.
        """
        self.advance()
        hold = self._sessions.held(session_id)
        self._sessions.extend(hold, until=self._context.clock.now() + self.settings.lock_duration)
        self._context.effects.retimed(self)
        return hold.until

    def close_session(self, hold: SessionHold) -> None:
        """Free a session; unsettled messages wait again, no delivery counted. A hold that is over is left alone."""
        self.advance()
        if self._sessions.is_current(hold):
            self._end_session(hold, counted=False)

    def session_state(self, session_id: str) -> bytes | None:
        """Return the state kept with a session that is locked.

        :raises SessionLockLost: when it is not locked.
        """
        self.advance()
        return self._sessions.state(self._sessions.held(session_id).session_id)

    def set_session_state(self, session_id: str, state: bytes | None) -> None:
        """Keep a state with a session that is locked; None removes it.

        :raises SessionLockLost: when it is not locked.
        """
        self.advance()
        self._sessions.held(session_id)
        now = self._context.clock.now()
        self._sessions.set_state(session_id, state, at=now)
        self._context.journal.set_session_state(self.key, session_id, state, at=now)
        self._context.effects.retimed(self)

    def restore_session_state(self, session_id: str, state: bytes, *, at: int) -> None:
        """Take back a session's state after a restart."""
        self._sessions.set_state(session_id, state, at=at)

    def session_ids(self, *, state_after: int | None = None) -> list[str]:
        """Return the sessions with messages or a state, sorted; or only those whose state was set after a time."""
        self.advance()
        self._lines_of_sessions()
        found = self._sessions.with_state(after=state_after)
        if state_after is None:
            active = (each for each in self._shelf.starting_at(0) if each.state is not MessageState.SCHEDULED)
            found.update(message.session() for message in active)
        return sorted(found)

    # What happens by itself

    def next_due(self) -> int | None:
        """Return when the queue next needs :meth:`advance` (milliseconds since 1970), or None.

        Who asks is told by the effects when that may be sooner. When it is later, as each settlement makes it, nobody
        is: to look after a queue once too often costs less than to be told each time.
        """
        self._told_due = self._next_due()
        return self._told_due

    def advance(self) -> None:
        """Do all that has fallen due: activate, unlock, expire."""
        now = self._context.clock.now()
        if (
            now < self._lock_expiry.horizon
            and now < self._expiry.horizon
            and now < self._schedule.horizon
            and now < self._sessions.horizon
        ):
            # As almost always: to find out when exactly something is due takes longer.
            return
        due = self._next_due()
        if due is None or due > now:
            return
        activated = self._schedule.activate(now)
        self._start_lives(activated)
        for message in activated:
            self._wait(message)
        for token in self._lock_expiry.pop_due(now):
            self.tally.locks_lost += 1
            self._give_back(self._unlock(token), counted=True)
        for hold in self._sessions.expired(now):
            self.tally.locks_lost += 1
            self._end_session(hold, counted=True)
            self._context.effects.lost(hold)
        for number in self._expiry.pop_due(now):
            message_or_none = self._shelf.get(number)
            if message_or_none is not None and message_or_none.lock is None:
                self._leave_line(message_or_none)
                self._expire(message_or_none)
        self._context.effects.changed(self)

    # Steps

    def _next_due(self) -> int | None:
        return shortest(
            self._schedule.next_due(), self._lock_expiry.next_due(), self._expiry.next_due(), self._sessions.next_due()
        )

    def _pop_of(self, hold: SessionHold) -> int | None:
        return self._lines_of_sessions().pop(hold.session_id)

    def _hand_out(self, messages: list[Message], *, hold: SessionHold | None, delete: bool) -> None:
        if len(messages) == 0:
            return
        self.tally.delivered += len(messages)
        if delete:
            self.tally.deleted += len(messages)
            for message in messages:
                self._remove(message)
            return
        until = self._context.clock.now() + self.settings.lock_duration if hold is None else hold.until
        session_id = None if hold is None else hold.session_id
        random = self._context.random_bytes(_TOKEN_BYTES * len(messages))
        tokens = [random[start : start + _TOKEN_BYTES] for start in range(0, len(random), _TOKEN_BYTES)]
        for token, message in zip(tokens, messages, strict=True):
            message.lock = Lock(token, until, session_id)
            self._locked[token] = message
        if hold is None:
            self._lock_expiry.set_all(tokens, until)
        else:
            hold.tokens.update(tokens)
        if self._told_due is None or until < self._told_due:
            self._context.effects.retimed(self)

    def _holding(self, token: bytes) -> tuple[Message, Lock]:
        message = self._locked.get(token)
        if message is None or message.lock is None:
            raise MessageLockLost("the lock has expired or the message is settled already; receive it again")
        return message, message.lock

    def _unlock(self, token: bytes) -> Message:
        message, lock = self._holding(token)
        del self._locked[token]
        message.lock = None
        self._lock_expiry.discard(token)
        if lock.session_id is not None:
            self._sessions.held(lock.session_id).tokens.discard(token)
        return message

    def _give_back(self, message: Message, *, counted: bool) -> None:
        if counted:
            message.delivery_count += 1
            self._context.journal.change(self.key, message)
        if self._dead_letters is not None and message.delivery_count >= self.settings.max_delivery_count:
            description = f"Message could not be consumed after {message.delivery_count} delivery attempts."
            mark = DeadLetterMark("MaxDeliveryCountExceeded", description)
            self._bury(message, mark=mark, grave=self._dead_letters)
        elif self._is_expired(message):
            self._expire(message)
        elif message.state is MessageState.ACTIVE:
            self._wait(message)

    def _end_session(self, hold: SessionHold, *, counted: bool) -> None:
        for token in tuple(hold.tokens):
            self._give_back(self._unlock(token), counted=counted)
        self._sessions.drop(hold)
        self._lines_of_sessions().unhold(hold.session_id)
        self._context.effects.changed(self)
