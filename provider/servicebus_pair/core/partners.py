"""Primary and secondary clients live and die together (SPEC section 7)."""

from __future__ import annotations

import asyncio

from servicebus_pair.core.clients import NamespaceClient
from servicebus_pair.core.errors import PartnerFaultError
from servicebus_pair.core.ports import Clock

__all__ = ["Partners"]


class Partners:
    """Watches both clients: one that ends alone takes the other with it, after the grace.

    :param grace: seconds that the other one is given to be closed in order.
    """

    def __init__(self, primary: NamespaceClient, secondary: NamespaceClient, *, grace: float, clock: Clock) -> None:
        self._grace = grace
        self._clock = clock
        self._waiting: set[asyncio.Task[None]] = set()
        self._watching = True
        primary.on_ended = lambda why: self._ended(primary, secondary, why)
        secondary.on_ended = lambda why: self._ended(secondary, primary, why)

    def _ended(self, ended: NamespaceClient, other: NamespaceClient, why: str) -> None:
        if other.ended or not self._watching:
            return
        task = asyncio.get_running_loop().create_task(self._follow(ended, other, why), name="follow the partner")
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)

    async def _follow(self, ended: NamespaceClient, other: NamespaceClient, why: str) -> None:
        await self._clock.sleep(self._grace)
        if not other.ended:
            other.fault(
                PartnerFaultError(
                    f"the client of namespace {other.namespace} was faulted {self._grace:g} s after its partner "
                    f"{ended.namespace} {why}: open a new pair"
                )
            )

    async def close(self) -> None:
        """Stop watching, for both are about to be closed, and leave no task behind. Idempotent."""
        self._watching = False
        for task in self._waiting:
            task.cancel()
        await asyncio.gather(*self._waiting, return_exceptions=True)
