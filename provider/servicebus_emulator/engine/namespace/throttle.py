"""Throttling: how much a namespace of a tier takes each second before it answers that it is busy.

A namespace of the Standard tier has 1,000 credits a second, of which a message costs one and a request about an entity
ten ("Throttling operations on Azure Service Bus", Microsoft Learn). Premium has no credits but what its messaging units
can do, about 4 MB a second each.
"""

from __future__ import annotations

from typing import Final

from servicebus_emulator.engine.model.clock import Clock
from servicebus_emulator.engine.model.errors import ServerBusy
from servicebus_emulator.engine.namespace.tiers import Tier

REQUEST_CREDITS: Final = 10
"""What a management request costs."""

_CREDITS: Final = 1000
_BYTES_PER_UNIT: Final = 4 * 1024 * 1024
_SECOND: Final = 1000


class Throttle:
    """Counts what clients of a namespace do in each second.

    :param tier: without one, or in Basic, the credits of Standard apply.
    :param units: the messaging units of Premium.
    """

    def __init__(self, namespace: str, *, clock: Clock, tier: Tier | None, units: int = 1) -> None:
        self._namespace = namespace
        self._clock = clock
        self._by_size = tier is Tier.PREMIUM
        self._limit = units * _BYTES_PER_UNIT if self._by_size else _CREDITS
        self._second = 0
        self._spent = 0

    def spend(self, credits: int, *, size: int = 0) -> None:  # noqa: A002 - the service's word
        """Count an operation that is not refused, such as the delivery of messages."""
        second = self._clock.now() // _SECOND
        if second != self._second:
            self._second, self._spent = second, 0
        self._spent += size if self._by_size else credits

    def check(self, credits: int, *, size: int = 0) -> None:  # noqa: A002
        """Count an operation, or refuse it.

        :raises ServerBusy: when this second is used up; what was begun before that is finished.
        """
        self.spend(0)
        if self._spent >= self._limit:
            raise ServerBusy(
                f"The request was terminated because the namespace {self._namespace} is being throttled. "
                "Error code : 50009. Please wait 2 seconds and try again."
            )
        self.spend(credits, size=size)
