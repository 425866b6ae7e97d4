"""``NamespacePair``, the main class of the core."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from random import Random, SystemRandom
from typing import Final, Self

from servicebus_pair.core.health.backlog_reports import BacklogReports
from servicebus_pair.core.health.ordered_registry import OrderedHealthRegistry
from servicebus_pair.core.health.prober import Prober
from servicebus_pair.core.health.registry import HealthRegistry
from servicebus_pair.core.health.session_ordering import SessionOrdering
from servicebus_pair.core.model.checks import entity_path
from servicebus_pair.core.model.errors import ConfigurationError, HealthStoreError, PairClosedError
from servicebus_pair.core.model.events import Observer
from servicebus_pair.core.model.health_state import EntityHealth
from servicebus_pair.core.model.health_transitions import FailOver, MarkHealthy
from servicebus_pair.core.model.interfaces import BlockingHealthStore, Clock, HealthStore, SystemClock
from servicebus_pair.core.model.logs import get_logger
from servicebus_pair.core.model.options import Endpoint, PairOptions, check_distinct
from servicebus_pair.core.model.redaction import scrub
from servicebus_pair.core.model.usage_meter import Meter, Operation
from servicebus_pair.core.pair.backlog_management import BacklogManagement
from servicebus_pair.core.pair.continuous_syphon import run_continuously
from servicebus_pair.core.pair.drill import DrillReport, drill
from servicebus_pair.core.pair.linked_shutdown import LinkedShutdown
from servicebus_pair.core.pair.spool_recovery import recover
from servicebus_pair.core.protocol.backlog_queues import backlog_prefixes, is_session_queue
from servicebus_pair.core.receive.receiver import PairReceiver, ReceiveContext
from servicebus_pair.core.sdk.namespace_client import NamespaceClient
from servicebus_pair.core.send.pair_context import PairContext, ProcessLoopGuard
from servicebus_pair.core.send.queue_selector import BacklogHealth, QueueSelector
from servicebus_pair.core.send.sender import PairSender
from servicebus_pair.core.spool.drain import SpoolReport
from servicebus_pair.core.spool.spool import SpooledEntity, open_spool
from servicebus_pair.core.syphon.backlog_entry import Selection, TimeToLive
from servicebus_pair.core.syphon.drain import MAX_LINKS, Syphon
from servicebus_pair.core.syphon.drain_context import DrainContext
from servicebus_pair.core.syphon.policies.destination_backoff import DestinationBackoff
from servicebus_pair.core.syphon.policies.rate_limiter import RateLimiter
from servicebus_pair.core.syphon.ports import PairTransport
from servicebus_pair.core.syphon.spool_drain import SPOOL, SpoolDrain

_log = get_logger(__name__)
_NONE: Final = timedelta(0)
_LISTING_TIMEOUT: Final = 10.0
_DRILL_LIMIT: Final = timedelta(minutes=2)
_DRILL_LIFE: Final = timedelta(hours=1)


class NamespacePair(BacklogManagement):
    """A primary and a secondary namespace; an asynchronous context manager.

    Delivery guarantee: at least once. A message for which ``send`` returned is on the primary or in a backlog queue,
    and leaves the backlog only after the primary has accepted it.

    :param primary: namespace of the application's entities.
    :param secondary: namespace of the backlog queues only; managed through Azure Resource Manager if it has ``arm``.
    :param options: intervals and limits.
    :param store: health shared with other processes, in memory and for this pair alone by default. Its methods may be
        coroutines, or plain functions that block: those run in a daemon thread of their own.
    :param observers: receive every event, in order.
    :param clock: time source, and ``random_source`` chooses backlog queues and spreads pings; for tests.
    :raises ConfigurationError: both endpoints are the same namespace.
    """

    def __init__(
        self,
        primary: Endpoint,
        secondary: Endpoint,
        options: PairOptions | None = None,
        *,
        store: HealthStore | BlockingHealthStore | None = None,
        observers: Sequence[Observer] = (),
        clock: Clock | None = None,
        random_source: Random | None = None,
    ) -> None:
        check_distinct(primary, secondary)
        super().__init__(
            primary,
            secondary,
            PairOptions() if options is None else options,
            clock=SystemClock() if clock is None else clock,
            meter=Meter(),
        )
        self._random = SystemRandom() if random_source is None else random_source
        self._queue_selector = QueueSelector(self._queues, random=self._random)
        registry = OrderedHealthRegistry if self._ordered else HealthRegistry
        self._registry = registry(self.options, store=store, observers=observers, clock=self._clock)
        self._reports: BacklogReports | None = None
        if isinstance(self._registry, OrderedHealthRegistry):
            self._reports = BacklogReports(self._registry, self._session_queues, clock=self._clock)
        self._spool = open_spool(self.options, clock=self._clock, emit=self._registry.emit_best_effort)
        self._shared: PairContext | None = None
        self._linked_shutdown: LinkedShutdown | None = None
        self._running_syphon: asyncio.Task[None] | None = None
        self._finishing: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self._wait_until_closed()
        if self._shared is not None:
            raise ConfigurationError("the pair is open already: share it, or create another one with its endpoints")
        most = self.options.max_idle_connections
        primary = NamespaceClient(self.primary, meter=self.meter, max_idle_connections=most)
        secondary = NamespaceClient(
            self.secondary, meter=self.meter, send_operation=Operation.DIVERT, max_idle_connections=most
        )
        grace = self.options.close_grace.total_seconds()
        self._linked_shutdown = LinkedShutdown(primary, secondary, grace=grace, clock=self._clock)
        order = self._session_ordering(secondary)
        prober = Prober(primary, self._registry, self.options, clock=self._clock, random=self._random, order=order)
        self._registry.on_failed_over, self._registry.on_recovered = prober.start, prober.stop
        self._shared = PairContext(
            options=self.options,
            primary=primary,
            secondary=secondary,
            registry=self._registry,
            prober=prober,
            queue_selector=self._queue_selector,
            clock=self._clock,
            owner=ProcessLoopGuard(),
            backlog_health=BacklogHealth(
                clock=self._clock, retry_seconds=self.options.ping_primary_interval.total_seconds()
            ),
            order=order,
            spool=self._spool,
        )
        if self.options.enable_syphon:
            running = run_continuously(self.syphon, clock=self._clock, emit=self._registry.emit_best_effort)
            self._running_syphon = asyncio.create_task(running, name="syphon")
        for entity, health in self._registry.entities().items():
            if health.failed_over:
                # It was failed over when the pair was closed; pings stopped then.
                prober.start(entity)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Reject new sends, wait for those in flight, stop the syphon and the pings, and close both clients.

        Idempotent. A send that is still in flight after ``close_grace`` ends with a ``SendError`` that contains its
        messages. When cancelled, it closes the clients without that grace; when cancelled again, it leaves this to a
        task in the background, which another call waits for.

        :raises PairClosedError: the pair was opened in another process or event loop, where it stays open.
        """
        if self._shared is not None:
            shared = self._open()
            self._shared = None
            self._finishing = asyncio.create_task(self._finish(shared), name="finish sends in flight")
            self._closing = asyncio.create_task(self._close(shared, self._finishing), name="close the pair")
        try:
            await self._wait_until_closed()
        except asyncio.CancelledError:
            if self._finishing is not None:
                self._finishing.cancel()
            await self._wait_until_closed()
            raise

    async def _wait_until_closed(self) -> None:
        if self._closing is not None and not self._closing.done():
            await asyncio.shield(self._closing)

    async def _close(self, shared: PairContext, finishing: asyncio.Task[None]) -> None:
        try:
            await asyncio.wait({finishing})
        finally:
            # Also when that fails: no connection may stay open.
            await asyncio.gather(shared.primary.close(), shared.secondary.close())
        if not finishing.cancelled():
            finishing.result()

    async def _finish(self, shared: PairContext) -> None:
        """Wait for sends in flight within the grace, then stop the background tasks."""
        grace = self.options.close_grace.total_seconds()
        if remaining := await shared.in_flight.close(grace=grace):
            _log.warning("closing: sends in flight=%d did not finish in %gs", remaining, grace)
        if self._running_syphon is not None:
            self._running_syphon.cancel()
            await asyncio.wait({self._running_syphon}, timeout=grace)
        await shared.prober.close()
        await self._registry.close()
        if self._linked_shutdown is not None:
            await self._linked_shutdown.close()

    def _session_ordering(self, secondary: NamespaceClient) -> SessionOrdering | None:
        if not isinstance(self._registry, OrderedHealthRegistry):
            return None
        return SessionOrdering(
            secondary,
            self._registry,
            session_queues=self._session_queues,
            queues=self._queues,
            clock=self._clock,
            spool=self._spool,
        )

    async def waiting_sessions(self, queue: str) -> list[str]:
        """Return, without locking any, the sessions with messages in a backlog queue, also those that a syphon holds.

        There is one session for each entity, with the entity's path as its id (a longer path is shortened).

        :raises ServiceError: the queue cannot be read.
        """
        return await self._open(queue).secondary.list_sessions(queue, timeout=_LISTING_TIMEOUT)

    def sender(self, entity: str) -> PairSender:
        """Return a sender for a queue or topic path of the primary; enter it before sending."""
        return PairSender(entity, self._open(entity, creating=True))

    def receiver(self, entity: str, *, session_id: str | None = None, dead_letter: bool = False) -> PairReceiver:
        """Return a receiver of a queue or ``topic/Subscriptions/name`` of the primary; enter it before receiving.

        :param session_id: receive one session; ``"*"`` for one after the other.
        :param dead_letter: receive from the dead-letter queue.
        :raises ConfigurationError: an argument is invalid.
        """
        shared = self._open(entity, creating=True)
        context = ReceiveContext(
            client=shared.primary,
            prober=shared.prober,
            clock=self._clock,
            ping_interval=self.options.ping_primary_interval.total_seconds(),
        )
        return PairReceiver(entity, context, session_id=session_id, dead_letter=dead_letter)

    async def ping(self, entity: str) -> bool:
        """Ping ``entity`` on the primary once; return whether it accepted, which makes it healthy."""
        return await self._open(entity).prober.ping(entity)

    def syphon(
        self,
        queues: Sequence[str] | None = None,
        *,
        entities: Iterable[str] | None = None,
        rate: float | None = None,
        time_to_live: TimeToLive = TimeToLive.RESTART,
        redrive: bool = False,
    ) -> Syphon:
        """Return a syphon over all backlog queues and the spool, or over ``queues``.

        :param queues: paths of backlog queues; ``"spool"`` among them stands for the spool.
        :param entities: move only messages for these entities; all by default.
        :param rate: maximum messages per second; unlimited by default.
        :param time_to_live: whether the time to live restarts on the primary or has elapsed in the backlog.
        :param redrive: move the dead letters of the backlog queues instead, once their cause is fixed.
        :raises ConfigurationError: a queue is not a backlog queue of this pair, or the rate is not above 0.
        """
        chosen = self._queues + self._session_queues if queues is None else tuple(queues)
        empties_spool = not redrive if queues is None else SPOOL in chosen
        chosen = tuple(queue for queue in chosen if queue != SPOOL)
        prefixes = backlog_prefixes(self.primary.namespace)
        for queue in chosen:
            if not queue.casefold().startswith(prefixes):
                raise ConfigurationError(
                    f"queue {queue!r} is not a backlog queue: they begin with {' or '.join(map(repr, prefixes))}"
                )
        shared = self._open(*chosen, creating=True)
        initial_delay = self.options.syphon_retry_interval.total_seconds()
        max_batch_bytes = self.options.syphon_max_bytes // max(MAX_LINKS, len(chosen))
        transport = PairTransport(shared.primary, shared.secondary, max_bytes=max_batch_bytes)
        context = DrainContext(
            transport=transport,
            clock=self._clock,
            emit=self._registry.emit,
            backoff=DestinationBackoff(initial_delay=initial_delay),
            rate_limiter=RateLimiter(rate, clock=self._clock),
            max_batch_messages=self.options.syphon_batch_size,
            max_batch_bytes=max_batch_bytes,
            first_batch_messages=transport.first_batch_messages,
            sends_at_once=transport.sends_at_once,
            selection=Selection.of(entities),
            time_to_live=time_to_live,
            redrive=redrive,
            check_owner=shared.owner.check,
            ordered=self._ordered,
            reports=self._reports,
            attempt_timeout=self.options.attempt_timeout.total_seconds(),
            pings=self.options.probe == "ping",
        )
        return Syphon(
            context,
            chosen,
            initial_delay=initial_delay,
            long_poll=self.options.syphon_long_poll.total_seconds(),
            count=self._count_messages,
            session_queues=[queue for queue in chosen if is_session_queue(self.primary.namespace, queue)],
            spool=self._spool_drain() if empties_spool else None,
        )

    def _spool_drain(self) -> SpoolDrain | None:
        if self._spool is None:
            return None
        empty = partial(recover, self._spool, self._open())
        return SpoolDrain(empty, interval=self.options.ping_primary_interval.total_seconds())

    async def spooled(self) -> Mapping[str, SpooledEntity]:
        """Return what the spool holds, by folded entity, the one with the oldest message first; nothing without one.

        :raises SpoolError: it cannot be read.
        """
        return {} if self._spool is None else await self._spool.survey()

    async def spool_name(self) -> str | None:
        """Return the name of the spool, by which the ledger knows it; ``None`` if nothing was written to it yet.

        :raises SpoolError: it cannot be read.
        """
        return None if self._spool is None else await self._spool.existing_name()

    async def empty_spool(self) -> SpoolReport:
        """Send what the spool holds to the primary, or to the backlog while only that takes it (SPEC section 10).

        A syphon does the same, and its ``drain`` begins with it. At least once, each entity in the order of writing; an
        entity that fails keeps the rest. Several processes may do this at once.

        :raises SpoolError: the spool cannot be read.
        """
        shared = self._open()
        return SpoolReport() if self._spool is None else await recover(self._spool, shared)

    async def _count_messages(self, queues: Collection[str]) -> int:
        """Return the number of active messages in ``queues``. :raises ServiceError: it cannot be read."""
        wanted = {queue.casefold() for queue in queues}
        return sum(depth.active for depth in await self.backlog_depths() if depth.path.casefold() in wanted)

    async def fail_over(self, entity: str, *, reason: str, by: str = "caller", hold: timedelta = _NONE) -> bool:
        """Send messages for ``entity`` to the backlog from now on, until a ping succeeds or it is marked healthy.

        Effective in this process at once; waits up to 5 s for the health store. With ``ordering="session"`` and a
        shared store, it is effective in all processes after ``health_refresh``, and not at all if the store fails.

        :param reason: recorded with the change, as is ``by``; secrets in it are masked.
        :param hold: minimum duration during which no ping ends the failover, here or in other processes.
        :returns: whether the health store holds the change. If not, other processes keep the health that they know,
            and with ``ordering="session"`` this one does, too.
        """
        return await self._change_health(entity, FailOver(scrub(reason), scrub(by), hold.total_seconds()))

    async def mark_healthy(self, entity: str, *, reason: str = "marked healthy", by: str = "caller") -> bool:
        """Send messages for ``entity`` to the primary from now on; parameters and result as in :meth:`fail_over`."""
        return await self._change_health(entity, MarkHealthy(scrub(reason), scrub(by)))

    async def _change_health(self, entity: str, event: FailOver | MarkHealthy) -> bool:
        self._open(entity)
        try:
            return await self._registry.change(entity, event)
        except HealthStoreError as error:
            _log.error("entity=%s: its health was not changed: %s", entity, error)
            return False

    def health(self, entity: str) -> EntityHealth:
        """Return the health of ``entity`` as known in this process."""
        return self._registry.current(entity)

    async def drill(
        self,
        entity: str,
        *,
        messages: int = 10,
        by: str = "caller",
        limit: timedelta = _DRILL_LIMIT,
        life: timedelta = _DRILL_LIFE,
        both: bool = False,
    ) -> DrillReport:
        """Fail over on purpose, send marked messages, fail back, drain, verify and report (SPEC section 5).

        The primary stays up. Messages that applications send meanwhile go through the backlog and arrive when the drill
        ends. Marked messages have the application property ``x-servicebus-pair-drill``; consumers recognise them with
        ``drill_id``. A drill that fails or is cancelled fails back. One that is killed leaves a failover which, with a
        shared store, the pings of other processes end after ``limit``. Diverted messages stay in the backlog until a
        syphon or drain moves them. The first send after the drill detects an outage that began during it.

        :param messages: number of marked messages, at least 1.
        :param by: who runs the drill, recorded with the failover.
        :param limit: maximum duration of the failover, and again of the drain.
        :param life: time to live of the marked messages.
        :param both: drill an outage of both namespaces: the marked messages go to the spool, and home from there.
        :raises DrillError: the entity is failed over already or does not accept a ping, or an argument is out of range
            (then nothing was done), or the marked messages could not be sent.
        :raises AuthorizationError: the right to drain is missing; diverted messages stay in the backlog.
        """
        return await drill(
            self, self._open(entity), entity, messages=messages, by=by, limit=limit, life=life, both=both
        )

    def _open(self, *paths: str, creating: bool = False) -> PairContext:
        for path in paths:
            entity_path("entity", path)
        if self._shared is None:
            raise PairClosedError("the pair is not open: use it inside 'async with NamespacePair(...) as pair'")
        self._shared.owner.check(creating=creating)
        return self._shared
