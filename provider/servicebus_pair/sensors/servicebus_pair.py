"""``ServiceBusPrimaryHealthSensor``: succeeds when the primary accepts sends again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, ClassVar

from airflow.sdk import BaseSensorOperator, Context, PokeReturnValue

from servicebus_pair.airflow_runtime.airflow_version import conf
from servicebus_pair.airflow_runtime.observers.asset_events import HealthChangeRecorder, emit_recovery
from servicebus_pair.airflow_runtime.pair_task import PairTask, failing_at_once
from servicebus_pair.airflow_runtime.validators import flag, optional_path_list, poll_interval_seconds
from servicebus_pair.airflow_runtime.waiting.pair_cache import shared_pair
from servicebus_pair.airflow_runtime.waiting.primary import PrimaryWait, entities_to_wait_for
from servicebus_pair.core import EntityHealth
from servicebus_pair.core.errors import PairError
from servicebus_pair.triggers.primary_health import PrimaryHealthTrigger, check_event

__all__ = ["EntityRefusedError", "ServiceBusPrimaryHealthSensor"]


class EntityRefusedError(PairError):
    """The primary is up but permanently refuses an entity that was named, so waiting does not help."""


class ServiceBusPrimaryHealthSensor(PairTask, BaseSensorOperator):
    """Pings entities of the primary until each has answered.

    A ping is an empty message with a time to live of one second (SPEC section 5); pings are billed. A recovery that
    the sensor detects is shared with other tasks and emitted as an event of the recovery asset. The result is
    ``{"answered": [...], "refused": {entity: error class}}``.

    :param entities: paths of queues and topics, as a list or a text with commas; when not given or an empty text, the
        entities that are failed over or have messages in the backlog (templated). Only a named entity that the primary
        permanently refuses fails the sensor.
    :param poke_interval: time between two pings, 1 s to an hour: a ``timedelta`` or seconds; in the triggerer, an
        entity that is failed over is pinged every ``ping_primary_interval`` instead.
    :param deferrable: wait in the triggerer and occupy no worker.
    :param servicebus_pair_conn_id: the connection of type ``servicebus_pair``; not a template.
    :raises ConfigurationError: a parameter or the connection is invalid.
    :raises EntityRefusedError: a named entity does not exist on the primary, or the Send right is missing.
    """

    template_fields = ("entities",)
    portal_side: ClassVar = "primary"
    parameter_checks: ClassVar = {
        "entities": optional_path_list,
        "poke_interval": poll_interval_seconds,
        "deferrable": flag,
    }

    def __init__(
        self,
        *,
        entities: Sequence[str] | str | None = None,
        poke_interval: timedelta | float = 10.0,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        **kwargs: Any,
    ) -> None:
        super().__init__(poke_interval=poll_interval_seconds("poke_interval", poke_interval), **kwargs)
        self.entities = entities
        self.deferrable = deferrable
        self.check_parameters()

    @failing_at_once()
    def execute(self, context: Context) -> Any:
        """Ping once; if an entity does not answer, wait in the triggerer or in the worker."""
        if not self.deferrable:
            return super().execute(context)
        entities = self.run_async(entities_to_wait_for(self.hook, context, named=self.entities))
        outcome = self.run_async(self._ping(entities, context))
        if not outcome.is_done:
            self.log.info("waiting until the primary answers for %s", ", ".join(entities))
            self.defer(
                trigger=PrimaryHealthTrigger(
                    servicebus_pair_conn_id=self.servicebus_pair_conn_id, entities=entities, interval=self.poke_interval
                ),
                method_name="resume",
                timeout=self.timeout,
            )
        return outcome.xcom_value

    @failing_at_once()
    def poke(self, context: Context) -> PokeReturnValue:
        """Ping every entity once."""

        async def ping() -> PokeReturnValue:
            return await self._ping(await entities_to_wait_for(self.hook, context, named=self.entities), context)

        return self.run_async(ping())

    @failing_at_once()
    def resume(self, context: Context, event: Mapping[str, Any]) -> dict[str, Any]:
        """Succeed, since the primary answers, and emit the recoveries that the trigger detected."""
        check_event(event, answered=list, refused=dict, recovered=dict)
        for entity, health in event["recovered"].items():
            emit_recovery(context, self.servicebus_pair_conn_id, entity, EntityHealth.from_json(health))
        return self._result(event["answered"], event["refused"])

    async def _ping(self, entities: Sequence[str], context: Context) -> PokeReturnValue:
        waiting, health_changes = PrimaryWait(entities), HealthChangeRecorder()
        async with shared_pair(self.hook) as shared:
            with shared.observed_by(waiting), shared.observed_by(health_changes):
                await waiting.ping_once(shared, interval=self.poke_interval)
        health_changes.emit(context, self.servicebus_pair_conn_id)
        if not waiting.done:
            return PokeReturnValue(is_done=False)
        return PokeReturnValue(is_done=True, xcom_value=self._result(waiting.answered, waiting.refused))

    def _result(self, answered: Sequence[str], refused: Mapping[str, str]) -> dict[str, Any]:
        if refused and optional_path_list("entities", self.entities) is not None:
            raise EntityRefusedError(
                f"the primary answers and refuses {', '.join(f'{entity} ({why})' for entity, why in refused.items())}: "
                "name entities that exist there and that the connection may send to"
            )
        return {"answered": sorted(answered), "refused": dict(refused)}
