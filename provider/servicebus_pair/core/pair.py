"""``NamespacePair``: the public face of the core."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from random import Random, SystemRandom
from types import TracebackType
from typing import Final, Self

from servicebus_pair.core.administration import Administration, QueueDepth
from servicebus_pair.core.backlog import BacklogPlan, backlog_prefix, backlog_queues
from servicebus_pair.core.board import HealthBoard
from servicebus_pair.core.cleaner import Cleaner
from servicebus_pair.core.clients import NamespaceClient
from servicebus_pair.core.costs import Operations, idle_syphon, pinging, syphoned
from servicebus_pair.core.drill import DrillReport, drill
from servicebus_pair.core.errors import ConfigurationError, PairClosedError
from servicebus_pair.core.events import Observer
from servicebus_pair.core.health import EntityHealth, FailOver, MarkHealthy
from servicebus_pair.core.home import Home
from servicebus_pair.core.management import administration_of
from servicebus_pair.core.meter import Meter, Operation
from servicebus_pair.core.options import Endpoint, PairOptions, check_distinct
from servicebus_pair.core.ordering import SessionOrder
from servicebus_pair.core.parcels import Selection, TimeToLive
from servicebus_pair.core.partners import Partners
from servicebus_pair.core.ports import Clock, HealthStore, InMemoryHealthStore, SystemClock
from servicebus_pair.core.prober import Prober
from servicebus_pair.core.provisioner import Provisioner
from servicebus_pair.core.rests import Rests
from servicebus_pair.core.results import CleanupReport, DrainReport, ProvisionReport
from servicebus_pair.core.rotation import BacklogRotation
from servicebus_pair.core.sender import PairSender
from servicebus_pair.core.shared import Shared
from servicebus_pair.core.syphon import Syphon
from servicebus_pair.core.throttle import Throttle
from servicebus_pair.core.transport import PairTransport
from servicebus_pair.core.workshop import Workshop

__all__ = ["NamespacePair"]

_log = logging.getLogger(__name__)
_NONE: Final = timedelta(0)
_DRILL_LIMIT: Final = timedelta(minutes=2)
_DRILL_LIFE: Final = timedelta(hours=1)


class NamespacePair:
    """A primary and a secondary namespace; an asynchronous context manager.

    Guarantee: send availability, at least once. A message for which ``send`` returned is on the
    primary or in a backlog queue, and leaves the backlog only after the primary has confirmed it.

    :param primary: where the application's entities live.
    :param secondary: holds only backlog queues; managed through Azure Resource Manager if it has ``arm``.
    :param options: intervals and counts.
    :param store: health shared with other processes; in memory when not given.
    :param observers: told every decision as an event, in order.
    :param clock: time, injected by tests.
    :param random_source: source of the choice of backlog queues and of the spread of pings, injected by tests.
    :raises ConfigurationError: both endpoints are the same namespace.
    """

    def __init__(
        self,
        primary: Endpoint,
        secondary: Endpoint,
        options: PairOptions | None = None,
        *,
        store: HealthStore | None = None,
        observers: Sequence[Observer] = (),
        clock: Clock | None = None,
        random_source: Random | None = None,
    ) -> None:
        check_distinct(primary, secondary)
        self.primary = primary
        self.secondary = secondary
        self.options = PairOptions() if options is None else options
        self._clock = SystemClock() if clock is None else clock
        self._queues = backlog_queues(primary.namespace, self.options.backlog_queue_count)
        self._random = SystemRandom() if random_source is None else random_source
        self._rotation = BacklogRotation(self._queues, random=self._random)
        self._board = HealthBoard(
            self.options,
            store=InMemoryHealthStore() if store is None else store,
            observers=observers,
            clock=self._clock,
        )
        self.meter = Meter()
        self._shared: Shared | None = None
        self._partners: Partners | None = None
        self._running_syphon: asyncio.Task[DrainReport] | None = None

    async def __aenter__(self) -> Self:
        if self._shared is not None:
            raise ConfigurationError("the pair is open already: share it, or make another one of the same endpoints")
        primary = NamespaceClient(self.primary, meter=self.meter)
        secondary = NamespaceClient(self.secondary, meter=self.meter, sends=Operation.DIVERT)
        grace = self.options.close_grace.total_seconds()
        self._partners = Partners(primary, secondary, grace=grace, clock=self._clock)
        order = SessionOrder(secondary, self._queues) if self.options.ordering == "session" else None
        prober = Prober(primary, self._board, self.options, clock=self._clock, random=self._random, order=order)
        self._board.on_failed_over, self._board.on_recovered = prober.start, prober.stop
        self._shared = Shared(
            options=self.options,
            primary=primary,
            secondary=secondary,
            board=self._board,
            prober=prober,
            rotation=self._rotation,
            clock=self._clock,
            home=Home(),
            order=order,
        )
        if self.options.enable_syphon:
            self._running_syphon = asyncio.create_task(self.syphon().run(lasting=True), name="syphon")
        for entity, health in self._board.entities().items():
            if health.failed_over:
                # It was when the pair was closed, and nobody has looked since.
                prober.start(entity)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Refuse new sends, let those in flight finish, stop the syphon and the pings, close both clients.

        Idempotent. Each step is bounded: a send that is still in flight after ``close_grace`` ends with a
        ``SendError`` that carries its messages.

        :raises PairClosedError: the pair was opened in another process or event loop, and is open there still.
        """
        if self._shared is None:
            return
        shared = self._open()
        self._shared = None
        try:
            await self._finish(shared)
        finally:
            # Also when the closing itself is cancelled: nothing may stay connected.
            await asyncio.gather(shared.primary.close(), shared.secondary.close())

    async def _finish(self, shared: Shared) -> None:
        """Let what is under way come to its end, within the grace."""
        grace = self.options.close_grace.total_seconds()
        left = await shared.traffic.close(grace=grace)
        if left:
            _log.warning("closing: sends in flight=%d did not finish in %gs", left, grace)
        if self._running_syphon is not None:
            self._running_syphon.cancel()
            await asyncio.wait({self._running_syphon}, timeout=grace)
        await shared.prober.close()
        await self._board.close()
        if self._partners is not None:
            await self._partners.close()

    async def provision(self) -> ProvisionReport:
        """Create the backlog queues that are missing on the secondary (SPEC section 3). Idempotent.

        :raises ProvisionError: not authorized, or no queue is usable.
        :raises ServiceError: the secondary's administration cannot be reached.
        """
        async with self._manage() as administration:
            return await self._provisioner(administration).provision()

    async def plan(self) -> BacklogPlan:
        """Answer what :meth:`provision` would do. :raises ServiceError: as there."""
        async with self._manage() as administration:
            return await self._provisioner(administration).plan()

    async def plan_cleanup(self, *, everything: bool = False, only: Collection[str] | None = None) -> tuple[str, ...]:
        """Answer which backlog queues :meth:`cleanup` would delete if they are empty.

        :param only: none but these, by path; any when not given.
        :raises ServiceError: the secondary's administration cannot be reached.
        """
        async with self._manage() as administration:
            return await self._cleaner(administration).plan(everything=everything, only=only)

    async def cleanup(
        self, *, everything: bool = False, force: bool = False, only: Collection[str] | None = None
    ) -> CleanupReport:
        """Delete backlog queues with an index beyond the count, if they are empty (SPEC section 3).

        :param everything: all backlog queues of this pair, not only the extra ones.
        :param force: with the messages that they hold, which are lost.
        :param only: none but these, by path; any when not given.
        :raises ServiceError: the secondary's administration cannot be reached.
        """
        async with self._manage() as administration:
            return await self._cleaner(administration).clean(everything=everything, force=force, only=only)

    async def backlog_depths(self) -> list[QueueDepth]:
        """Answer how much each backlog queue holds; one listing of the secondary.

        :raises ServiceError: the secondary's administration cannot be reached.
        """
        async with self._manage() as administration:
            return await administration.depths(backlog_prefix(self.primary.namespace))

    def sender(self, entity: str) -> PairSender:
        """Answer a sender for a queue or topic path of the primary; enter it before sending."""
        return PairSender(entity, self._open(making=True))

    async def ping(self, entity: str) -> bool:
        """Ping ``entity`` on the primary once; True when it accepted, and it is healthy from then on."""
        return await self._open().prober.ping(entity)

    def syphon(
        self,
        queues: Sequence[str] | None = None,
        *,
        entities: Iterable[str] | None = None,
        rate: float | None = None,
        time_to_live: TimeToLive = TimeToLive.RESTART,
        redrive: bool = False,
    ) -> Syphon:
        """Answer a syphon over all backlog queues, or over ``queues`` of them.

        :param entities: move only what is meant for these; ``None`` moves everything.
        :param rate: most messages a second; ``None`` for no limit.
        :param time_to_live: whether a time to live starts again on the primary, or has elapsed in the backlog.
        :param redrive: move what the dead-letter queues of the backlog hold, once its cause is mended.
        :raises ConfigurationError: a queue is not a backlog queue of this pair, or the rate is not above 0.
        """
        chosen = self._queues if queues is None else tuple(queues)
        prefix = backlog_prefix(self.primary.namespace).casefold()
        for queue in chosen:
            if not queue.casefold().startswith(prefix):
                raise ConfigurationError(f"queue {queue!r} is not a backlog queue: they begin with {prefix!r}")
        shared = self._open(making=True)
        first_rest = self.options.syphon_retry_interval.total_seconds()
        shop = Workshop(
            transport=PairTransport(shared.primary, shared.secondary),
            clock=self._clock,
            tell=self._board.tell,
            rests=Rests(first=first_rest),
            throttle=Throttle(rate, clock=self._clock),
            most=self.options.syphon_batch_size,
            selection=Selection.of(entities),
            time_to_live=time_to_live,
            redrive=redrive,
            ordered=self.options.ordering == "session",
        )
        long_poll = self.options.syphon_long_poll.total_seconds()
        return Syphon(shop, chosen, first_rest=first_rest, long_poll=long_poll, count=self._count)

    async def _count(self, queues: Collection[str]) -> int:
        """How many messages wait in ``queues``. :raises ServiceError: they cannot be counted."""
        wanted = {queue.casefold() for queue in queues}
        return sum(depth.active for depth in await self.backlog_depths() if depth.path.casefold() in wanted)

    def fail_over(self, entity: str, *, reason: str, by: str = "caller", hold: timedelta = _NONE) -> EntityHealth:
        """Send ``entity`` to the backlog from now on, until a ping succeeds or it is marked healthy.

        :param hold: for so long no ping ends it, here and in other processes; it heals itself afterwards.
        """
        self._open()
        return self._board.apply(entity, FailOver(reason, by, hold.total_seconds()))

    def mark_healthy(self, entity: str, *, reason: str = "marked healthy", by: str = "caller") -> EntityHealth:
        """Send ``entity`` to the primary from now on."""
        self._open()
        return self._board.apply(entity, MarkHealthy(reason, by))

    def health(self, entity: str) -> EntityHealth:
        """Answer what this process knows of the health of ``entity``."""
        return self._board.current(entity)

    async def drill(
        self,
        entity: str,
        *,
        messages: int = 10,
        by: str = "caller",
        limit: timedelta = _DRILL_LIMIT,
        life: timedelta = _DRILL_LIFE,
    ) -> DrillReport:
        """Fail over on purpose, send marked messages, fail back, drain, verify, report (SPEC section 5).

        The primary stays up. Messages that applications send meanwhile take the way through the
        backlog and are not lost; they arrive when the drill ends. Marked messages carry the application
        property ``x-servicebus-pair-drill``: consumers tell them by ``drill_of``. Whatever happens,
        the entity is not left failed over: a drill that fails or is cancelled fails back, and one that is
        killed leaves a failover which, with a shared store, the other processes' pings end after ``limit``. What it
        diverted waits in the backlog for any syphon or drain. An outage in the middle of it is found by the first
        send after it, as any other; then the report says what is left.

        :param messages: marked messages, at least 1.
        :param by: who drills, for the record.
        :param limit: longest time of the failover, and again of the drain.
        :param life: time to live of the marked messages.
        :raises DrillError: the entity is failed over already or takes no ping, an argument is out of range (nothing
            was done then), or the marked messages could not be sent.
        :raises AuthorizationError: the right to drain is missing; what was diverted waits in the backlog.
        """
        return await drill(self, self._open(), entity, messages=messages, by=by, limit=limit, life=life)

    def cost(
        self,
        *,
        period: timedelta = timedelta(days=30),
        messages: int = 0,
        size_bytes: int = 1024,
        outage: timedelta = _NONE,
    ) -> Operations:
        """Answer the operations that this pair's backlog takes in ``period``, before anything was sent.

        Give them to ``bill`` for the money. What really happened is in :attr:`meter`.

        :param period: of which the syphon polls all, but for nothing.
        :param messages: that take the way through the backlog, each of ``size_bytes``.
        :param outage: of one entity, during which it is pinged.
        """
        idle = idle_syphon(
            queues=self.options.backlog_queue_count, long_poll=self.options.syphon_long_poll, period=period
        )
        pings = pinging(outage=outage, interval=self.options.ping_primary_interval)
        return idle + pings + syphoned(messages, size_bytes=size_bytes)

    def _open(self, *, making: bool = False) -> Shared:
        if self._shared is None:
            raise PairClosedError("the pair is not open: use it inside 'async with NamespacePair(...) as pair'")
        self._shared.home.check(making=making)
        return self._shared

    def _manage(self) -> AbstractAsyncContextManager[Administration]:
        return administration_of(self.secondary, meter=self.meter)

    def _cleaner(self, administration: Administration) -> Cleaner:
        return Cleaner(administration, namespace=self.primary.namespace, count=self.options.backlog_queue_count)

    def _provisioner(self, administration: Administration) -> Provisioner:
        return Provisioner(
            administration,
            namespace=self.primary.namespace,
            count=self.options.backlog_queue_count,
            clock=self._clock,
        )
