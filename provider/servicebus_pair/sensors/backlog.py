"""``ServiceBusBacklogSensor``: succeeds when the backlog is drained, or when it holds messages."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from airflow.sdk import BaseSensorOperator, Context, PokeReturnValue, conf

from servicebus_pair.airflow_runtime.cancellable_run import CancellableRun
from servicebus_pair.airflow_runtime.validators import poll_interval_seconds
from servicebus_pair.airflow_runtime.waiting.backlog import BacklogCondition, BacklogDepth, Until, read_backlog_depth
from servicebus_pair.airflow_runtime.waiting.pair_cache import shared_pair
from servicebus_pair.assets import pair_asset
from servicebus_pair.hooks.servicebus_pair import DEFAULT_CONN_ID, ServiceBusPairHook
from servicebus_pair.triggers.backlog_level import BacklogLevelTrigger
from servicebus_pair.triggers.primary_health import check_event

__all__ = ["ServiceBusBacklogSensor"]


class ServiceBusBacklogSensor(BaseSensorOperator):
    """Waits until the backlog queues of a pair are drained, or until they hold messages.

    One poke is one listing of the secondary's queues, billed as a management call; with ``age`` it also peeks into
    each queue. It needs the Manage right on the secondary. The result is ``{"messages": n, "queues": n,
    "oldest_seconds": x}`` at the last poke; ``oldest_seconds`` is ``None`` without ``age``.

    :param until: ``drained``: at most ``messages`` are left, none older than ``age``; ``filled``: at least
        ``messages`` (and at least one) wait, or the oldest has reached ``age``.
    :param messages: threshold in messages, over all backlog queues.
    :param age: threshold for the age of the oldest message; ages are ignored when not given.
    :param poke_interval: seconds between two pokes, 1 to 3600.
    :param deferrable: wait in the triggerer and occupy no worker.
    :param conn_id: the connection of type ``servicebus_pair``; not a template.
    :raises ConfigurationError: a parameter or the connection is invalid.
    :raises ServiceError: a poke in the worker cannot reach the secondary; the triggerer logs that and continues.
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
        super().__init__(poke_interval=poll_interval_seconds("poke_interval", poke_interval), **kwargs)
        self.condition = BacklogCondition.from_parameters(until=until, messages=messages, age=age)
        self.conn_id = conn_id
        self.deferrable = deferrable
        self.inlets = [*self.inlets, pair_asset(conn_id)]
        self._cancellable = CancellableRun()

    def execute(self, context: Context) -> Any:
        """Poke once; if the condition is not met, wait in the triggerer or in the worker."""
        if not self.deferrable:
            return super().execute(context)
        depth = self._cancellable.run(self._read_depth())
        condition = self.condition
        if not condition.is_met_by(depth):
            self.log.info("waiting until the backlog is %s: it holds %d messages", condition.until, depth.messages)
            self.defer(
                trigger=BacklogLevelTrigger(
                    conn_id=self.conn_id,
                    until=condition.until.value,
                    messages=condition.messages,
                    age=condition.age,
                    interval=self.poke_interval,
                ),
                method_name="resume",
                timeout=self.timeout,
            )
        return depth.to_json()

    def poke(self, context: Context) -> PokeReturnValue:  # noqa: ARG002  the base class passes it
        """Read the depth once."""
        depth = self._cancellable.run(self._read_depth())
        return PokeReturnValue(is_done=self.condition.is_met_by(depth), xcom_value=depth.to_json())

    def resume(self, context: Context, event: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG002  as above
        """Succeed with the depth that met the condition."""
        check_event(event)
        return dict(event)

    def on_kill(self) -> None:
        """Cancel the running poke."""
        self._cancellable.cancel()

    async def _read_depth(self) -> BacklogDepth:
        with_ages = self.condition.age is not None
        async with shared_pair(ServiceBusPairHook(self.conn_id)) as shared:
            return await read_backlog_depth(shared, conn_id=self.conn_id, max_age=0.0, with_ages=with_ages)
