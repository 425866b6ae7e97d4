"""``PrimaryHealthTrigger``: waits, off the worker, until entities of the primary answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.hooks.servicebus_pair import ServiceBusPairHook
from servicebus_pair.hooks.sharing import watched_pair
from servicebus_pair.hooks.waiting import SHORTEST_DEFERRAL_SECONDS, PrimaryWait, check_interval

__all__ = ["PrimaryHealthTrigger", "check_event"]


class PrimaryHealthTrigger(BaseTrigger):
    """Pings entities until each has answered, then fires once. It never moves a message.

    The event is ``{"answered": [...], "refused": {entity: error class}, "recovered": {entity: health}}``,
    or ``{"error": ...}`` when the connection cannot be read. It comes no earlier than after 3 s.
    Nothing needs to be undone when it is cancelled. However many of them wait in one triggerer, they share
    one client per namespace and the pings of an entity.

    :param conn_id: the connection; its secrets are read where the trigger runs.
    :param entities: paths of queues and topics.
    :param interval: seconds between two pings of an entity that is not known to be failed over, 1 to 3600; one
        that is, is pinged every ``ping_primary_interval``.
    :param carry: what the task wants to find in the event, under this name: an operator forgets all else.
    :raises ConfigurationError: ``interval`` is out of range.
    """

    def __init__(
        self, *, conn_id: str, entities: Sequence[str], interval: float, carry: dict[str, Any] | None = None
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.carry = carry
        self.conn_id = conn_id
        self.entities = list(entities)
        self.interval = check_interval("interval", interval)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return what recreates this trigger elsewhere: no secrets."""
        return (
            f"{type(self).__module__}.{type(self).__qualname__}",
            {"conn_id": self.conn_id, "entities": self.entities, "interval": self.interval, "carry": self.carry},
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait, then fire."""
        began = time.monotonic()
        try:
            found = await self._wait()
        except ConfigurationError as error:
            found = {"error": str(error)}
        await asyncio.sleep(max(0.0, began + SHORTEST_DEFERRAL_SECONDS - time.monotonic()))
        if self.carry is not None:
            found["carry"] = self.carry
        yield TriggerEvent(found)  # type: ignore[no-untyped-call]

    async def _wait(self) -> dict[str, Any]:
        waiting = PrimaryWait(self.entities)
        async with watched_pair(ServiceBusPairHook(self.conn_id)) as watched:
            with watched.listening(waiting):
                await waiting.wait(watched, interval=self.interval)
            recovered = watched.take_recovered([entity.casefold() for entity in self.entities])
        told = {entity: health.to_json() for entity, health in recovered.items()}
        return {"answered": sorted(waiting.answered), "refused": waiting.refused, "recovered": told}


def check_event(event: Mapping[str, Any]) -> None:
    """Raise what the trigger reported. :raises ConfigurationError: the connection cannot be used."""
    if "error" in event:
        raise ConfigurationError(event["error"])
