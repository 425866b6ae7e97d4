"""``BacklogLevelTrigger``: waits, off the worker, until the backlog is drained, or filled."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from servicebus_pair.core.errors import ConfigurationError, PairError
from servicebus_pair.hooks.backlog import BacklogCondition, Depth, Until, look_at_backlog
from servicebus_pair.hooks.servicebus_pair import ServiceBusPairHook
from servicebus_pair.hooks.sharing import watched_pair
from servicebus_pair.hooks.waiting import SHORTEST_DEFERRAL_SECONDS, check_interval

__all__ = ["BacklogLevelTrigger"]

_log = logging.getLogger(__name__)


class BacklogLevelTrigger(BaseTrigger):
    """Looks at the backlog until it is as asked for, then fires once. It never moves a message.

    The event is ``{"messages": n, "queues": n, "oldest_seconds": x}``, or ``{"error": ...}`` when the
    connection cannot be read. It comes no earlier than after 3 s. A secondary that does not answer
    is asked again. Nothing needs to be undone when it is cancelled; all of these in one triggerer
    share their looks.

    :param conn_id: the connection; its secrets are read where the trigger runs.
    :param until: ``drained`` or ``filled``.
    :param messages: how many, as in ``BacklogCondition``.
    :param age: of the oldest message, in seconds; ``None`` when it does not matter.
    :param interval: seconds between two looks, 1 to 3600; each is billed as a management call.
    :param carry: what the task wants to find in the event, under this name: an operator forgets all else.
    :raises ConfigurationError: ``interval`` is out of range.
    """

    def __init__(
        self,
        *,
        conn_id: str,
        until: str,
        messages: int,
        age: float | None,
        interval: float,
        carry: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.carry = carry
        self.conn_id = conn_id
        self.condition = BacklogCondition(until=Until(until), messages=messages, age=age)
        self.interval = check_interval("interval", interval)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return what recreates this trigger elsewhere: no secrets."""
        wanted = self.condition
        return (
            f"{type(self).__module__}.{type(self).__qualname__}",
            {
                "conn_id": self.conn_id,
                "until": wanted.until.value,
                "messages": wanted.messages,
                "age": wanted.age,
                "interval": self.interval,
                "carry": self.carry,
            },
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait, then fire."""
        began = time.monotonic()
        try:
            found = (await self.wait()).to_json()
        except ConfigurationError as error:
            found = {"error": str(error)}
        await asyncio.sleep(max(0.0, began + SHORTEST_DEFERRAL_SECONDS - time.monotonic()))
        if self.carry is not None:
            found["carry"] = self.carry
        yield TriggerEvent(found)  # type: ignore[no-untyped-call]

    async def wait(self) -> Depth:
        """Return what the backlog holds as soon as it is as asked for.

        :raises ConfigurationError: the connection cannot be used.
        """
        while True:
            async with watched_pair(ServiceBusPairHook(self.conn_id)) as watched:
                try:
                    depth = await look_at_backlog(
                        watched, conn_id=self.conn_id, young=self.interval, ages=self.condition.age is not None
                    )
                except ConfigurationError:
                    raise
                except PairError as error:
                    _log.warning("conn_id=%s: the backlog cannot be seen: %s", self.conn_id, error)
                else:
                    if self.condition.holds(depth):
                        return depth
                await asyncio.sleep(self.interval)
