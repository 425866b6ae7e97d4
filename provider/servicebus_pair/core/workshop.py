"""What all movers of one syphon share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from servicebus_pair.core.events import Event
from servicebus_pair.core.parcels import Selection, TimeToLive
from servicebus_pair.core.ports import Clock
from servicebus_pair.core.rests import Rests
from servicebus_pair.core.throttle import Throttle
from servicebus_pair.core.transport import Source, Transport

__all__ = ["BYTES_IN_HAND", "Workshop"]

# Of message bytes, for all links of a syphon together; decoded they take a few times as much.
BYTES_IN_HAND: Final = 16 * 2**20


@dataclass(slots=True)
class Workshop:
    """The two ends, the policies, and what is known of the destinations.

    :param most: most messages in one hand.
    :param bytes_in_hand: of one link.
    :param slow_hand_seconds: a hand that took longer makes the next one smaller.
    :param redrive: take from the dead-letter queues.
    :param held: the syphon is paused or stopped: take nothing more.
    """

    transport: Transport
    clock: Clock
    tell: Callable[[Event], None]
    rests: Rests
    throttle: Throttle
    most: int
    selection: Selection = field(default_factory=Selection)
    time_to_live: TimeToLive = TimeToLive.RESTART
    ordered: bool = False
    redrive: bool = False
    held: bool = False
    bytes_in_hand: int = BYTES_IN_HAND
    slow_hand_seconds: float = 15.0
    _turns: dict[str, asyncio.Lock] = field(default_factory=dict)

    def source(self, queue: str) -> Source:
        """Answer a new link to a backlog queue, or to its dead-letter queue."""
        return self.transport.source(queue, over=lambda: self.held, dead_letter=self.redrive)

    def turn(self, entity: str) -> asyncio.Lock:
        """Answer the lock under which batches for ``entity`` are sent, one after another."""
        return self._turns.setdefault(entity.casefold(), asyncio.Lock())
