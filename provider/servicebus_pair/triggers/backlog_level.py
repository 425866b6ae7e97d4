"""``BacklogLevelTrigger``: waits in the triggerer until the backlog is drained, or filled."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from datetime import timedelta
from typing import Any

from servicebus_pair.airflow_runtime.validators import choice, duration, integer, optional, poll_interval_seconds, text
from servicebus_pair.airflow_runtime.waiting.backlog import BacklogCondition, BacklogDepth, Until, read_backlog_depth
from servicebus_pair.airflow_runtime.waiting.deferral import DeferralTrigger
from servicebus_pair.airflow_runtime.waiting.pair_cache import shared_pair
from servicebus_pair.core.errors import ConfigurationError, PairError
from servicebus_pair.core.model import get_logger
from servicebus_pair.hooks.servicebus_pair import ServiceBusPairHook

__all__ = ["BacklogLevelTrigger"]

_log = get_logger(__name__)
_age = duration(timedelta(microseconds=1))


class BacklogLevelTrigger(DeferralTrigger):
    """Reads the depth of the backlog until it meets the condition, then fires once. It never moves messages.

    The event is ``{"messages": n, "queues": n, "oldest_seconds": x, "spooled": n}``. When the secondary does not
    answer, the reading is repeated. All of these triggers in one triggerer share their readings.

    :param until: ``drained`` or ``filled``.
    :param messages: threshold in messages, as in ``BacklogCondition``.
    :param age: threshold for the age of the oldest message, in seconds; ``None`` to ignore ages.
    :param interval: seconds between two readings, 1 to 3600; each is billed as a management call.
    :param spool: in place of the connection's spool.
    :raises ConfigurationError: a parameter is invalid.
    """

    def __init__(
        self,
        *,
        servicebus_pair_conn_id: str,
        until: str,
        messages: int,
        age: float | None,
        interval: float,
        spool: str | None = None,
        carry: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(servicebus_pair_conn_id=servicebus_pair_conn_id, carry=carry)
        self.condition = BacklogCondition(
            until=Until(choice(*Until)("until", until)),
            messages=integer(0)("messages", messages),
            age=None if age is None else _age("age", age).total_seconds(),
        )
        self.interval = poll_interval_seconds("interval", interval)
        self.spool = optional(text)("spool", spool)
        self.check_arguments()

    def arguments(self) -> dict[str, Any]:
        """Return the condition, the interval and the spool."""
        until = self.condition.until.value
        return {**asdict(self.condition), "until": until, "interval": self.interval, "spool": self.spool}

    async def event_payload(self) -> dict[str, Any]:
        """Wait until the backlog meets the condition."""
        return (await self.wait()).to_json()

    async def wait(self) -> BacklogDepth:
        """Wait until the backlog meets the condition and return its depth.

        :raises ConfigurationError: the connection is invalid.
        """
        with_ages = self.condition.age is not None
        while True:
            async with shared_pair(ServiceBusPairHook(self.servicebus_pair_conn_id, spool=self.spool)) as shared:
                try:
                    depth = await read_backlog_depth(
                        shared, conn_id=self.servicebus_pair_conn_id, max_age=self.interval, with_ages=with_ages
                    )
                except ConfigurationError:
                    raise
                except PairError as error:
                    _log.warning("conn_id=%s: cannot read the backlog: %s", self.servicebus_pair_conn_id, error)
                else:
                    if self.condition.is_met_by(depth):
                        return depth
                await asyncio.sleep(self.interval)
