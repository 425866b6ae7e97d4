"""``ServiceBusBacklogSensor``: succeeds when the backlog is drained, or when it holds messages."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, ClassVar

from airflow.sdk import BaseSensorOperator, Context, PokeReturnValue

from servicebus_pair.airflow_runtime.airflow_version import conf
from servicebus_pair.airflow_runtime.pair_task import PairTask, failing_at_once
from servicebus_pair.airflow_runtime.validators import (
    choice,
    duration,
    flag,
    integer,
    optional,
    poll_interval_seconds,
)
from servicebus_pair.airflow_runtime.waiting.backlog import BacklogCondition, BacklogDepth, Until, read_backlog_depth
from servicebus_pair.airflow_runtime.waiting.pair_cache import shared_pair
from servicebus_pair.triggers.backlog_level import BacklogLevelTrigger
from servicebus_pair.triggers.primary_health import check_event

__all__ = ["ServiceBusBacklogSensor"]

_until = choice(*Until)
_messages = integer(0)
_age = optional(duration(timedelta(microseconds=1)))


class ServiceBusBacklogSensor(PairTask, BaseSensorOperator):
    """Waits until the backlog queues of a pair and its spool are drained, or until they hold messages.

    One poke is one listing of the secondary's queues, billed as a management call; with ``age`` it also peeks into
    each queue. It needs the Manage right on the secondary. The result is ``{"messages": n, "queues": n,
    "oldest_seconds": x, "spooled": n}`` at the last poke; ``oldest_seconds`` is ``None`` without ``age``.

    :param until: ``drained``: at most ``messages`` are left, none older than ``age``; ``filled``: at least
        ``messages`` (and at least one) wait, or the oldest has reached ``age`` (templated).
    :param messages: threshold in messages, over all backlog queues (templated).
    :param age: threshold for the age of the oldest message: a ``timedelta`` or seconds; ages are ignored when not
        given (templated).
    :param poke_interval: time between two pokes, 1 s to an hour: a ``timedelta`` or seconds.
    :param deferrable: wait in the triggerer and occupy no worker.
    :param servicebus_pair_conn_id: the connection of type ``servicebus_pair``; not a template.
    :raises ConfigurationError: a parameter or the connection is invalid.
    :raises ServiceError: a poke in the worker cannot reach the secondary; the triggerer logs that and continues.
    """

    template_fields = ("until", "messages", "age")
    parameter_checks: ClassVar = {
        "until": _until,
        "messages": _messages,
        "age": _age,
        "poke_interval": poll_interval_seconds,
        "deferrable": flag,
    }
    detects_health: ClassVar = False

    def __init__(
        self,
        *,
        until: str = Until.DRAINED.value,
        messages: int | str = 0,
        age: timedelta | float | str | None = None,
        poke_interval: timedelta | float = 30.0,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        **kwargs: Any,
    ) -> None:
        super().__init__(poke_interval=poll_interval_seconds("poke_interval", poke_interval), **kwargs)
        self.until = until
        self.messages = messages
        self.age = age
        self.deferrable = deferrable
        self.check_parameters()

    @property
    def condition(self) -> BacklogCondition:
        """What to wait for, once templates are rendered."""
        age = _age("age", self.age)
        return BacklogCondition(
            until=Until(_until("until", self.until)),
            messages=_messages("messages", self.messages),
            age=None if age is None else age.total_seconds(),
        )

    @failing_at_once()
    def execute(self, context: Context) -> Any:
        """Poke once; if the condition is not met, wait in the triggerer or in the worker."""
        if not self.deferrable:
            return super().execute(context)
        condition = self.condition
        depth = self.run_async(self._read_depth(condition))
        if not condition.is_met_by(depth):
            self.log.info(
                "waiting until the backlog is %s: it holds %d messages", condition.until, depth.total_messages
            )
            self.defer(
                trigger=BacklogLevelTrigger(
                    servicebus_pair_conn_id=self.servicebus_pair_conn_id,
                    until=condition.until.value,
                    messages=condition.messages,
                    age=condition.age,
                    interval=self.poke_interval,
                ),
                method_name="resume",
                timeout=self.timeout,
            )
        return depth.to_json()

    @failing_at_once()
    def poke(self, context: Context) -> PokeReturnValue:  # noqa: ARG002  the base class passes it
        """Read the depth once."""
        condition = self.condition
        depth = self.run_async(self._read_depth(condition))
        return PokeReturnValue(is_done=condition.is_met_by(depth), xcom_value=depth.to_json())

    @failing_at_once()
    def resume(self, context: Context, event: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG002  as above
        """Succeed with the depth that met the condition."""
        check_event(event, messages=int)
        return dict(event)

    async def _read_depth(self, condition: BacklogCondition) -> BacklogDepth:
        async with shared_pair(self.hook) as shared:
            return await read_backlog_depth(
                shared, conn_id=self.servicebus_pair_conn_id, max_age=0.0, with_ages=condition.age is not None
            )
