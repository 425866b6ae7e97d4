"""``ServiceBusPrimaryHealthSensor``: succeeds when the primary accepts sends again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow.sdk import BaseSensorOperator, Context, PokeReturnValue, conf

from servicebus_pair.airflow_runtime.cancellable_run import CancellableRun
from servicebus_pair.airflow_runtime.observers.asset_events import HealthChangeRecorder, emit_recovery
from servicebus_pair.airflow_runtime.validators import path_list, poll_interval_seconds
from servicebus_pair.airflow_runtime.waiting.entities import entities_to_wait_for
from servicebus_pair.airflow_runtime.waiting.pair_cache import shared_pair
from servicebus_pair.airflow_runtime.waiting.primary import PrimaryWait
from servicebus_pair.assets import health_alias, pair_asset
from servicebus_pair.core import EntityHealth
from servicebus_pair.core.errors import PairError
from servicebus_pair.hooks.servicebus_pair import DEFAULT_CONN_ID, ServiceBusPairHook
from servicebus_pair.triggers.primary_health import PrimaryHealthTrigger, check_event

__all__ = ["EntityRefusedError", "ServiceBusPrimaryHealthSensor"]


class EntityRefusedError(PairError):
    """The primary is up but permanently refuses an entity that was named, so waiting does not help."""


class ServiceBusPrimaryHealthSensor(BaseSensorOperator):
    """Pings entities of the primary until each has answered.

    A ping is an empty message with a time to live of one second (SPEC section 5); pings are billed. A recovery that
    the sensor detects is shared with other tasks and emitted as an event of the recovery asset. The result is
    ``{"answered": [...], "refused": {entity: error class}}``.

    :param entities: paths of queues and topics; when not given, the entities that are failed over or have messages in
        the backlog (templated). Only a named entity that the primary permanently refuses fails the sensor.
    :param poke_interval: seconds between two pings, 1 to 3600; in the triggerer, an entity that is failed over is
        pinged every ``ping_primary_interval`` instead.
    :param deferrable: wait in the triggerer and occupy no worker.
    :param conn_id: the connection of type ``servicebus_pair``; not a template.
    :raises ConfigurationError: a parameter or the connection is invalid.
    :raises EntityRefusedError: a named entity does not exist on the primary, or the Send right is missing.
    """

    template_fields = ("entities",)

    def __init__(
        self,
        *,
        entities: Sequence[str] | None = None,
        conn_id: str = DEFAULT_CONN_ID,
        poke_interval: float = 10.0,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        **kwargs: Any,
    ) -> None:
        super().__init__(poke_interval=poll_interval_seconds("poke_interval", poke_interval), **kwargs)
        self.entities = entities
        self.conn_id = conn_id
        self.deferrable = deferrable
        self.inlets = [*self.inlets, pair_asset(conn_id)]
        self.outlets = [*self.outlets, health_alias(conn_id)]
        self._cancellable = CancellableRun()

    def execute(self, context: Context) -> Any:
        """Ping once; if an entity does not answer, wait in the triggerer or in the worker."""
        if not self.deferrable:
            return super().execute(context)
        entities = self._cancellable.run(self._resolve_entities(context))
        outcome = self._cancellable.run(self._ping(entities, context))
        if not outcome.is_done:
            self.log.info("waiting until the primary answers for %s", ", ".join(entities))
            self.defer(
                trigger=PrimaryHealthTrigger(conn_id=self.conn_id, entities=entities, interval=self.poke_interval),
                method_name="resume",
                timeout=self.timeout,
            )
        return outcome.xcom_value

    def poke(self, context: Context) -> PokeReturnValue:
        """Ping every entity once."""

        async def ping() -> PokeReturnValue:
            return await self._ping(await self._resolve_entities(context), context)

        return self._cancellable.run(ping())

    def resume(self, context: Context, event: Mapping[str, Any]) -> dict[str, Any]:
        """Succeed, since the primary answers, and emit the recoveries that the trigger detected."""
        check_event(event)
        for entity, health in event["recovered"].items():
            emit_recovery(context, self.conn_id, entity, EntityHealth.from_json(health))
        return self._result(event["answered"], event["refused"])

    def on_kill(self) -> None:
        """Cancel the running ping."""
        self._cancellable.cancel()

    async def _resolve_entities(self, context: Context) -> Sequence[str]:
        if self.entities is not None:
            return path_list("entities", self.entities)
        return await entities_to_wait_for(self.conn_id, context)

    async def _ping(self, entities: Sequence[str], context: Context) -> PokeReturnValue:
        waiting, health_changes = PrimaryWait(entities), HealthChangeRecorder()
        async with shared_pair(ServiceBusPairHook(self.conn_id)) as shared:
            with shared.observed_by(waiting), shared.observed_by(health_changes):
                await waiting.ping_once(shared, interval=self.poke_interval)
        health_changes.emit(context, self.conn_id)
        if not waiting.done:
            return PokeReturnValue(is_done=False)
        return PokeReturnValue(is_done=True, xcom_value=self._result(waiting.answered, waiting.refused))

    def _result(self, answered: Sequence[str], refused: Mapping[str, str]) -> dict[str, Any]:
        if refused and self.entities is not None:
            raise EntityRefusedError(
                f"the primary answers and refuses {', '.join(f'{entity} ({why})' for entity, why in refused.items())}: "
                "name entities that exist there and that the connection may send to"
            )
        return {"answered": sorted(answered), "refused": dict(refused)}
