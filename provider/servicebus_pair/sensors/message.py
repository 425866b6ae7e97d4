"""``ServiceBusMessageSensor``: succeeds when an entity of the primary has a message."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, ClassVar

from airflow.sdk import BaseSensorOperator, Context, PokeReturnValue

from servicebus_pair.airflow_runtime.airflow_version import conf
from servicebus_pair.airflow_runtime.pair_task import PairTask, failing_at_once
from servicebus_pair.airflow_runtime.validators import (
    boolean,
    entity_path,
    flag,
    mapping,
    optional,
    poll_interval_seconds,
    text,
)
from servicebus_pair.triggers.message_available import MessageAvailableTrigger
from servicebus_pair.triggers.primary_health import check_event

__all__ = ["ServiceBusMessageSensor"]

_properties = optional(mapping)


class ServiceBusMessageSensor(PairTask, BaseSensorOperator):
    """Waits until a queue or subscription has a message, which stays there.

    It locks a message for a moment and returns it, without counting a delivery on the tested version of
    azure-servicebus. While the primary is down, it waits until a ping is answered. Needs Listen on the primary.

    :param entity: path of a queue, or ``topic/Subscriptions/name`` (templated).
    :param session_id: wait for one session; ``"*"`` for any of an entity that requires sessions (templated).
    :param dead_letter: wait for a dead letter (templated).
    :param properties: wait for a message with these application properties (templated).
    :param poke_interval: time that one poke waits for a message, 1 s to an hour: a ``timedelta`` or seconds.
    :param deferrable: wait in the triggerer and occupy no worker.
    :param servicebus_pair_conn_id: the connection of type ``servicebus_pair``; not a template.
    :raises ConfigurationError: a parameter or the connection is invalid.
    """

    template_fields = ("entity", "session_id", "dead_letter", "properties")
    parameter_checks: ClassVar = {
        "entity": entity_path,
        "session_id": optional(text),
        "dead_letter": boolean,
        "properties": _properties,
        "poke_interval": poll_interval_seconds,
        "deferrable": flag,
    }
    portal_side = "primary"
    detects_health: ClassVar = False

    def __init__(
        self,
        *,
        entity: str,
        session_id: str | None = None,
        dead_letter: bool | str = False,
        properties: Mapping[str, Any] | None = None,
        poke_interval: timedelta | float = 60.0,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        **kwargs: Any,
    ) -> None:
        super().__init__(poke_interval=poll_interval_seconds("poke_interval", poke_interval), **kwargs)
        self.entity = entity
        self.session_id = session_id
        self.dead_letter = dead_letter
        self.properties = properties
        self.deferrable = deferrable
        self.check_parameters()

    @failing_at_once()
    def execute(self, context: Context) -> Any:
        """Wait, in the triggerer if ``deferrable``."""
        if self.deferrable:
            self.defer(
                trigger=self._trigger(None),
                method_name="resume",
                timeout=timedelta(seconds=float(self.timeout)),
            )
        return super().execute(context)

    @failing_at_once()
    def poke(self, context: Context) -> PokeReturnValue:  # noqa: ARG002  Airflow's signature
        """Wait up to ``poke_interval`` for a message."""
        event = self.run_async(self._trigger(float(self.poke_interval)).event_payload())
        check_event(event, found=bool)
        return PokeReturnValue(is_done=event["found"])

    @failing_at_once()
    def resume(self, context: Context, event: Mapping[str, Any]) -> None:  # noqa: ARG002  Airflow's signature
        """Succeed, since there is a message."""
        check_event(event, found=bool)

    def _trigger(self, max_wait: float | None) -> MessageAvailableTrigger:
        return MessageAvailableTrigger(
            servicebus_pair_conn_id=self.servicebus_pair_conn_id,
            entity=entity_path("entity", self.entity),
            session_id=self.session_id or None,
            dead_letter=boolean("dead_letter", self.dead_letter),
            properties=_properties("properties", self.properties) or None,
            max_wait=max_wait,
        )
