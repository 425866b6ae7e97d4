"""Fault the client of one namespace when that of the other ends (SPEC section 7)."""

from __future__ import annotations

import asyncio

from servicebus_pair.core.model.errors import PartnerFaultError
from servicebus_pair.core.model.interfaces import Clock
from servicebus_pair.core.sdk.namespace_client import NamespaceClient


class LinkedShutdown:
    """Watches both clients: when one ends, the other is faulted after ``grace`` unless it is closed by then.

    :param grace: seconds.
    """

    def __init__(self, primary: NamespaceClient, secondary: NamespaceClient, *, grace: float, clock: Clock) -> None:
        self._grace = grace
        self._clock = clock
        self._tasks: set[asyncio.Task[None]] = set()
        self._active = True
        primary.on_closed = lambda why: self._on_ended(primary, secondary, why)
        secondary.on_closed = lambda why: self._on_ended(secondary, primary, why)

    def _on_ended(self, ended: NamespaceClient, other: NamespaceClient, why: str) -> None:
        if not self._active:
            return
        task = asyncio.get_running_loop().create_task(
            self._fault_later(ended, other, why), name="fault the partner client"
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _fault_later(self, ended: NamespaceClient, other: NamespaceClient, why: str) -> None:
        await self._clock.sleep(self._grace)
        other.fault(
            PartnerFaultError(
                f"the client of namespace {other.namespace} was faulted {self._grace:g} s after its partner "
                f"{ended.namespace} {why}: open a new pair"
            )
        )

    async def close(self) -> None:
        """Stop watching, before both clients are closed. Idempotent."""
        self._active = False
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
