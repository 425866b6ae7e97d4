"""Pings: finding out whether a failed-over entity accepts sends again (SPEC section 5).

One task per failed-over entity and process. Processes that share a store take turns by chance: each
looks there first, and leaves its own ping when another's is younger than the interval.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from datetime import timedelta
from random import Random
from typing import Final

from azure.servicebus import ServiceBusMessage

from servicebus_pair.core.board import HealthBoard
from servicebus_pair.core.clients import NamespaceClient
from servicebus_pair.core.errors import EntityNotFoundError, PairClosedError, ServiceError
from servicebus_pair.core.events import Pinged
from servicebus_pair.core.health import EntityMissing, PingFailed, PingSucceeded
from servicebus_pair.core.options import PairOptions
from servicebus_pair.core.ordering import SessionOrder
from servicebus_pair.core.ports import Clock

__all__ = ["PING_CONTENT_TYPE", "PING_LIFE", "Prober", "ping_message"]

_log = logging.getLogger(__name__)
PING_CONTENT_TYPE: Final = "application/vnd.ms-servicebus-ping"
PING_LIFE: Final = timedelta(seconds=1)
# Seconds: what a process waits beyond another's interval, so that not all of them ask at once.
_LONGEST_LATENESS: Final = 1.0
# Seconds that a ping waits for the store: one that hangs must not hold up the way back.
_STORE_SECONDS: Final = 0.5


class Prober:
    """Pings entities of the primary; one task per failed-over entity and process.

    :param primary: client of the primary namespace.
    :param random: spreads the turns of processes that share a store.
    :param order: in session order an entity that accepts sends stays failed over until its backlog is empty.
    """

    def __init__(
        self,
        primary: NamespaceClient,
        board: HealthBoard,
        options: PairOptions,
        *,
        clock: Clock,
        random: Random,
        order: SessionOrder | None = None,
    ) -> None:
        self._primary = primary
        self._board = board
        self._random = random
        self._order = order
        self._by_link = options.probe == "link"
        self._interval = options.ping_primary_interval.total_seconds()
        # A ping that outlives the pause between pings would delay the next one.
        self._timeout = options.ping_timeout.total_seconds()
        self._grace = options.close_grace.total_seconds()
        self._clock = clock
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def ping(self, entity: str) -> bool:
        """Ask ``entity`` on the primary once whether it accepts sends, and record what came of it.

        The ping is empty, lives 1 s and carries a random session id, so that session queues take
        it too. The service is documented never to deliver it; it is billed as a message. With
        ``probe="link"`` a sender is opened instead, and nothing is sent.

        An entity that does not exist (any more) is not failed over any more either: its sends raise that.

        :returns: True when the entity accepted it (and, in session order, its backlog is empty); it is
            healthy from then on.
        """
        link, timeout = self._primary.send_link(entity), min(self._timeout, max(self._interval, 1.0))
        began = self._clock.now()
        failure: ServiceError | None = None
        try:
            if self._by_link:
                await link.reopen(timeout=timeout)
            else:
                await link.send_one(ping_message(), timeout=timeout)
        except ServiceError as error:
            failure = error
        ended = self._clock.now()
        name = None if failure is None else type(failure).__name__
        self._board.mention(Pinged(entity, failure is None, ended - began, name, ended))
        match failure:
            case None:
                return await self._fail_back(entity, PingSucceeded(began))
            case EntityNotFoundError():
                await self._fail_back(entity, EntityMissing(began))
            case _:
                self._board.apply(entity, PingFailed(began))
        return False

    async def _fail_back(self, entity: str, answer: PingSucceeded | EntityMissing) -> bool:
        if self._order is None:
            self._board.apply(entity, answer)
            return True
        async with self._order.fail_back(entity) as empty:
            self._board.apply(entity, answer if empty else PingFailed(answer.began))
        return empty

    def start(self, entity: str) -> None:
        """Ping ``entity`` every ``ping_primary_interval`` until it is healthy. Idempotent."""
        running = self._tasks.get(entity.casefold())
        if running is None or running.done():
            self._tasks[entity.casefold()] = asyncio.get_running_loop().create_task(
                self._run(entity), name=f"ping {entity}"
            )

    def stop(self, entity: str) -> None:
        """Stop the pings of ``entity``; a ping in flight may call this for itself."""
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
            await asyncio.wait(tasks, timeout=self._grace)

    async def _run(self, entity: str) -> None:
        try:
            await self._run_turns(entity)
        except PairClosedError as error:
            _log.info("entity=%s: no pings any more: %s", entity, error)

    async def _run_turns(self, entity: str) -> None:
        """Ping in a fixed rhythm, so that one which hangs delays no other; another process's ping counts too."""
        turn, known = self._first_turn(entity), self._board.current(entity).last_ping
        while self._board.current(entity).failed_over:
            await self._clock.sleep(max(0.0, turn - self._clock.now()))
            health = await self._board.refresh(entity, seconds=_STORE_SECONDS)
            if not health.failed_over:
                return
            now, asked = self._clock.now(), health.last_ping
            if asked is not None and asked != known and asked + self._interval > turn:
                # Another process has asked after us: its turn is before ours from now on.
                turn, known = min(asked, now) + self._interval + self._late(), asked
                continue
            turn = now + self._interval
            if health.held(now):
                continue
            await self._ping_whatever_happens(entity)
            known = self._board.current(entity).last_ping

    async def _ping_whatever_happens(self, entity: str) -> None:
        """Ping; a failure that nobody foresaw ends this ping and not all of them: the entity would stay failed over."""
        try:
            await self.ping(entity)
        except PairClosedError:
            raise
        except Exception:  # noqa: BLE001 - see above
            _log.exception("entity=%s: a ping ended in a way that was not foreseen; the next one is due", entity)

    def _first_turn(self, entity: str) -> float:
        health, now = self._board.current(entity), self._clock.now()
        seen = health.since if health.last_ping is None else max(health.since, health.last_ping)
        turn = seen + self._interval
        return (turn if now < turn < now + self._interval else now + self._interval) + self._late()

    def _late(self) -> float:
        """By how much a process lets those go first that know better, or have better luck."""
        return self._random.uniform(0, min(_LONGEST_LATENESS, self._interval / 10))


def ping_message() -> ServiceBusMessage:
    """Make a ping as the original made it."""
    return ServiceBusMessage(
        b"",
        content_type=PING_CONTENT_TYPE,
        time_to_live=PING_LIFE,
        session_id=uuid.uuid4().hex,
        message_id=uuid.uuid4().hex,
    )
