"""What all movers of one syphon share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from servicebus_pair.core.events import Event
from servicebus_pair.core.lanes import Lanes
from servicebus_pair.core.parcels import Selection, TimeToLive
from servicebus_pair.core.ports import Clock
from servicebus_pair.core.refusals import Refusals
from servicebus_pair.core.rests import Rests
from servicebus_pair.core.throttle import Throttle
from servicebus_pair.core.transport import Destination, Source, Transport

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
    :param forever: what is refused is waited for; else it is left as it is.
    :ivar refused: destinations that refused the credential from the start.
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
    forever: bool = False
    refused: Refusals = field(default_factory=Refusals)
    bytes_in_hand: int = BYTES_IN_HAND
    slow_hand_seconds: float = 15.0
    _lanes: Lanes = field(init=False)

    def __post_init__(self) -> None:
        self._lanes = Lanes(1) if self.ordered else Lanes()

    def source(self, queue: str) -> Source:
        """Answer a new link to a backlog queue, or to its dead-letter queue."""
        return self.transport.source(queue, over=lambda: self.held, dead_letter=self.redrive)

    @asynccontextmanager
    async def lane(self, entity: str) -> AsyncIterator[Destination]:
        """Wait for a link to ``entity`` of one's own, over which batches go one after another."""
        async with self._lanes.turn(entity) as number:
            yield self.transport.destination(entity, lane=number)
