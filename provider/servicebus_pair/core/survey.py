"""Dry run: what backlog queues hold for each destination, found by peeking (SPEC section 6)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final

from azure.servicebus import ServiceBusReceivedMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageBodyType

from servicebus_pair.core.amqp_types import texts
from servicebus_pair.core.envelope import unwrap
from servicebus_pair.core.errors import ServiceError, ServiceFaultError, UndeliverableError
from servicebus_pair.core.refusals import explain_queue
from servicebus_pair.core.transport import Source
from servicebus_pair.core.unreadable import BEYOND_ALL, readable_behind
from servicebus_pair.core.workshop import Workshop

__all__ = ["BacklogSurvey", "DestinationSurvey", "Surveyor"]

_CALL_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class DestinationSurvey:
    """What waits for one destination. Times are seconds since the Unix epoch.

    :param messages: how many.
    :param bytes: of their bodies and properties, about.
    :param oldest: when the first of them reached the backlog.
    :param newest: when the last of them did.
    """

    messages: int = 0
    bytes: int = 0
    oldest: float | None = None
    newest: float | None = None

    def ages(self, now: float) -> tuple[float, float]:
        """Answer the ages in seconds of the newest and the oldest message; 0 where there is none."""
        newest = 0.0 if self.newest is None else now - self.newest
        return newest, 0.0 if self.oldest is None else now - self.oldest

    def __add__(self, other: DestinationSurvey) -> DestinationSurvey:
        return DestinationSurvey(
            self.messages + other.messages,
            self.bytes + other.bytes,
            _least(self.oldest, other.oldest),
            _greatest(self.newest, other.newest),
        )


@dataclass(frozen=True, slots=True)
class BacklogSurvey:
    """What some backlog queues hold.

    :param destinations: by entity.
    :param undeliverable: messages that would be dead-lettered, by reason.
    :param unreadable: places in a queue that could not be read: at least so many messages.
    """

    destinations: Mapping[str, DestinationSurvey] = field(default_factory=dict)
    undeliverable: Mapping[str, int] = field(default_factory=dict)
    unreadable: int = 0

    @property
    def messages(self) -> int:
        """All messages that were seen."""
        waiting = sum(each.messages for each in self.destinations.values())
        return waiting + sum(self.undeliverable.values()) + self.unreadable

    @classmethod
    def total(cls, parts: Iterable[BacklogSurvey]) -> BacklogSurvey:
        """Answer what several queues hold together."""
        return sum(parts, cls())

    def __add__(self, other: BacklogSurvey) -> BacklogSurvey:
        destinations = dict(self.destinations)
        for entity, each in other.destinations.items():
            destinations[entity] = destinations.get(entity, DestinationSurvey()) + each
        undeliverable = dict(self.undeliverable)
        for reason, count in other.undeliverable.items():
            undeliverable[reason] = undeliverable.get(reason, 0) + count
        return BacklogSurvey(destinations, undeliverable, self.unreadable + other.unreadable)


class Surveyor:
    """Looks at backlog queues without taking anything."""

    def __init__(self, shop: Workshop) -> None:
        self._shop = shop

    async def survey(self, queue: str, *, first_page: bool = False) -> BacklogSurvey:
        """Answer what ``queue`` holds; one page is in memory at a time.

        :param first_page: only of the oldest messages, one page of them.
        :raises ServiceError: it cannot be read.
        """
        source = self._shop.source(queue)
        waiting: dict[str, DestinationSurvey] = {}
        undeliverable: Counter[str] = Counter()
        first, most, unreadable = 1, self._shop.most, 0
        try:
            while True:
                page = await self._page(source, first, most=most)
                if page is None and most > 1:
                    most = 1  # one at a time, up to the one that cannot be decoded
                elif page is None:
                    first, most = await self._behind(source, first), self._shop.most
                    unreadable += 1
                elif page:
                    self._count(page, waiting, undeliverable)
                    first = (page[-1].sequence_number or 0) + 1
                if page == [] or (page and first_page):
                    return BacklogSurvey(waiting, dict(undeliverable), unreadable)
        except ServiceError as error:
            explained = explain_queue(error, queue)
            if explained is error:
                raise
            raise explained from error
        finally:
            await source.close()

    def is_wanted(self, received: ServiceBusReceivedMessage) -> bool:
        """Answer whether a peeked message is one that a drain is to move or to dead-letter."""
        entity = _destination(received)
        return not self._shop.redrive if entity is None else self._shop.selection.wants(entity)

    def is_workable(self, received: ServiceBusReceivedMessage, put_aside: AbstractSet[int]) -> bool:
        """Answer whether a drain could still do something about a peeked message."""
        if received.sequence_number in put_aside or not self.is_wanted(received):
            return False
        entity = _destination(received)
        return entity is None or not self._shop.rests.given_up(entity)

    async def _page(self, source: Source, first: int, *, most: int) -> list[ServiceBusReceivedMessage] | None:
        """Answer what follows from ``first`` on, or ``None`` when the SDK cannot decode some of it."""
        try:
            return await source.peek(most=most, timeout=_CALL_SECONDS, first=first)
        except ServiceFaultError:
            return None

    def _count(
        self,
        page: Iterable[ServiceBusReceivedMessage],
        waiting: dict[str, DestinationSurvey],
        undeliverable: Counter[str],
    ) -> None:
        for received in page:
            try:
                entity = unwrap(received.raw_amqp_message).entity
            except UndeliverableError as error:
                undeliverable[error.reason] += 1
                continue
            if self._shop.selection.wants(entity):
                at = None if (since := received.enqueued_time_utc) is None else since.timestamp()
                seen = DestinationSurvey(1, _size(received.raw_amqp_message), at, at)
                waiting[entity] = waiting.get(entity, DestinationSurvey()) + seen

    async def _behind(self, source: Source, bad: int) -> int:
        """Answer the first sequence number after ``bad`` from which a message can be read.

        :raises ServiceError: nothing can be read, so it is no matter of a message.
        """
        await source.peek(most=1, timeout=_CALL_SECONDS, first=BEYOND_ALL)
        return await readable_behind(bad, lambda number: self._readable(source, number))

    async def _readable(self, source: Source, first: int) -> bool:
        return await self._page(source, first, most=1) is not None


def _destination(received: ServiceBusReceivedMessage) -> str | None:
    """Answer where a message of the backlog is going; ``None`` when it can never be delivered."""
    try:
        return unwrap(received.raw_amqp_message).entity
    except UndeliverableError:
        return None


def _size(message: AmqpAnnotatedMessage) -> int:
    """About how many bytes a message takes: its body and its application properties."""
    body = message.body
    parts = list(body) if message.body_type is AmqpMessageBodyType.DATA else [str(body).encode()]
    named = texts(message.application_properties).items()
    return sum(map(len, parts)) + sum(len(name) + len(str(value)) for name, value in named)


def _least(one: float | None, two: float | None) -> float | None:
    return one if two is None else two if one is None else min(one, two)


def _greatest(one: float | None, two: float | None) -> float | None:
    return one if two is None else two if one is None else max(one, two)
