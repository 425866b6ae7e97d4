"""Runs one namespace: what happens in one cycle is made durable together, then answered.

A cycle (:meth:`Broker._cycle`) runs once after any number of inputs: expirations take effect, receivers get the
messages that wait for them, one commit makes it all durable, then replies are issued and bytes leave. A batch, or many
concurrent sends, thus costs one transaction, and no client gets a reply that a crash could revoke. In a namespace
without persistence each input runs its own cycle at once: there is no commit to share, and waiting for other inputs
would cost an iteration of the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import Any, Final

from servicebus_emulator.amqp.broker.fault_injector import FaultInjector
from servicebus_emulator.amqp.broker.interfaces import BrokerConnection, EntityLink, OutgoingLink, SessionWaiter
from servicebus_emulator.engine.model.clock import Clock
from servicebus_emulator.engine.model.errors import BrokerError, SessionLockLost
from servicebus_emulator.engine.model.session_locks import SessionLock
from servicebus_emulator.engine.namespace.entities import split_queue_key
from servicebus_emulator.engine.namespace.namespace import Namespace
from servicebus_emulator.engine.queue.queue import MessageQueue
from servicebus_emulator.engine.runtime.journal import JournalError
from servicebus_emulator.engine.runtime.pending_effects import NO_EFFECTS, EffectBatch, TimerDriven
from servicebus_emulator.logs import event
from servicebus_emulator.security.authorizer import Authorizer

_MAX_CONDITIONS: Final = 50

_log = logging.getLogger(__name__)


class Broker:
    """Runs one namespace in the running event loop.

    :param namespace: the entities.
    :param clock: the clock of the namespace.
    :param fault_injector: the namespace's faults.
    :param guard: checks the rights of clients.
    :param on_failure: called when the state cannot be made durable; no reply to such a change was issued.
    :ivar sparse_answers: whether clients are answered without what the service leaves out at times.
    :ivar refusals: the number of refused operations by AMQP condition, injected faults excluded.
    """

    def __init__(
        self,
        namespace: Namespace,
        *,
        clock: Clock,
        fault_injector: FaultInjector,
        guard: Authorizer,
        on_failure: Callable[[JournalError], None],
        sparse_answers: bool = False,
    ) -> None:
        self.namespace = namespace
        self.fault_injector = fault_injector
        self.guard = guard
        self.sparse_answers = sparse_answers
        self._clock = clock
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        self._immediate = not namespace.is_durable
        self._cycle_scheduled = False
        self._reading_input = False
        self._in_cycle = False
        self._stopped = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due: int | None = None
        self._ready_queues: set[MessageQueue] = set()
        self._replies: list[tuple[BrokerConnection, Callable[[], None]]] = []
        self._connections: set[BrokerConnection] = set()
        self.connections_opened = 0
        self._dirty: set[BrokerConnection] = set()
        self._links: set[EntityLink] = set()
        self.refusals: Counter[str] = Counter()
        self._outgoing: dict[TimerDriven, deque[OutgoingLink]] = {}
        self._waiters: dict[TimerDriven, deque[SessionWaiter]] = {}
        self._by_session_lock: dict[SessionLock, OutgoingLink] = {}
        namespace.on_effects(self.schedule_cycle)
        namespace.auto_delete.has_receiver = self._is_received_from
        self.schedule_cycle()

    def stop(self) -> None:
        """Make durable and answer what has happened, then close the connections."""
        self._cycle_scheduled = True
        self._cycle()
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        self.fault_injector.stop()
        for connection in tuple(self._connections):
            connection.close()

    def schedule_cycle(self) -> None:
        """Run a cycle soon."""
        if not self._cycle_scheduled and not self._stopped:
            self._cycle_scheduled = True
            if not (self._reading_input and self._immediate):
                self._loop.call_soon(self._cycle)

    def begin_input(self) -> None:
        """Defer cycles until a client's bytes have been read."""
        self._reading_input = True

    def end_input(self) -> None:
        """Run the cycle that the bytes scheduled, if any.

        With persistence it runs later, so that inputs which share a cycle share its commit.
        """
        self._reading_input = False
        if self._immediate and self._cycle_scheduled:
            self._cycle()

    def time_shifted(self) -> None:
        """Apply a clock that was moved forward."""
        self._timer_due = None
        self.fault_injector.time_shifted()
        self.schedule_cycle()

    def reply_when_durable(self, connection: BrokerConnection, reply: Callable[[], None]) -> None:
        """Run `reply`, which answers the client, once what has happened so far is durable."""
        self._replies.append((connection, reply))
        self.schedule_cycle()

    def count_refusal(self, error: BrokerError) -> None:
        """Count a refused operation by its condition."""
        known = error.condition in self.refusals or len(self.refusals) < _MAX_CONDITIONS
        self.refusals[error.condition if known else "other"] += 1

    def call_later(self, milliseconds: int, action: Callable[[], None]) -> asyncio.TimerHandle:
        """Run `action` after a delay in milliseconds."""
        return self._loop.call_later(milliseconds / 1000, action)

    def mark_dirty(self, connection: BrokerConnection) -> None:
        """Send the connection's bytes at the end of the cycle."""
        self._dirty.add(connection)
        if not self._in_cycle:
            self.schedule_cycle()

    # Connections and links

    @property
    def connection_count(self) -> int:
        """The number of connections."""
        return len(self._connections)

    @property
    def link_count(self) -> int:
        """The number of links to entities."""
        return len(self._links)

    def add_connection(self, connection: BrokerConnection) -> None:
        """Register a connection."""
        self._connections.add(connection)
        self.connections_opened += 1
        self.fault_injector.add_connection(connection)

    def remove_connection(self, connection: BrokerConnection) -> None:
        """Forget a connection."""
        self._connections.discard(connection)
        self.fault_injector.remove_connection(connection)
        self._dirty.discard(connection)

    def add_link(self, link: EntityLink) -> None:
        """Register a link, to be closed when its entity is deleted."""
        self._links.add(link)

    def remove_link(self, link: EntityLink) -> None:
        """Forget a link."""
        self._links.discard(link)

    def add_outgoing(self, link: OutgoingLink) -> None:
        """Register a link for the messages of its queue."""
        self.add_link(link)
        self._outgoing.setdefault(link.queue, deque()).append(link)
        if link.session_lock is not None:
            self._by_session_lock[link.session_lock] = link

    def remove_outgoing(self, link: OutgoingLink) -> None:
        """Forget a link for the messages of its queue."""
        self.remove_link(link)
        _remove_from(self._outgoing, key=link.queue, item=link)
        if link.session_lock is not None:
            self._by_session_lock.pop(link.session_lock, None)

    def add_waiter(self, waiter: SessionWaiter) -> None:
        """Register an attach that waits for a session, in order of arrival."""
        self._waiters.setdefault(waiter.queue, deque()).append(waiter)

    def remove_waiter(self, waiter: SessionWaiter) -> None:
        """Forget an attach that waits for a session."""
        _remove_from(self._waiters, key=waiter.queue, item=waiter)

    def request_delivery(self, queue: MessageQueue) -> None:
        """Deliver the queue's messages in the next cycle: one of its links has credit."""
        self._ready_queues.add(queue)
        self.schedule_cycle()

    def _is_received_from(self, entity: int) -> bool:
        queues = [links[0].queue for by_queue in (self._outgoing, self._waiters) for links in by_queue.values()]
        return any(split_queue_key(queue.key)[0] == entity for queue in queues)

    # The cycle

    def _cycle(self) -> None:
        if self._stopped or not self._cycle_scheduled:
            return
        self._cycle_scheduled = False
        self._in_cycle = True
        try:
            self._run_cycle()
        finally:
            self._in_cycle = False

    def _run_cycle(self) -> None:
        try:
            self.namespace.advance()
            effects = self.namespace.take_effects()
            if effects is not NO_EFFECTS:
                self._apply_effects(effects)
            ready, self._ready_queues = self._ready_queues, set()
            for each in ready:
                self._serve(each)
            if not self._immediate:
                self.namespace.commit()
        except JournalError as error:
            self._fail(error)
            return
        if len(self._replies) > 0:
            self._issue_replies()
        dirty, self._dirty = self._dirty, set()
        for connection in dirty:
            connection.flush()
        self._set_timer()

    def _issue_replies(self) -> None:
        replies, self._replies = self._replies, []
        last = len(replies) - 1
        for number, (connection, reply) in enumerate(replies):
            if not connection.closed:
                self._issue_reply(connection, reply, last=number == last)

    def _issue_reply(self, connection: BrokerConnection, reply: Callable[[], None], *, last: bool) -> None:
        try:
            reply()
            if not last:
                # The frame of the last reply is written by the flush.
                connection.write_frames()
        except Exception:  # noqa: BLE001 - one client's failure must not keep other clients from their replies
            name = self.namespace.name
            about = event("answer-failed", namespace=name)
            _log.exception("namespace %s: a reply failed; its connection is dropped", name, extra=about)
            connection.abort()
        else:
            self._dirty.add(connection)

    def _apply_effects(self, effects: EffectBatch) -> None:
        for session_lock in effects.lost_session_locks:
            link = self._by_session_lock.get(session_lock)
            if link is not None:
                link.close_with_error(SessionLockLost(f"the lock on session {session_lock.session_id!r} has expired"))
        if len(effects.invalidated) > 0:
            self._close_unusable_links(effects.invalidated)
        for queue in effects.changed:
            for waiter in tuple(self._waiters.get(queue, ())):
                if not waiter.try_session():
                    break
            if isinstance(queue, MessageQueue):
                self._ready_queues.add(queue)

    def _serve(self, queue: MessageQueue) -> None:
        links = self._outgoing.get(queue)
        if links is None:
            return
        if not queue.nothing_ready:
            self._distribute(queue, links=links)
        for link in tuple(links):
            link.complete_drain()
        if len(links) > 1:
            # Round robin: the link served first is served last in the next cycle.
            links.rotate(-1)

    def _distribute(self, queue: MessageQueue, *, links: Iterable[OutgoingLink]) -> None:
        demands = []
        for link in links:
            demand = link.demand
            if demand > 0:
                demands.append((link, demand))
        if len(demands) == 0:
            return
        share = None if len(demands) == 1 else -(-queue.ready_count() // len(demands))
        delivered = 0
        for link, demand in demands:
            waiting = queue.ready_count(link.session_lock)
            if waiting > 0:
                limit = waiting if share is None or link.session_lock is not None else share
                delivered += link.deliver(min(limit, demand))
        if self.namespace.throttle is not None:
            self.namespace.throttle.spend(delivered)
        if delivered > 0:
            for link, _ in demands:
                if link.demand > 0 and queue.ready_count(link.session_lock) > 0:
                    # In the next cycle, so that other queues and clients are served in between.
                    self.request_delivery(queue)
                    break

    def _close_unusable_links(self, keys: frozenset[int]) -> None:
        for link in [link for link in self._links if link.entity.key in keys]:
            error = link.closing_error()
            if error is not None:
                link.close_with_error(error)

    def _set_timer(self) -> None:
        # Keep a timer that is too early: one needless cycle costs less than a new timer for each lock.
        if self._timer_due is not None and self._timer_due <= self.namespace.not_before:
            return
        due = self.namespace.next_due()
        if due is None or (self._timer_due is not None and self._timer_due <= due):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due = due
        # One millisecond late, because waking early would mean waking twice.
        self._timer = self.call_later(max(0, due - self._clock.now()) + 1, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._timer_due = None
        self.schedule_cycle()

    def _fail(self, error: JournalError) -> None:
        self._stopped = True
        name = self.namespace.name
        about = event("store-failed", namespace=name)
        _log.critical("namespace %s: cannot store its state and stops: %s", name, error, extra=about)
        for connection in tuple(self._connections):
            connection.abort()
        self._on_failure(error)


def _remove_from(by_queue: dict[TimerDriven, deque[Any]], *, key: TimerDriven, item: object) -> None:
    items = by_queue.get(key)
    if items is not None and item in items:
        items.remove(item)
        if len(items) == 0:
            del by_queue[key]
