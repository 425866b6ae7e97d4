"""Pings: finding out whether a failed-over entity accepts sends again (SPEC section 5)."""

from __future__ import annotations

import asyncio
import uuid
from datetime import timedelta
from typing import Final

from azure.servicebus import ServiceBusMessage

from servicebus_pair.core.board import HealthBoard
from servicebus_pair.core.clients import NamespaceClient
from servicebus_pair.core.errors import ServiceError
from servicebus_pair.core.events import Pinged
from servicebus_pair.core.health import PingFailed, PingSucceeded
from servicebus_pair.core.options import PairOptions
from servicebus_pair.core.ports import Clock

__all__ = ["PING_CONTENT_TYPE", "Prober"]

PING_CONTENT_TYPE: Final = "application/vnd.ms-servicebus-ping"
_PING_LIFE: Final = timedelta(seconds=1)


class Prober:
    """Pings entities of the primary; one task per failed-over entity and process.

    :param primary: client of the primary namespace.
    """

    def __init__(self, primary: NamespaceClient, board: HealthBoard, options: PairOptions, *, clock: Clock) -> None:
        self._primary = primary
        self._board = board
        self._interval = options.ping_primary_interval.total_seconds()
        # A ping that outlives the pause between pings would delay the next one.
        self._timeout = options.ping_timeout.total_seconds()
        self._grace = options.close_grace.total_seconds()
        self._clock = clock
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def ping(self, entity: str) -> bool:
        """Send one ping to ``entity`` on the primary and record what came of it.

        The ping is empty, lives 1 s and carries a random session id, so that session queues take
        it too. The service is documented never to deliver it; it is billed as a message.

        :returns: True when the entity accepted it; it is healthy from then on.
        """
        ping = ServiceBusMessage(
            b"",
            content_type=PING_CONTENT_TYPE,
            time_to_live=_PING_LIFE,
            session_id=uuid.uuid4().hex,
            message_id=uuid.uuid4().hex,
        )
        began = self._clock.now()
        error: str | None = None
        try:
            await self._primary.send_link(entity).send_one(ping, timeout=min(self._timeout, max(self._interval, 1.0)))
        except ServiceError as failure:
            error = type(failure).__name__
        ended = self._clock.now()
        self._board.mention(Pinged(entity, error is None, ended - began, error, ended))
        self._board.apply(entity, PingSucceeded() if error is None else PingFailed())
        return error is None

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
        while self._board.current(entity).failed_over:
            await self._clock.sleep(self._interval)
            await self.ping(entity)
