"""``PrimaryHealthTrigger``: waits in the triggerer until entities of the primary answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from servicebus_pair.airflow_runtime.validators import optional_path_list, poll_interval_seconds
from servicebus_pair.airflow_runtime.waiting.deferral import DeferralTrigger
from servicebus_pair.airflow_runtime.waiting.pair_cache import shared_pair
from servicebus_pair.airflow_runtime.waiting.primary import PrimaryWait
from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.hooks.servicebus_pair import ServiceBusPairHook

__all__ = ["PrimaryHealthTrigger", "check_event"]


class PrimaryHealthTrigger(DeferralTrigger):
    """Pings entities until each has answered, then fires once. It never moves messages.

    The event is ``{"answered": [...], "refused": {entity: error class}, "recovered": {entity: health}}``.
    All of these triggers in one triggerer share one client per namespace and the pings of an entity.

    :param entities: paths of queues and topics.
    :param interval: seconds between two pings of an entity, 1 to 3600; an entity that is failed over is pinged every
        ``ping_primary_interval`` instead.
    :raises ConfigurationError: a parameter is invalid.
    """

    def __init__(
        self,
        *,
        servicebus_pair_conn_id: str,
        entities: Sequence[str],
        interval: float,
        carry: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(servicebus_pair_conn_id=servicebus_pair_conn_id, carry=carry)
        self.entities = list(optional_path_list("entities", entities) or ())
        self.interval = poll_interval_seconds("interval", interval)
        self.check_arguments()

    def arguments(self) -> dict[str, Any]:
        """Return the entities and the interval."""
        return {"entities": self.entities, "interval": self.interval}

    async def event_payload(self) -> dict[str, Any]:
        """Wait until every entity has answered."""
        waiting = PrimaryWait(self.entities)
        async with shared_pair(ServiceBusPairHook(self.servicebus_pair_conn_id)) as shared:
            with shared.observed_by(waiting):
                await waiting.wait(shared, interval=self.interval)
            recovered = shared.pop_recoveries([entity.casefold() for entity in self.entities])
        return {
            "answered": sorted(waiting.answered),
            "refused": waiting.refused,
            "recovered": {entity: health.to_json() for entity, health in recovered.items()},
        }


def check_event(event: object, **expected: type) -> None:
    """Raise the error that a trigger reported in its event, if any.

    :param expected: what the event must have; a trigger of another version may have sent it.
    :raises ConfigurationError: the connection is invalid.
    :raises ValueError: it is not such an event; a retry waits again.
    """
    fields = event if isinstance(event, Mapping) else {}
    if "error" in fields:
        raise ConfigurationError(str(fields["error"]))
    for name, kind in expected.items():
        if not isinstance(fields.get(name), kind):
            raise ValueError(  # noqa: TRY004  as for one that is missing
                f"the event of the trigger has no {name}, a {kind.__name__}: a retry of the task waits again"
            )
