"""Moving the messages of one backlog queue: the loop's body under the syphon (SPEC section 6).

One step receives, translates, sends to the primary in batches and settles: a message is completed
only after the primary confirmed it, kept or released on a failure that may pass, and dead-lettered
when nothing can ever deliver it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import Final

from azure.servicebus import ServiceBusReceivedMessage

from servicebus_pair.core.dispatch import CALL_SECONDS, Dispatch, LocksEndError, Tally, dead_letter_reason
from servicebus_pair.core.errors import (
    AuthorizationError,
    EntityNotFoundError,
    ServiceError,
    UndeliverableError,
)
from servicebus_pair.core.events import DeadLettered
from servicebus_pair.core.parcels import Parcel, open_parcel
from servicebus_pair.core.refusals import explain_destination
from servicebus_pair.core.workshop import Workshop

__all__ = ["PARKED_HANDS", "Mover"]

_log = logging.getLogger(__name__)
_FIRST_HAND: Final = 16
_GROWTH: Final = 4
# So many hands, at most, are sent to a destination together when its rest is over.
PARKED_HANDS: Final = 4
# When the rate allows nothing for so long, what is locked, in hand or on its way to this link, is given back.
_LONGEST_WITH_LOCKS: Final = 10.0
_PARKED_SECONDS: Final = 1.0
# Giving back takes no longer; what it did not reach has its lock end by itself.
_RELEASE_SECONDS: Final = 2.0


class Mover:
    """Moves the messages of one backlog queue over one link, one hand at a time.

    What a destination in trouble does not take stays in hand, under its lock, until the destination
    is tried again or the lock comes near its end; beyond four hands of such messages more are left
    to their locks, so that what lies behind them is reached and memory stays bounded.

    :param queue: path of the backlog queue.
    :param tally: shared by all links to the queue.
    :ivar highest: the highest sequence number received.
    :ivar ran_short: the last receive brought less than half of what was asked for: the end may be near.
    """

    def __init__(self, shop: Workshop, queue: str, *, tally: Tally | None = None) -> None:
        self.queue = queue
        self.tally = Tally() if tally is None else tally
        self.parked: dict[str, list[Parcel]] = {}
        self.put_aside: set[int] = set()
        self._shop = shop
        self._source = shop.source(queue)
        self._most = min(_FIRST_HAND, shop.most)
        self._held: dict[int, ServiceBusReceivedMessage] = {}
        self._dispatch = Dispatch(shop, queue, tally=self.tally, bury=self._bury)
        self._plenty = False
        self.highest = 0
        self.ran_short = False

    def twin(self) -> Mover:
        """Answer a mover over one more link, which knows what this one has learned of the queue."""
        twin = Mover(self._shop, self.queue, tally=self.tally)
        twin._most, twin._dispatch.largest, twin.put_aside = self._most, self._dispatch.largest, self.put_aside
        return twin

    @property
    def hand(self) -> int:
        """The most messages that the next step takes."""
        return self._most

    async def step(self, *, wait: float) -> int:
        """Take one hand and settle it; failures of destinations go to the rests.

        :param wait: seconds to wait for the first message.
        :returns: how many were taken in hand; 0 is no proof that nothing is there.
        :raises ServiceError: the backlog queue itself cannot be read.
        """
        began = self._shop.clock.now()
        hand = await self._due(began)
        taken = sum(map(len, hand.values()))
        if not hand:
            received = await self._receive(wait)
            began = self._shop.clock.now()
            taken = len(received)
            hand = await self._sort(await self._in_order(received))
        try:
            ended = await asyncio.gather(
                *(self._deliver(entity, parcels) for entity, parcels in hand.items()), return_exceptions=True
            )
        finally:
            await self._complete()
        for each in ended:
            if each is not None:
                raise each
        self._fit(taken, self._shop.clock.now() - began)
        return taken

    async def peek(self, first: int, *, most: int) -> list[ServiceBusReceivedMessage]:
        """Look at a page of the queue. :raises ServiceError: it cannot be read."""
        return await self._source.peek(most=most, timeout=CALL_SECONDS, first=first)

    async def release(self) -> None:
        """Give back everything in hand, for at most 2 s."""
        self.parked.clear()
        held = list(self._held.values())
        if not held:
            return
        try:
            async with asyncio.timeout(_RELEASE_SECONDS):
                # Else they come again at once, over this very link.
                await self._source.quiet(timeout=_RELEASE_SECONDS)
                await self._abandon(held)
        except (TimeoutError, ServiceError):
            _log.warning("backlog queue=%s not released=%d in time: their locks end", self.queue, len(held))

    async def detach(self) -> None:
        """Give back everything in hand and let go of the link; the next step attaches anew."""
        await self.release()
        self._source.leave()

    async def _receive(self, wait: float) -> list[ServiceBusReceivedMessage]:
        most, taken = await self._permitted(), 0
        if not most:
            return []
        try:
            received = await self._source.receive(most=most, wait=wait, timeout=CALL_SECONDS)
            taken = len(received)
            self._held.update((id(each), each) for each in received)
        finally:
            self._shop.throttle.give_back(most - taken)
        self._plenty = taken == most
        self.ran_short = 2 * taken < most
        self.highest = max([self.highest, *(each.sequence_number or 0 for each in received)])
        return received

    async def _permitted(self) -> int:
        """Wait until the rate allows to take something; answer how much, 0 when what is parked is to be seen to."""
        # Of the rate, a queue that waits for messages holds no more than one.
        wanted = self._most if self._plenty or self._shop.throttle.rate is None else 1
        if self.parked:
            return await self._shop.throttle.take(wanted, patience=_PARKED_SECONDS)
        permitted = await self._shop.throttle.take(wanted, patience=_LONGEST_WITH_LOCKS)
        if not permitted:
            await self.detach()
            permitted = await self._shop.throttle.take(wanted)
        return permitted

    async def _in_order(self, received: list[ServiceBusReceivedMessage]) -> list[ServiceBusReceivedMessage]:
        """In session order: keep only what stands at the head of the queue, release the rest.

        Something before it may be in the hands of another syphon, dead or alive, that has not sent it yet.
        """
        if not self._shop.ordered or not received:
            return received
        try:
            head = await self._source.peek(most=len(received), timeout=CALL_SECONDS)
        except ServiceError:
            await self._abandon(received)
            raise
        count = 0
        for mine, first in zip(received, head, strict=False):
            if mine.sequence_number != first.sequence_number:
                break
            count += 1
        await self._abandon(received[count:])
        return received[:count]

    async def _due(self, now: float) -> dict[str, list[Parcel]]:
        """Take what is parked for destinations whose rest is over; release what nears the end of its lock."""
        late: list[Parcel] = []
        hand: dict[str, list[Parcel]] = {}
        for entity, parcels in list(self.parked.items()):
            late += [parcel for parcel in parcels if parcel.good_until <= now]
            rest = [parcel for parcel in parcels if parcel.good_until > now]
            del self.parked[entity]
            if rest:
                (hand if self._shop.rests.due(entity, now=now) else self.parked)[entity] = rest
        await self._abandon([parcel.received for parcel in late])
        return hand

    async def _sort(self, received: Iterable[ServiceBusReceivedMessage]) -> dict[str, list[Parcel]]:
        hand: dict[str, list[Parcel]] = {}
        now = self._shop.clock.now()
        for each in received:
            if each.sequence_number in self.put_aside:
                self._lay_aside(each)
                continue
            try:
                parcel = open_parcel(each, policy=self._shop.time_to_live, now=now)
            except UndeliverableError as error:
                await self._dead_letter(each, error)
                continue
            if self._shop.selection.wants(parcel.entity):
                hand.setdefault(parcel.entity, []).append(parcel)
            else:
                self._lay_aside(each)
        return hand

    async def _deliver(self, entity: str, parcels: Sequence[Parcel]) -> None:
        """Send what is held for ``entity``; what it does not take is parked."""
        waiting = {id(parcel.message): parcel for parcel in parcels}
        async with self._shop.lane(entity) as destination:
            began = self._shop.clock.now()
            if not self._shop.rests.may_try(entity, now=began):
                await self._park(entity, waiting)
                return
            try:
                await self._dispatch.send(destination, waiting)
                self._shop.rests.succeeded(entity)
                self._shop.refused.works(entity)
            except EntityNotFoundError as error:
                self._shop.rests.succeeded(entity)
                for parcel in waiting.values():
                    await self._bury(parcel, UndeliverableError(dead_letter_reason(error), str(error)))
            except LocksEndError:
                self._most = max(1, self._most // 2)
                await self._abandon([parcel.received for parcel in waiting.values()])
            except ServiceError as error:
                self._note(entity, error, began=began)
                await self._park(entity, waiting)
            finally:
                self._shop.rests.untried(entity, began=began)

    def _note(self, entity: str, error: ServiceError, *, began: float) -> None:
        """Have ``entity`` rest, or give it up at once if it refused the credential from the start."""
        if isinstance(error, AuthorizationError):
            error = explain_destination(error, entity)
            if self._shop.refused.note(entity, error) and not self._shop.forever:
                self._shop.rests.refused(entity, str(error), now=self._shop.clock.now())
                _log.error("entity=%s is given up queue=%s: %s", entity, self.queue, error)
                return
        rest = self._shop.rests.failed(entity, str(error), now=self._shop.clock.now(), began=began)
        _log.warning("entity=%s rests=%.0fs queue=%s: %s", entity, rest, self.queue, error)

    async def _complete(self) -> None:
        """The primary has these: take them out of the backlog."""
        done, self._dispatch.confirmed = self._dispatch.confirmed, []
        if not done:
            return
        for parcel in done:
            self._held.pop(id(parcel.received), None)
        # A stop does not wait for long; what is not confirmed by then may come again.
        seconds = _RELEASE_SECONDS if self._shop.held else CALL_SECONDS
        try:
            answers = await self._source.complete([parcel.received for parcel in done], timeout=seconds)
        except asyncio.CancelledError:
            self.tally.duplicates_possible += len(done)
            raise
        lost = [answer for answer in answers if answer is not None]
        self.tally.duplicates_possible += len(lost)
        if lost:
            _log.warning(
                "backlog queue=%s completions failed=%d of=%d, they may come again: %s",
                self.queue,
                len(lost),
                len(done),
                lost[0],
            )

    async def _park(self, entity: str, waiting: dict[int, Parcel]) -> None:
        parcels = list(waiting.values())
        if self._shop.ordered:
            await self._abandon([parcel.received for parcel in parcels])
            return
        room = max(0, PARKED_HANDS * self._most - sum(map(len, self.parked.values())))
        self.parked.setdefault(entity, []).extend(parcels[:room])
        for parcel in parcels[room:]:
            self._held.pop(id(parcel.received), None)

    def _lay_aside(self, received: ServiceBusReceivedMessage) -> None:
        """Step over a message that is not for this syphon; it is released at the end, or by its lock."""
        self.put_aside.add(received.sequence_number or 0)
        if len(self._held) > PARKED_HANDS * self._most:
            self._held.pop(id(received), None)

    async def _abandon(self, received: Sequence[ServiceBusReceivedMessage]) -> None:
        if not received:
            return
        for each in received:
            self._held.pop(id(each), None)
        answers = await self._source.abandon(received, timeout=CALL_SECONDS)
        failed = sum(answer is not None for answer in answers)
        if failed:
            _log.warning("backlog queue=%s not released=%d: their locks end by themselves", self.queue, failed)

    async def _bury(self, parcel: Parcel, error: UndeliverableError) -> None:
        await self._dead_letter(parcel.received, error)

    async def _dead_letter(self, received: ServiceBusReceivedMessage, error: UndeliverableError) -> None:
        if self._shop.redrive:
            self._lay_aside(received)
            return
        answer = await self._source.dead_letter(
            received, reason=error.reason, description=error.description, timeout=CALL_SECONDS
        )
        if answer is not None:
            self.tally.failures[self.queue] = str(answer)
            return
        self._held.pop(id(received), None)
        self.tally.dead_lettered[error.reason] += 1
        at = self._shop.clock.now()
        self._shop.tell(DeadLettered(self.queue, str(received.message_id), error.reason, at))

    def _fit(self, taken: int, seconds: float) -> None:
        """Choose the size of the next hand: by bytes, and so that a hand takes less than half a lock."""
        most = min(self._shop.most, self._shop.bytes_in_hand // self._dispatch.largest)
        if seconds > self._shop.slow_hand_seconds:
            most = min(most, self._most // 2)
        self._most = max(1, min(most, self._most * _GROWTH if taken >= self._most else self._most))
        self._dispatch.largest = max(1, self._dispatch.largest * 3 // 4)
