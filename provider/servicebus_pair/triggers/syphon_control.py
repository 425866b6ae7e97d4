"""``SyphonControlTrigger``: waits, off the worker, while the syphon of a pair is paused."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from servicebus_pair.hooks.steering import wait_until_resumed
from servicebus_pair.hooks.waiting import SHORTEST_DEFERRAL_SECONDS

__all__ = ["SyphonControlTrigger"]


class SyphonControlTrigger(BaseTrigger):
    """Fires once, as soon as nobody wants the syphon to pause, and no earlier than after 3 s.

    The event is ``{"resumed_by": user}``. It talks to no namespace.

    :param conn_id: the connection of the pair.
    :param carry: what the task wants to find in the event, under this name: an operator forgets all else.
    """

    def __init__(self, *, conn_id: str, carry: dict[str, Any] | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.conn_id = conn_id
        self.carry = carry

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return what recreates this trigger elsewhere: no secrets."""
        return f"{type(self).__module__}.{type(self).__qualname__}", {"conn_id": self.conn_id, "carry": self.carry}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait, then fire."""
        began = time.monotonic()
        wanted = await wait_until_resumed(self.conn_id)
        await asyncio.sleep(max(0.0, began + SHORTEST_DEFERRAL_SECONDS - time.monotonic()))
        found: dict[str, Any] = {"resumed_by": wanted.by}
        if self.carry is not None:
            found["carry"] = self.carry
        yield TriggerEvent(found)  # type: ignore[no-untyped-call]
