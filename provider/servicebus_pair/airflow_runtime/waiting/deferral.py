"""``PairTrigger``: base of all triggers; ``DeferralTrigger``: of those that end an operator's deferral."""

from __future__ import annotations

import asyncio
import time
from abc import abstractmethod
from collections.abc import AsyncIterator
from typing import Any, Final

from airflow.triggers.base import BaseTrigger, TriggerEvent

from servicebus_pair.airflow_runtime.validators import mapping, no_secret_in, optional, text
from servicebus_pair.core.errors import ConfigurationError

# The scheduler fails a task that resumes before the executor has noticed its deferral (measured, Airflow 3.3.2).
_MIN_DEFERRAL_SECONDS: Final = 3.0


class PairTrigger(BaseTrigger):
    """What the triggers have in common: their arguments, which Airflow stores and logs, hold no secret."""

    def check_arguments(self) -> None:
        """Check what is stored; each ``__init__`` ends with it.

        :raises ConfigurationError: an argument holds a secret.
        """
        no_secret_in(self.serialize()[1])


class DeferralTrigger(PairTrigger):
    """Waits, then fires once, after 3 s at the earliest; the event is ``{"error": ...}`` for an invalid connection.

    :param servicebus_pair_conn_id: the pair's connection; its secrets are read where the trigger runs.
    :param carry: returned in the event under this name, because a deferred operator loses its state.
    :raises ConfigurationError: a parameter holds a secret, or is invalid.
    """

    def __init__(self, *, servicebus_pair_conn_id: str, carry: dict[str, Any] | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.servicebus_pair_conn_id = text("servicebus_pair_conn_id", servicebus_pair_conn_id)
        self.carry = optional(mapping)("carry", carry)

    @abstractmethod
    async def event_payload(self) -> dict[str, Any]:
        """Wait, and return the event.

        :raises ConfigurationError: the connection is invalid.
        """

    def arguments(self) -> dict[str, Any]:
        """Return the subclass's own arguments, without secrets."""
        return {}

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and arguments that recreate this trigger; they contain no secrets."""
        path = f"{type(self).__module__}.{type(self).__qualname__}"
        return path, {
            "servicebus_pair_conn_id": self.servicebus_pair_conn_id,
            **self.arguments(),
            "carry": self.carry,
        }

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait, then fire."""
        started = time.monotonic()
        try:
            payload = await self.event_payload()
        except ConfigurationError as error:
            payload = {"error": str(error)}
        await asyncio.sleep(max(0.0, started + _MIN_DEFERRAL_SECONDS - time.monotonic()))
        if self.carry is not None:
            payload["carry"] = self.carry
        yield TriggerEvent(payload)  # type: ignore[no-untyped-call]
