"""``ServiceBusBacklogSensor``: succeeds when the backlog is drained, or when it holds something."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from airflow.sdk import BaseSensorOperator, Context, PokeReturnValue, conf

from servicebus_pair.hooks.assets import pair_asset
from servicebus_pair.hooks.backlog import BacklogCondition, Depth, Until, look_at_backlog
from servicebus_pair.hooks.running import CancellableRun
from servicebus_pair.hooks.servicebus_pair import DEFAULT_CONN_ID, ServiceBusPairHook
from servicebus_pair.hooks.sharing import watched_pair
from servicebus_pair.hooks.waiting import check_interval
from servicebus_pair.triggers.backlog_level import BacklogLevelTrigger
from servicebus_pair.triggers.primary_health import check_event

__all__ = ["ServiceBusBacklogSensor"]


class ServiceBusBacklogSensor(BaseSensorOperator):
    """Waits until the backlog queues of a pair are drained, or until they hold something.

    A look is one listing of the secondary, billed as a management call, and with ``age`` a peek into
    each queue besides. It needs the right to manage the secondary. The result is
    ``{"messages": n, "queues": n, "oldest_seconds": x}``, as it was seen; the age only with ``age``.

    :param until: ``drained``: at most ``messages`` are left, none of them older than ``age``;
        ``filled``: at least ``messages`` wait (and at least one), or one that is as old as ``age``.
    :param messages: how many, in all backlog queues together.
    :param age: of the oldest message; not looked at when not given.
    :param poke_interval: seconds between two looks, 1 to 3600.
    :param deferrable: wait in the triggerer and occupy no worker.
    :param conn_id: the connection of type ``servicebus_pair``; not a template.
    :raises ConfigurationError: a parameter or the connection is wrong.
    :raises ServiceError: the secondary cannot be reached at a look in the worker; in the triggerer, looks go on.
    """

    def __init__(
        self,
        *,
        until: str = Until.DRAINED.value,
        messages: int = 0,
        age: timedelta | None = None,
        conn_id: str = DEFAULT_CONN_ID,
        poke_interval: float = 30.0,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        **kwargs: Any,
    ) -> None:
        super().__init__(poke_interval=check_interval("poke_interval", poke_interval), **kwargs)
        self.condition = BacklogCondition.checked(until=until, messages=messages, age=age)
        self.conn_id = conn_id
        self.deferrable = deferrable
        self.inlets = [*self.inlets, pair_asset(conn_id)]
        self._run = CancellableRun()

    def execute(self, context: Context) -> Any:
        """Look once; if the backlog is otherwise, wait in the triggerer or in the worker."""
        if not self.deferrable:
            return super().execute(context)
        depth = self._run.run(self._look())
        if not self.condition.holds(depth):
            wanted = self.condition
            self.log.info("waiting until the backlog is %s: it holds %d messages", wanted.until, depth.messages)
            self.defer(
                trigger=BacklogLevelTrigger(
                    conn_id=self.conn_id,
                    until=wanted.until.value,
                    messages=wanted.messages,
                    age=wanted.age,
                    interval=self.poke_interval,
                ),
                method_name="resume",
                timeout=self.timeout,
            )
        return depth.to_json()

    def poke(self, context: Context) -> PokeReturnValue:  # noqa: ARG002  the base class hands it over
        """Look once."""
        depth = self._run.run(self._look())
        return PokeReturnValue(is_done=self.condition.holds(depth), xcom_value=depth.to_json())

    def resume(self, context: Context, event: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG002  as above
        """Succeed, now that the backlog is as it was waited for."""
        check_event(event)
        return dict(event)

    def on_kill(self) -> None:
        """Cancel the look."""
        self._run.cancel()

    async def _look(self) -> Depth:
        async with watched_pair(ServiceBusPairHook(self.conn_id)) as watched:
            return await look_at_backlog(watched, conn_id=self.conn_id, young=0.0, ages=self.condition.age is not None)
