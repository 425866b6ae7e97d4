"""``MessageAvailableTrigger``: waits in the triggerer until an entity has a message."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import timedelta
from math import inf
from typing import Any

from servicebus_pair.airflow_runtime.reserved_keys import RESERVED_KEYS
from servicebus_pair.airflow_runtime.validators import duration, entity_path, flag, mapping, optional, text
from servicebus_pair.airflow_runtime.waiting.deferral import DeferralTrigger
from servicebus_pair.airflow_runtime.waiting.pair_cache import shared_pair
from servicebus_pair.core.errors import ServiceError
from servicebus_pair.hooks.servicebus_pair import ServiceBusPairHook

__all__ = ["MessageAvailableTrigger"]

_max_wait = duration(timedelta(0))


class MessageAvailableTrigger(DeferralTrigger):
    """Waits for a message without taking it: the message is locked for a moment and returned, uncounted.

    While the primary is down, it waits until a ping is answered. The event is ``{"found": bool, "waited": seconds}``,
    or ``{"error": ...}`` if the primary refuses to deliver.

    :param max_wait: seconds; the time during which the primary is down does not count. No limit when ``None``.
    :raises ConfigurationError: a parameter is invalid.
    """

    def __init__(
        self,
        *,
        servicebus_pair_conn_id: str,
        entity: str,
        max_wait: float | None = None,
        session_id: str | None = None,
        dead_letter: bool = False,
        properties: Mapping[str, Any] | None = None,
        carry: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(servicebus_pair_conn_id=servicebus_pair_conn_id, carry=carry)
        self.entity = entity_path("entity", entity)
        self.max_wait = None if max_wait is None else _max_wait("max_wait", max_wait).total_seconds()
        self.session_id = optional(text)("session_id", session_id)
        self.dead_letter = flag("dead_letter", dead_letter)
        self.properties = optional(mapping)("properties", properties)
        self.check_arguments()

    def arguments(self) -> dict[str, Any]:
        """Return what to wait for."""
        names = ("entity", "max_wait", "session_id", "dead_letter", "properties")
        return {name: getattr(self, name) for name in names}

    async def event_payload(self) -> dict[str, Any]:
        """Wait until there is a message."""
        started = time.monotonic()
        try:
            async with (
                shared_pair(ServiceBusPairHook(self.servicebus_pair_conn_id)) as shared,
                shared.pair.receiver(self.entity, session_id=self.session_id, dead_letter=self.dead_letter) as receiver,
            ):
                receiver.reserved_keys = RESERVED_KEYS
                found = await receiver.receive(
                    properties=self.properties, max_wait=inf if self.max_wait is None else self.max_wait
                )
        except ServiceError as error:
            return {"error": f"{type(error).__name__}: {error}"}
        return {"found": bool(found), "waited": time.monotonic() - started}
