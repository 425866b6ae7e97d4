"""Pings failed-over entities to find out whether they accept sends again (SPEC section 5).

One task per failed-over entity and process. Processes that share a health store coordinate through it: each reads the
store before its ping, and skips the ping if another process sent one within the interval.
"""

from __future__ import annotations

import asyncio
import uuid
from datetime import timedelta
from random import Random
from typing import Final

from servicebus_pair.core.health.registry import HealthRegistry
from servicebus_pair.core.health.session_ordering import SessionOrdering
from servicebus_pair.core.model.errors import EntityNotFoundError, HealthStoreError, PairClosedError, ServiceError
from servicebus_pair.core.model.events import Pinged
from servicebus_pair.core.model.health_state import HealthState
from servicebus_pair.core.model.health_transitions import EntityMissing, PingFailed, PingSucceeded
from servicebus_pair.core.model.interfaces import Clock
from servicebus_pair.core.model.logs import get_logger
from servicebus_pair.core.model.options import PairOptions
from servicebus_pair.core.protocol.amqp_message import PING_CONTENT_TYPE, AmqpMessage, new_message
from servicebus_pair.core.sdk.namespace_client import NamespaceClient

_log = get_logger(__name__)
PING_TIME_TO_LIVE: Final = timedelta(seconds=1)
# Random delay in seconds, so that the processes that share a store do not all ping at once.
_MAX_JITTER: Final = 1.0
# A hanging store must not delay failback.
_STORE_TIMEOUT: Final = 0.5
# Each has a connection of its own. A message in the backlog may name any entity; the triggerer pings them all, and can
# often open no more than 1024 files.
_MAX_PINGS_AT_ONCE: Final = 100


class Prober:
    """Pings entities of the primary while they are failed over.

    :param primary: client of the primary namespace.
    :param random: source of the jitter between processes.
    :param order: with session ordering, an entity stays failed over until its backlog is empty.
    """

    def __init__(
        self,
        primary: NamespaceClient,
        registry: HealthRegistry,
        options: PairOptions,
        *,
        clock: Clock,
        random: Random,
        order: SessionOrdering | None = None,
    ) -> None:
        self._primary = primary
        self._registry = registry
        self._random = random
        self._order = order
        self._by_link = options.probe == "link"
        self._interval = options.ping_primary_interval.total_seconds()
        # A ping that takes longer than the interval would delay the next one.
        self._timeout = min(options.ping_timeout.total_seconds(), self._interval)
        self._close_grace = options.close_grace.total_seconds()
        self._clock = clock
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._turns = asyncio.Semaphore(_MAX_PINGS_AT_ONCE)

    async def ping(self, entity: str, *, wait_for_syphons: bool = False) -> bool:
        """Check once whether ``entity`` on the primary accepts sends, and record the result.

        The ping is empty, has a time to live of 1 s and a random session id, so that session queues accept it. The
        service is documented never to deliver it; it is billed as a message. With ``probe="link"`` a sender is
        attached instead, and nothing is sent.

        An entity that does not exist fails back, too: its sends then raise ``EntityNotFoundError``.

        :param wait_for_syphons: with session ordering, give syphons some seconds to say that the backlog is nearly
            empty. For pings in the background: whoever is about to send or to drain would wait for nothing.
        :returns: True when the entity accepted the ping and, with session ordering, its backlog is empty. It is
            healthy from then on.
        """
        started = self._clock.now()
        match await self.probe(entity, timeout=self._timeout):
            case None:
                return await self._fail_back(entity, PingSucceeded(started), wait_for_syphons=wait_for_syphons)
            case EntityNotFoundError():
                await self._fail_back(entity, EntityMissing(started), wait_for_syphons=wait_for_syphons)
            case _:
                self._registry.apply(entity, PingFailed(started))
        return False

    async def probe(self, entity: str, *, timeout: float) -> ServiceError | None:
        """Find out once whether ``entity`` accepts a ping, without a change of its health.

        :param timeout: seconds, from when it is its turn: 100 are probed at once.
        :returns: why it did not; ``None`` if it did.
        """
        async with self._turns:
            return await self._probe(entity, timeout=timeout)

    async def _probe(self, entity: str, *, timeout: float) -> ServiceError | None:
        link = self._primary.send_link(entity)
        started = self._clock.now()
        failure: ServiceError | None = None
        try:
            if self._by_link:
                await link.reopen(timeout=timeout)
            else:
                await link.send_ping(ping_message(), timeout=timeout)
        except ServiceError as error:
            failure = error
        ended = self._clock.now()
        error_name = None if failure is None else type(failure).__name__
        self._registry.emit_best_effort(Pinged(entity, failure is None, ended - started, error_name, ended))
        return failure

    async def _fail_back(self, entity: str, event: PingSucceeded | EntityMissing, *, wait_for_syphons: bool) -> bool:
        health = self._registry.current(entity)
        if self._order is None or not health.failed_over:
            self._registry.apply(entity, event)
            return True
        missing = isinstance(event, EntityMissing)
        reason = "a ping was answered: the entity does not exist" if missing else "a ping was answered"
        try:
            # With session order a ping alone ends no failover. It is recorded, so that other processes need not ping,
            # and that syphons say what is left.
            await self._registry.change(entity, PingFailed(event.began))
            if health.state is HealthState.FAILING_BACK or health.is_held(self._clock.now()):
                return False
            reason = f"{reason}, and its backlog is empty"
            return await self._order.fail_back(entity, reason=reason, by="ping", wait_for_syphons=wait_for_syphons)
        except HealthStoreError as error:
            _log.warning("entity=%s stays failed over: %s", entity, error)
            return False

    def start(self, entity: str) -> None:
        """Ping ``entity`` every ``ping_primary_interval`` until it is healthy. Idempotent."""
        running = self._tasks.get(entity.casefold())
        if running is None or running.done():
            self._tasks[entity.casefold()] = asyncio.get_running_loop().create_task(
                self._run(entity), name="ping an entity"
            )

    def stop(self, entity: str) -> None:
        """Stop pinging ``entity``; the ping task may call this itself."""
        task = self._tasks.pop(entity.casefold(), None)
        if task is not None and task is not asyncio.current_task():
            task.cancel()

    async def close(self) -> None:
        """Stop all pings, within ``close_grace``."""
        tasks = [task for task in self._tasks.values() if not task.done()]
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=self._close_grace)

    async def _run(self, entity: str) -> None:
        try:
            await self._ping_until_healthy(entity)
        except PairClosedError as error:
            _log.info("entity=%s: pings stopped: %s", entity, error)

    async def _ping_until_healthy(self, entity: str) -> None:
        """Ping at a fixed rate, so that a slow ping does not delay the next; another process's ping also counts."""
        due, known_ping = self._first_due(entity), self._registry.current(entity).last_ping
        while self._registry.current(entity).failed_over:
            await self._clock.sleep(due - self._clock.now())
            health = await self._registry.refresh(entity, timeout=_STORE_TIMEOUT)
            if not health.failed_over:
                return
            now, last_ping = self._clock.now(), health.last_ping
            if last_ping is not None and last_ping != known_ping and last_ping + self._interval > due:
                # Another process has pinged since ours: let it go first from now on.
                due, known_ping = min(last_ping, now) + self._interval + self._jitter(), last_ping
                continue
            due = now + self._interval
            if health.is_held(now):
                continue
            await self._ping_logging_errors(entity)
            known_ping = self._registry.current(entity).last_ping

    async def _ping_logging_errors(self, entity: str) -> None:
        """Ping; an unexpected error must not end the task, or the entity would stay failed over."""
        try:
            if self._order is not None:
                await self._order.abandon_dead_failback(entity)
            await self.ping(entity, wait_for_syphons=True)
        except PairClosedError:
            raise
        except Exception:  # noqa: BLE001 - see above
            _log.exception("entity=%s: a ping failed unexpectedly; pings continue", entity)

    def _first_due(self, entity: str) -> float:
        health, now = self._registry.current(entity), self._clock.now()
        last_seen = health.since if health.last_ping is None else max(health.since, health.last_ping)
        due = min(last_seen, now) + self._interval
        return (due if due > now else now + self._interval) + self._jitter()

    def _jitter(self) -> float:
        return self._random.uniform(0, min(_MAX_JITTER, self._interval / 10))


def ping_message(message_id: str | None = None) -> AmqpMessage:
    """Return a new ping, in the format of Microsoft's original paired namespaces."""
    return new_message(
        b"",
        content_type=PING_CONTENT_TYPE,
        time_to_live=PING_TIME_TO_LIVE,
        session_id=uuid.uuid4().hex,
        message_id=uuid.uuid4().hex if message_id is None else message_id,
    )
