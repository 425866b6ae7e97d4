"""``ServiceBusPrimaryHealthSensor``: succeeds when the primary accepts sends again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow.sdk import BaseSensorOperator, Context, PokeReturnValue, conf

from servicebus_pair.core.errors import PairError
from servicebus_pair.core.health import EntityHealth
from servicebus_pair.hooks.assets import health_alias, pair_asset
from servicebus_pair.hooks.entities import entities_in_question
from servicebus_pair.hooks.news import HealthNews, announce_recovery
from servicebus_pair.hooks.running import CancellableRun
from servicebus_pair.hooks.servicebus_pair import DEFAULT_CONN_ID, ServiceBusPairHook
from servicebus_pair.hooks.sharing import watched_pair
from servicebus_pair.hooks.waiting import PrimaryWait, check_interval, check_names
from servicebus_pair.triggers.primary_health import PrimaryHealthTrigger, check_event

__all__ = ["EntityRefusedError", "ServiceBusPrimaryHealthSensor"]


class EntityRefusedError(PairError):
    """The primary answers, but refuses an entity that was named, and no waiting changes that."""


class ServiceBusPrimaryHealthSensor(BaseSensorOperator):
    """Pings entities of the primary until each has answered.

    A ping is an empty message that lives one second (SPEC section 5); pings are billed. A recovery
    that it finds is shared with other tasks and becomes an event of the recovery asset. The result
    is ``{"answered": [...], "refused": {entity: error class}}``.

    :param entities: paths of queues and topics; when not given, those that are known to be failed
        over and those that messages in the backlog are going to (templated). An entity that was
        found, not named, and that the primary refuses for good does not fail the sensor.
    :param poke_interval: seconds between two pings, 1 to 3600; deferred, an entity that is known to
        be failed over is pinged every ``ping_primary_interval`` instead.
    :param deferrable: wait in the triggerer and occupy no worker.
    :param conn_id: the connection of type ``servicebus_pair``; not a template.
    :raises ConfigurationError: a parameter or the connection is wrong.
    :raises EntityRefusedError: a named entity does not exist on the primary, or may not be sent to.
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
        super().__init__(poke_interval=check_interval("poke_interval", poke_interval), **kwargs)
        self.entities = entities
        self.conn_id = conn_id
        self.deferrable = deferrable
        self.inlets = [*self.inlets, pair_asset(conn_id)]
        self.outlets = [*self.outlets, health_alias(conn_id)]
        self._run = CancellableRun()

    def execute(self, context: Context) -> Any:
        """Ping once; if an entity does not answer, wait in the triggerer or in the worker."""
        if not self.deferrable:
            return super().execute(context)
        entities = self._run.run(self._entities(context))
        answer = self._run.run(self._ping(entities, context))
        if not answer.is_done:
            self.log.info("waiting until the primary answers for %s", ", ".join(entities))
            self.defer(
                trigger=PrimaryHealthTrigger(conn_id=self.conn_id, entities=entities, interval=self.poke_interval),
                method_name="resume",
                timeout=self.timeout,
            )
        return answer.xcom_value

    def poke(self, context: Context) -> PokeReturnValue:
        """Ping every entity once."""

        async def look() -> PokeReturnValue:
            return await self._ping(await self._entities(context), context)

        return self._run.run(look())

    def resume(self, context: Context, event: Mapping[str, Any]) -> dict[str, Any]:
        """Succeed, now that the primary answers."""
        check_event(event)
        for entity, health in event["recovered"].items():
            announce_recovery(context, self.conn_id, entity, EntityHealth.from_json(health))
        return self._result(event["answered"], event["refused"])

    def on_kill(self) -> None:
        """Cancel the ping that runs."""
        self._run.cancel()

    async def _entities(self, context: Context) -> Sequence[str]:
        if self.entities is not None:
            return check_names("entities", self.entities)
        return await entities_in_question(self.conn_id, context)

    async def _ping(self, entities: Sequence[str], context: Context) -> PokeReturnValue:
        waiting, news = PrimaryWait(entities), HealthNews()
        async with watched_pair(ServiceBusPairHook(self.conn_id)) as watched:
            with watched.listening(waiting), watched.listening(news):
                await waiting.begin(watched, interval=self.poke_interval)
        news.announce(context, self.conn_id)
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
