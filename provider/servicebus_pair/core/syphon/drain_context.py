"""What all workers of one syphon share: transport, policies, and the state of the destinations."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from servicebus_pair.core.health.backlog_reports import BacklogReports
from servicebus_pair.core.model.errors import AuthorizationError, ServiceError
from servicebus_pair.core.model.events import Event
from servicebus_pair.core.model.interfaces import Clock
from servicebus_pair.core.model.logs import get_logger
from servicebus_pair.core.protocol.backlog_queues import backlog_session_id
from servicebus_pair.core.protocol.relayed_message import BacklogRewriter
from servicebus_pair.core.sdk.received_message import ReceivedMessage
from servicebus_pair.core.syphon.backlog_entry import BacklogEntry, Selection, TimeToLive, read_entry
from servicebus_pair.core.syphon.policies.attempt_timeouts import AttemptTimeouts
from servicebus_pair.core.syphon.policies.batch_size import INITIAL_BATCH_SIZE
from servicebus_pair.core.syphon.policies.destination_backoff import (
    DestinationBackoff,
    PermanentFailures,
    explain_destination_error,
)
from servicebus_pair.core.syphon.policies.link_pool import LinkPool
from servicebus_pair.core.syphon.policies.rate_limiter import RateLimiter
from servicebus_pair.core.syphon.ports import Destination, SessionSource, Source, Transport

_log = get_logger(__name__)
# Seconds of one call of a backlog queue.
CALL_TIMEOUT: Final = 10.0
# Message bytes that one link receives at a time; decoded they take a few times as much memory.
MAX_BATCH_BYTES: Final = 16 * 2**20


@dataclass(slots=True)
class DrainContext:
    """Transport, policies and destination state of one syphon.

    :param max_batch_messages: most messages that one link receives at a time.
    :param max_batch_bytes: most bytes that one link receives at a time.
    :param first_batch_messages: most messages that a link receives at first; as many more as arrive fast enough.
    :param sends_at_once: most batches on their way to one destination.
    :param attempt_timeout: seconds of one send; longer while confirmations come late.
    :param pings: a ping, and not a new link, finds out if a destination that rejects a message accepts others.
    :param slow_batch_seconds: a batch that took longer makes the next one smaller.
    :param redrive: receive from the dead-letter queues.
    :param paused: the syphon is paused or stopped: receive nothing more.
    :param continuous: retry permanent failures too, because the syphon runs until it is stopped.
    :param reports: with session order, tells other processes how much is left.
    :param check_owner: raises ``PairClosedError`` in another process or event loop than that of the pair.
    :ivar old_form_seen: an ordinary queue holds messages of sessions, which an earlier version diverted.
    :ivar attempts: how long a send to each destination may take.
    :ivar rejections: how often messages were rejected alone about which there is no verdict yet, by backlog queue and
        sequence number.
    :ivar rewriter: restores messages that are received encoded.
    :ivar permanent_failures: destinations that have refused the credential from the start.
    """

    transport: Transport
    clock: Clock
    emit: Callable[[Event], None]
    backoff: DestinationBackoff
    rate_limiter: RateLimiter
    max_batch_messages: int
    first_batch_messages: int = INITIAL_BATCH_SIZE
    sends_at_once: int = 3
    selection: Selection = field(default_factory=Selection)
    time_to_live: TimeToLive = TimeToLive.RESTART
    ordered: bool = False
    redrive: bool = False
    paused: bool = False
    continuous: bool = False
    old_form_seen: bool = False
    reports: BacklogReports | None = None
    check_owner: Callable[[], None] = lambda: None
    permanent_failures: PermanentFailures = field(default_factory=PermanentFailures)
    max_batch_bytes: int = MAX_BATCH_BYTES
    slow_batch_seconds: float = 15.0
    attempt_timeout: float = 10.0
    pings: bool = True
    attempts: AttemptTimeouts = field(init=False)
    rejections: Counter[tuple[str, int]] = field(default_factory=Counter)
    rewriter: BacklogRewriter = field(init=False)
    _links: LinkPool = field(init=False)

    def __post_init__(self) -> None:
        self.attempts = AttemptTimeouts(self.attempt_timeout)
        self.rewriter = BacklogRewriter(elapses=self.time_to_live is TimeToLive.ELAPSE)
        self._links = LinkPool(self.sends_at_once)

    def source(self, queue: str) -> Source:
        """Return a new link to a backlog queue, or to its dead-letter queue."""
        return self.transport.source(queue, should_stop=lambda: self.paused, dead_letter=self.redrive)

    def read_entry(self, received: ReceivedMessage, *, now: float) -> BacklogEntry:
        """Restore the original of a received message. :raises UndeliverableError: it can never be delivered."""
        return read_entry(received, policy=self.time_to_live, now=now, rewriter=self.rewriter)

    def request_ahead(self, size: int) -> int:
        """Return how many messages to ask for while a full batch is completed: ``size``, if nothing limits that."""
        return 0 if self.paused or self.rate_limiter.rate is not None else size

    def record_failure(self, entity: str, error: ServiceError, *, started: float, queue: str) -> None:
        """Back off from ``entity``, or abandon it at once if it has refused the credential from the start.

        :param started: when the failed attempt started.
        :param queue: path of the backlog queue that the messages came from.
        """
        now = self.clock.now()
        if isinstance(error, AuthorizationError):
            error = explain_destination_error(error, entity)
            if self.permanent_failures.record(entity, error) and not self.continuous:
                self.backoff.record_permanent_failure(entity, str(error), now=now)
                _log.error("entity=%s is given up queue=%s: %s", entity, queue, error)
                return
        delay = self.backoff.record_failure(entity, str(error), now=now, started=started)
        _log.warning("entity=%s retry_in=%.0fs queue=%s: %s", entity, delay, queue, error)

    def record_success(self, entity: str) -> None:
        """Record that ``entity`` accepts messages."""
        self.backoff.record_success(entity)
        self.permanent_failures.record_success(entity)

    def session_link(self, queue: str, *, wait: float, session_id: str | None = None) -> SessionSource:
        """Return a new link that accepts one session of a backlog queue, waiting ``wait`` seconds for one."""
        return self.transport.session(queue, wait=wait, session_id=session_id, should_stop=lambda: self.paused)

    async def list_sessions(self, queue: str, *, timeout: float = CALL_TIMEOUT) -> list[str]:
        """Return the ids of the sessions of selected entities that hold messages, also of those that are locked.

        :raises ServiceError: the queue cannot be read.
        """
        listed = await self.transport.list_sessions(queue, timeout=timeout)
        entities = self.selection.entities
        wanted = None if entities is None else set(map(backlog_session_id, entities))
        return [session_id for session_id in listed if wanted is None or session_id in wanted]

    @asynccontextmanager
    async def destination(self, entity: str) -> AsyncIterator[Destination]:
        """Wait for exclusive use of a link to ``entity``, which sends one batch after another."""
        async with self._links.acquire(entity) as link_index:
            yield self.transport.destination(entity, link_index=link_index)
