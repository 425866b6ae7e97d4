"""One namespace at work: everything of one turn of the event loop is made durable together, then answered.

A turn (:meth:`Broker._turn`) runs once after any number of arrivals: time-outs take effect, receivers
get what is waiting for them, one commit makes it all durable, then the answers are given and the bytes
leave. So a batch, or many single sends at once, cost one transaction, and nobody hears of anything that
a crash could take back. In a namespace that keeps nothing each arrival has its turn at once: there is no
transaction to share, and waiting for others costs a round of the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

from servicebus_emulator.amqp.trouble import Breakable, Trouble
from servicebus_emulator.engine.clock import Clock
from servicebus_emulator.engine.directory import AnyEntity
from servicebus_emulator.engine.effects import Happened, Timed
from servicebus_emulator.engine.entities import locate_queue
from servicebus_emulator.engine.errors import BrokerError, SessionLockLost
from servicebus_emulator.engine.journal import JournalError
from servicebus_emulator.engine.namespace import Namespace
from servicebus_emulator.engine.queue import MessageQueue
from servicebus_emulator.engine.sessions import SessionHold
from servicebus_emulator.logs import event
from servicebus_emulator.security.guard import Guard

__all__ = ["Attached", "Broker", "Carrier", "Receiver", "SessionWaiter"]

_MOST_CONDITIONS: Final = 50

_log = logging.getLogger(__name__)


class Carrier(Breakable, Protocol):
    """A connection, as the broker sees it."""

    closed: bool

    def frame(self) -> None:
        """Have the frames written of what was answered so far."""
        ...

    def flush(self) -> None:
        """Send the bytes that are ready."""
        ...

    def close(self) -> None:
        """Close in good order."""
        ...

    def abort(self) -> None:
        """Drop the connection and what is ready to be sent on it."""
        ...


class Attached(Protocol):
    """A link to an entity."""

    @property
    def entity(self) -> AnyEntity:
        """The entity to which the link leads."""
        ...

    def obstacle(self) -> BrokerError | None:
        """Return why the link cannot go on, if its entity was deleted or changed its status."""
        ...

    def refuse(self, error: BrokerError) -> None:
        """Detach the link with an error."""
        ...


class Receiver(Attached, Protocol):
    """A link on which messages of one queue leave."""

    queue: MessageQueue
    hold: SessionHold | None

    @property
    def demand(self) -> int:
        """How many messages the peer is ready to take."""
        ...

    def give(self, limit: int) -> int:
        """Take up to `limit` messages from the queue and send them; return how many there were."""
        ...

    def finish_drain(self) -> None:
        """Answer a drain, now that what was waiting has been sent."""
        ...


class SessionWaiter(Protocol):
    """A receiver that waits for any session of a queue."""

    queue: MessageQueue

    def try_session(self) -> bool:
        """Try to attach to a session; return whether the wait is over, and the waiter forgotten."""
        ...


class Broker:
    """Drives one namespace in the running event loop.

    :param namespace: the entities.
    :param clock: the clock that the namespace runs on.
    :param trouble: the namespace's faults.
    :param guard: checks what clients may do.
    :param on_failure: called when the state can no longer be made durable; nothing was answered that was not.
    :ivar refusals: how often clients were refused something, by AMQP condition; faults are counted by themselves.
    """

    def __init__(
        self,
        namespace: Namespace,
        *,
        clock: Clock,
        trouble: Trouble,
        guard: Guard,
        on_failure: Callable[[JournalError], None],
    ) -> None:
        self.namespace = namespace
        self.trouble = trouble
        self.guard = guard
        self._clock = clock
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        self._at_once = not namespace.is_durable
        self._turn_due = False
        self._in_arrival = False
        self._in_turn = False
        self._stopped = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due: int | None = None
        self._asked: set[MessageQueue] = set()
        self._answers: list[tuple[Carrier, Callable[[], None]]] = []
        self._carriers: set[Carrier] = set()
        self._dirty: set[Carrier] = set()
        self._links: set[Attached] = set()
        self.refusals: Counter[str] = Counter()
        self._receivers: dict[Timed, deque[Receiver]] = {}
        self._waiters: dict[Timed, deque[SessionWaiter]] = {}
        self._by_hold: dict[SessionHold, Receiver] = {}
        namespace.on_effects(self.wake)
        namespace.idle.in_use = self._is_received_from
        self.wake()

    def stop(self) -> None:
        """Make durable and answer what happened, close the connections and stop working."""
        self._turn_due = True
        self._turn()
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        self.trouble.stop()
        for carrier in tuple(self._carriers):
            carrier.close()

    def wake(self) -> None:
        """Have a turn run soon."""
        if not self._turn_due and not self._stopped:
            self._turn_due = True
            if not (self._in_arrival and self._at_once):
                self._loop.call_soon(self._turn)

    def begin_arrival(self) -> None:
        """Note that bytes of a client are being read."""
        self._in_arrival = True

    def end_arrival(self) -> None:
        """Have the turn run that the bytes called for, if they did: at once where there is nothing to make durable.

        Elsewhere it runs soon, as all others, since arrivals that share a turn share its commit.
        """
        self._in_arrival = False
        if self._at_once and self._turn_due:
            self._turn()

    def time_shifted(self) -> None:
        """Act at once on a clock that was put forward."""
        self._timer_due = None
        self.trouble.time_shifted()
        self.wake()

    def answer(self, carrier: Carrier, action: Callable[[], None]) -> None:
        """Run `action`, which answers a peer, once what happened so far is durable."""
        self._answers.append((carrier, action))
        self.wake()

    def note_refusal(self, error: BrokerError) -> None:
        """Count what a client was refused, by its condition."""
        known = error.condition in self.refusals or len(self.refusals) < _MOST_CONDITIONS
        self.refusals[error.condition if known else "other"] += 1

    def call_later(self, milliseconds: int, action: Callable[[], None]) -> asyncio.TimerHandle:
        """Run `action` after a while."""
        return self._loop.call_later(milliseconds / 1000, action)

    def mark_dirty(self, carrier: Carrier) -> None:
        """Have the carrier's bytes sent at the end of the turn."""
        self._dirty.add(carrier)
        if not self._in_turn:
            self.wake()

    # Connections and links

    @property
    def connection_count(self) -> int:
        """How many connections there are."""
        return len(self._carriers)

    @property
    def link_count(self) -> int:
        """How many links to entities there are."""
        return len(self._links)

    def opened(self, carrier: Carrier) -> None:
        """Register a connection."""
        self._carriers.add(carrier)
        self.trouble.opened(carrier)

    def left(self, carrier: Carrier) -> None:
        """Forget a connection."""
        self._carriers.discard(carrier)
        self.trouble.left(carrier)
        self._dirty.discard(carrier)

    def add(self, link: Attached) -> None:
        """Register a link, to be detached when its entity goes."""
        self._links.add(link)

    def remove(self, link: Attached) -> None:
        """Forget a link."""
        self._links.discard(link)

    def add_receiver(self, receiver: Receiver) -> None:
        """Register a receiver for what its queue holds."""
        self.add(receiver)
        self._receivers.setdefault(receiver.queue, deque()).append(receiver)
        if receiver.hold is not None:
            self._by_hold[receiver.hold] = receiver

    def remove_receiver(self, receiver: Receiver) -> None:
        """Forget a receiver."""
        self.remove(receiver)
        _remove_from(self._receivers, key=receiver.queue, item=receiver)
        if receiver.hold is not None:
            self._by_hold.pop(receiver.hold, None)

    def add_waiter(self, waiter: SessionWaiter) -> None:
        """Register a receiver that waits for a session, first come first served."""
        self._waiters.setdefault(waiter.queue, deque()).append(waiter)

    def remove_waiter(self, waiter: SessionWaiter) -> None:
        """Forget a receiver that waits for a session."""
        _remove_from(self._waiters, key=waiter.queue, item=waiter)

    def ask(self, queue: MessageQueue) -> None:
        """Have the queue's receivers served in the next turn: one of them can take more."""
        self._asked.add(queue)
        self.wake()

    def _is_received_from(self, entity: int) -> bool:
        queues = [line[0].queue for lines in (self._receivers, self._waiters) for line in lines.values()]
        return any(locate_queue(queue.key)[0] == entity for queue in queues)

    # A turn

    def _turn(self) -> None:
        if self._stopped or not self._turn_due:
            return
        self._turn_due = False
        self._in_turn = True
        try:
            self._act()
        finally:
            self._in_turn = False

    def _act(self) -> None:
        try:
            self.namespace.advance()
            self._spread(self.namespace.take_effects())
            self.namespace.commit()
        except JournalError as error:
            self._fail(error)
            return
        answers, self._answers = self._answers, []
        for number, (carrier, action) in enumerate(answers, start=1):
            if not carrier.closed:
                self._give_answer(carrier, action, more=number < len(answers))
        dirty, self._dirty = self._dirty, set()
        for carrier in dirty:
            carrier.flush()
        self._set_timer()

    def _give_answer(self, carrier: Carrier, action: Callable[[], None], *, more: bool) -> None:
        try:
            action()
            if more:
                # The last one's frame is written as the bytes are sent.
                carrier.frame()
        except Exception:  # noqa: BLE001 - one client's trouble must not keep the others from their answers
            name = self.namespace.name
            about = event("answer-failed", namespace=name)
            _log.exception("namespace %s: an answer failed, its connection is dropped", name, extra=about)
            carrier.abort()
        else:
            self._dirty.add(carrier)

    def _spread(self, happened: Happened) -> None:
        for hold in happened.lost:
            receiver = self._by_hold.get(hold)
            if receiver is not None:
                receiver.refuse(SessionLockLost(f"the lock on session {hold.session_id!r} has expired"))
        if len(happened.gone) > 0:
            self._refuse_unusable(happened.gone)
        for queue in happened.changed:
            for waiter in tuple(self._waiters.get(queue, ())):
                if not waiter.try_session():
                    break
            if isinstance(queue, MessageQueue):
                self._asked.add(queue)
        asked, self._asked = self._asked, set()
        for each in asked:
            self._serve(each)

    def _serve(self, queue: MessageQueue) -> None:
        receivers = self._receivers.get(queue)
        if receivers is None:
            return
        if not queue.nothing_waits:
            self._share_out(queue, receivers=receivers)
        for receiver in tuple(receivers):
            receiver.finish_drain()
        # Who was served first is served last the next time.
        receivers.rotate(-1)

    def _share_out(self, queue: MessageQueue, *, receivers: Iterable[Receiver]) -> None:
        hungry = [(receiver, demand) for receiver in receivers if (demand := receiver.demand) > 0]
        if len(hungry) == 0:
            return
        share = -(-queue.waiting_count() // len(hungry))
        given = 0
        for receiver, demand in hungry:
            waiting = queue.waiting_count(hold=receiver.hold)
            if waiting > 0:
                given += receiver.give(min(waiting if receiver.hold is not None else share, demand))
        if given > 0 and any(each.demand > 0 and queue.waiting_count(hold=each.hold) > 0 for each, _ in hungry):
            # In the next turn: one receiver's share must not keep the others from theirs.
            self.ask(queue)

    def _refuse_unusable(self, keys: frozenset[int]) -> None:
        for link in [link for link in self._links if link.entity.key in keys]:
            error = link.obstacle()
            if error is not None:
                link.refuse(error)

    def _set_timer(self) -> None:
        due = self.namespace.next_due()
        if due is None or (self._timer_due is not None and self._timer_due <= due):
            # A timer that is too early stays: waking once for nothing costs less than a new timer for each lock.
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due = due
        # A millisecond late rather than early: waking early would only mean waking twice.
        self._timer = self.call_later(max(0, due - self._clock.now()) + 1, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._timer_due = None
        self.wake()

    def _fail(self, error: JournalError) -> None:
        self._stopped = True
        name = self.namespace.name
        about = event("store-failed", namespace=name)
        _log.critical("namespace %s: cannot store its state and stops: %s", name, error, extra=about)
        for carrier in tuple(self._carriers):
            carrier.abort()
        self._on_failure(error)


def _remove_from(lines: dict[Timed, deque[Any]], *, key: Timed, item: object) -> None:
    line = lines.get(key)
    if line is not None and item in line:
        line.remove(item)
        if len(line) == 0:
            del lines[key]
