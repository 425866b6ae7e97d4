"""Receiving and settling the messages of one queue or subqueue.

::

    scheduled --due--> ready --receive--> locked --complete--> (removed)
        |               ^  |                |---abandon, lock expired--> ready, delivery count + 1
      cancel            |  |                |---release----------------> ready
        v               |  |                |---defer------------------> deferred --receive by number--> locked
    (removed)           |  |                `---dead-letter------------> dead-letter queue
                        |  `--time to live elapsed---------------------> dead-letter queue or (removed)
                        `--maximum delivery count reached: dead-letter queue instead

A locked message does not expire; an elapsed time to live takes effect when the lock ends. A deferred message whose
lock ends is deferred again. Messages of a session are covered by the session's lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice

from servicebus_emulator.engine.model.errors import (
    MessageLockLost,
    MessageNotFound,
    OperationNotAllowed,
    SessionLockLost,
)
from servicebus_emulator.engine.model.message import Content, DeadLetterInfo, Lock, Message, MessageState
from servicebus_emulator.engine.model.queue_settings import QueueSettings, min_or_none
from servicebus_emulator.engine.model.session_locks import SessionLock, SessionLocks
from servicebus_emulator.engine.model.timer_heap import TimerHeap
from servicebus_emulator.engine.queue.message_store import MessageStore
from servicebus_emulator.engine.runtime.context import Context, SequenceNumbers

_TOKEN_BYTES = 16

LOCK_LOST = "the lock has expired or the message is settled already; receive it again"
"""Why a message cannot be settled."""


class MessageQueue(MessageStore):
    """One queue or subqueue. Every operation first does the work that is due (see :meth:`advance`)."""

    def __init__(
        self,
        key: int,
        *,
        settings: QueueSettings,
        context: Context,
        sequence: SequenceNumbers,
        dead_letters: MessageStore | None,
    ) -> None:
        super().__init__(key, settings=settings, context=context, sequence=sequence, dead_letters=dead_letters)
        self._sessions = SessionLocks()
        self._locked: dict[bytes, Message] = {}
        self._lock_expiry: TimerHeap[bytes] = TimerHeap()
        self._reported_due: int | None = None

    def peek(self, number: int, *, limit: int, session_id: str | None = None) -> list[Message]:
        """Return up to `limit` messages in any state from sequence number `number` on, without locking them."""
        self.advance()
        found = self._index.starting_at(number)
        if session_id is not None:
            found = (message for message in found if message.content.session_id == session_id)
        return list(islice(found, limit))

    def cancel(self, numbers: Iterable[int]) -> None:
        """Cancel scheduled messages, all or none.

        :raises MessageNotFound: when one of them is not scheduled (any more).
        """
        self.advance()
        self._schedule.cancel(numbers)
        self._context.effects.changed(self)

    # Receiving

    def receive(
        self, max_messages: int, *, session_lock: SessionLock | None = None, delete: bool = False
    ) -> list[Message]:
        """Receive messages, oldest first.

        :param session_lock: the session to receive from; required when the queue requires sessions.
        :param delete: delete the messages instead of locking them.
        :raises SessionLockLost: when the session lock has expired.
        """
        self.advance()
        if session_lock is not None and not self._sessions.is_current(session_lock):
            raise SessionLockLost(f"the lock on session {session_lock.session_id!r} has expired; accept it again")
        messages = []
        for _ in range(max_messages):
            number = (
                self._ready.pop() if session_lock is None else self._require_sessions().pop(session_lock.session_id)
            )
            message = None if number is None else self._index.get(number)
            if message is None:
                break
            messages.append(message)
        self._lock_or_delete(messages, session_lock=session_lock, delete=delete)
        return messages

    def receive_deferred(
        self, numbers: Iterable[int], *, session_id: str | None, delete: bool = False
    ) -> list[Message]:
        """Receive deferred messages by sequence number, all or none.

        :raises MessageNotFound: when one of them is not deferred, or is locked.
        :raises SessionLockLost: when the queue requires sessions and this session is not locked.
        """
        self.advance()
        session_lock = self._sessions.get(session_id or "") if self.settings.requires_session else None
        messages = []
        for number in dict.fromkeys(numbers):
            message = self._index.get(number)
            if message is None or message.state is not MessageState.DEFERRED or message.lock is not None:
                raise MessageNotFound(f"no deferred message with sequence number {number} is free to be received")
            if session_lock is not None and message.content.session_id != session_lock.session_id:
                raise MessageNotFound(f"message {number} does not belong to session {session_lock.session_id!r}")
            messages.append(message)
        self._lock_or_delete(messages, session_lock=session_lock, delete=delete)
        return messages

    def renew_lock(self, token: bytes) -> int:
        """Extend a message lock by the lock duration from now; return when it expires.

        :raises MessageLockLost: when the lock has expired.
        :raises OperationNotAllowed: when the message is covered by a session lock.
        """
        self.advance()
        message, lock = self._locked_message(token)
        if lock.session_id is not None:
            raise OperationNotAllowed("messages of a session have no lock of their own; renew the session's lock")
        until = self._context.clock.now() + self.settings.lock_duration
        message.lock = lock._replace(locked_until=until)
        self._lock_expiry.set(token, until)
        self._context.effects.deadline_changed(self)
        return until

    def complete_all(self, tokens: Iterable[bytes]) -> frozenset[bytes]:
        """Remove locked messages; return the tokens of locks that have expired, whose messages stay."""
        self.advance()
        lost: set[bytes] = set()
        messages: list[Message] = []
        locked = self._locked
        for token in tokens:
            message = locked.pop(token, None)
            if message is None or message.lock is None:
                lost.add(token)
                continue
            self._lock_expiry.discard(token)
            if message.lock.session_id is not None:
                self._sessions.get(message.lock.session_id).tokens.discard(token)
            message.lock = None
            messages.append(message)
        self._remove_all(messages)
        self.counters.completed += len(messages)
        return frozenset(lost)

    # Settlement of one message; each method raises MessageLockLost when the lock has expired

    def complete(self, token: bytes) -> None:
        """Remove a locked message."""
        self.advance()
        self._remove(self._unlock(token))
        self.counters.completed += 1

    def modify(self, token: bytes, change: Callable[[Content], Content]) -> None:
        """Replace the content of a locked message by ``change(content)``."""
        self.advance()
        message, _ = self._locked_message(token)
        self._replace_content(message, change(message.content))

    def locked_content(self, token: bytes) -> Content:
        """Return the content of a locked message."""
        self.advance()
        return self._locked_message(token)[0].content

    def hold(self, token: bytes) -> None:
        """Keep a lock, and that of the session that covers it, from expiring."""
        self.advance()
        _, lock = self._locked_message(token)
        if lock.session_id is None:
            self._lock_expiry.discard(token)
        else:
            self._sessions.hold(lock.session_id)

    def stop_holding(self, token: bytes) -> None:
        """Let a held lock expire when it is due, unless its message is settled."""
        message = self._locked.get(token)
        if message is not None and message.lock is not None and message.lock.session_id is None:
            self._lock_expiry.set(token, message.lock.locked_until)
        self._sessions.stop_holding()

    def abandon(self, token: bytes) -> None:
        """Return a locked message to the queue and increment its delivery count."""
        self.advance()
        self._return_to_queue(self._unlock(token), increment_delivery_count=True)
        self.counters.abandoned += 1

    def release(self, token: bytes) -> None:
        """Return a locked message to the queue as if it had not been delivered."""
        self.advance()
        self._return_to_queue(self._unlock(token), increment_delivery_count=False)
        self.counters.released += 1

    def defer(self, token: bytes) -> None:
        """Defer a locked message: from now on it can only be received by sequence number."""
        self.advance()
        message = self._unlock(token)
        message.state = MessageState.DEFERRED
        self.counters.deferred += 1
        self._context.journal.update(self.key, message)
        if self._is_expired(message):
            self._expire(message)

    def dead_letter(self, token: bytes, *, reason: str | None, description: str | None) -> None:
        """Move a locked message to the dead-letter queue.

        :raises OperationNotAllowed: in a dead-letter queue.
        """
        self.advance()
        destination, info = self.require_dead_letters(), DeadLetterInfo(reason, description)
        self._move_to_dead_letters(self._unlock(token), info=info, destination=destination)
        self.counters.rejected += 1

    def dead_letter_at(self, number: int, *, reason: str | None, description: str | None) -> None:
        """Move a message that is active or deferred, and not locked, to the dead-letter queue.

        :raises MessageNotFound: when there is none with this sequence number.
        :raises OperationNotAllowed: in a dead-letter queue.
        """
        self.advance()
        message, destination = self._index.get(number), self.require_dead_letters()
        if message is None or message.lock is not None or message.state is MessageState.SCHEDULED:
            raise MessageNotFound(f"no message with sequence number {number} is free to be dead-lettered")
        self._remove_from_ready(message)
        self._move_to_dead_letters(message, info=DeadLetterInfo(reason, description), destination=destination)

    def require_dead_letters(self) -> MessageStore:
        """Return the dead-letter queue.

        :raises OperationNotAllowed: in a dead-letter queue.
        """
        if self._dead_letters is None:
            raise OperationNotAllowed(
                "messages of a dead-letter queue cannot be dead-lettered; complete or abandon them"
            )
        return self._dead_letters

    # Sessions

    def accept_session(self, session_id: str | None, *, never_expires: bool = False) -> SessionLock | None:
        """Lock a session for a receiver.

        :param session_id: None = the session that has been available longest.
        :param never_expires: whether the lock lasts until the receiver closes, as in receive-and-delete mode.
        :return: None when no session was named and none is available.
        :raises SessionCannotBeLocked: when another receiver has locked the named session.
        """
        self.advance()
        ready = self._require_sessions()
        chosen = ready.next_available() if session_id is None else session_id
        if chosen is None:
            return None
        until = self._context.clock.now() + self.settings.lock_duration
        session_lock = self._sessions.acquire(chosen, until=until, never_expires=never_expires)
        ready.lock(chosen)
        self._context.effects.changed(self)
        return session_lock

    def renew_session_lock(self, session_id: str) -> int:
        """Extend a session lock by the lock duration from now; return when it expires.

        :raises SessionLockLost: when the session is not locked.
        """
        self.advance()
        session_lock = self._sessions.get(session_id)
        self._sessions.extend(session_lock, until=self._context.clock.now() + self.settings.lock_duration)
        self._context.effects.deadline_changed(self)
        return session_lock.locked_until

    def close_session(self, session_lock: SessionLock) -> None:
        """Unlock a session and return its unsettled messages. An expired lock is ignored."""
        self.advance()
        if self._sessions.is_current(session_lock):
            self._end_session(session_lock, increment_delivery_count=False)

    def session_state(self, session_id: str) -> bytes | None:
        """Return the state of a locked session.

        :raises SessionLockLost: when the session is not locked.
        """
        self.advance()
        return self._sessions.state(self._sessions.get(session_id).session_id)

    def set_session_state(self, session_id: str, state: bytes | None) -> None:
        """Set the state of a locked session; None removes it.

        :raises SessionLockLost: when the session is not locked.
        """
        self.advance()
        self._sessions.get(session_id)
        now = self._context.clock.now()
        self._sessions.set_state(session_id, state, at=now)
        self._context.journal.set_session_state(self.key, session_id, state, at=now)
        self._context.effects.deadline_changed(self)

    def restore_session_state(self, session_id: str, state: bytes, *, at: int) -> None:
        """Restore a session's state after a restart."""
        self._sessions.set_state(session_id, state, at=at)

    def session_ids(self, *, state_after: int | None = None) -> list[str]:
        """Return the ids of sessions with messages or state, sorted; or only those whose state was set after a time."""
        self.advance()
        self._require_sessions()
        found = self._sessions.sessions_with_state(after=state_after)
        if state_after is None:
            active = (each for each in self._index.starting_at(0) if each.state is not MessageState.SCHEDULED)
            found.update(message.session() for message in active)
        return sorted(found)

    # Timers

    def next_due(self) -> int | None:
        """Return when :meth:`advance` next has work to do (milliseconds since 1970), or None.

        The pending effects report when this may have become earlier. They do not report when it becomes later, as with
        every settlement: an occasional call of `advance` too many costs less than a report per settlement.
        """
        self._reported_due = self._next_due()
        return self._reported_due

    def advance(self) -> None:
        """Activate scheduled messages, expire locks and expire messages that are due."""
        now = self._context.clock.now()
        if (
            now < self._lock_expiry.not_before
            and now < self._expiry.not_before
            and now < self._schedule.timers.not_before
            and now < self._sessions.expiry.not_before
        ):
            # The usual case; computing the exact due times takes longer.
            return
        due = self._next_due()
        if due is None or due > now:
            return
        activated = self._schedule.activate(now)
        self._set_expiries(activated)
        for message in activated:
            self._make_ready(message)
        for token in self._lock_expiry.pop_due(now):
            self.counters.locks_lost += 1
            self._return_to_queue(self._unlock(token), increment_delivery_count=True)
        for session_lock in self._sessions.pop_expired(now):
            self.counters.locks_lost += 1
            self._end_session(session_lock, increment_delivery_count=True)
            self._context.effects.session_lock_lost(session_lock)
        for number in self._expiry.pop_due(now):
            expiring = self._index.get(number)
            if expiring is not None and expiring.lock is None:
                self._remove_from_ready(expiring)
                self._expire(expiring)
        self._context.effects.changed(self)

    # Internals

    def _next_due(self) -> int | None:
        return min_or_none(
            self._schedule.next_due(), self._lock_expiry.next_due(), self._expiry.next_due(), self._sessions.next_due()
        )

    def _lock_or_delete(self, messages: list[Message], *, session_lock: SessionLock | None, delete: bool) -> None:
        if len(messages) == 0:
            return
        self.counters.delivered += len(messages)
        if delete:
            self.counters.deleted += len(messages)
            for message in messages:
                self._remove(message)
            return
        if session_lock is None:
            until, session_id = self._context.clock.now() + self.settings.lock_duration, None
        else:
            until, session_id = session_lock.locked_until, session_lock.session_id
        random = self._context.random_bytes(_TOKEN_BYTES * len(messages))
        tokens = []
        for position, message in enumerate(messages):
            token = random[_TOKEN_BYTES * position : _TOKEN_BYTES * (position + 1)]
            tokens.append(token)
            message.lock = Lock(token, until, session_id)
            self._locked[token] = message
        if session_lock is None:
            self._lock_expiry.set_all(tokens, until)
        else:
            session_lock.tokens.update(tokens)
        if self._reported_due is None or until < self._reported_due:
            self._context.effects.deadline_changed(self)

    def _locked_message(self, token: bytes) -> tuple[Message, Lock]:
        message = self._locked.get(token)
        if message is None or message.lock is None:
            raise MessageLockLost(LOCK_LOST)
        return message, message.lock

    def _unlock(self, token: bytes) -> Message:
        message = self._locked.pop(token, None)
        if message is None or message.lock is None:
            raise MessageLockLost(LOCK_LOST)
        lock, message.lock = message.lock, None
        self._lock_expiry.discard(token)
        if lock.session_id is not None:
            self._sessions.get(lock.session_id).tokens.discard(token)
        return message

    def _return_to_queue(self, message: Message, *, increment_delivery_count: bool) -> None:
        if increment_delivery_count:
            message.delivery_count += 1
            self._context.journal.update(self.key, message)
        if self._dead_letters is not None and message.delivery_count >= self.settings.max_delivery_count:
            description = f"Message could not be consumed after {message.delivery_count} delivery attempts."
            info = DeadLetterInfo("MaxDeliveryCountExceeded", description)
            self._move_to_dead_letters(message, info=info, destination=self._dead_letters)
        elif self._is_expired(message):
            self._expire(message)
        elif message.state is MessageState.ACTIVE:
            self._make_ready(message)

    def _end_session(self, session_lock: SessionLock, *, increment_delivery_count: bool) -> None:
        for token in tuple(session_lock.tokens):
            self._return_to_queue(self._unlock(token), increment_delivery_count=increment_delivery_count)
        self._sessions.release(session_lock)
        self._require_sessions().unlock(session_lock.session_id)
        self._context.effects.changed(self)
