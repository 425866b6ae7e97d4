"""Dry run of a drain: what backlog queues hold for each destination, found by peeking (SPEC section 6)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from typing import NoReturn

from servicebus_pair.core.model.errors import ConfigurationError, ServiceError, UndeliverableError
from servicebus_pair.core.protocol.amqp_message import AmqpMessage, body_size, value_size
from servicebus_pair.core.protocol.backlog_message import destination_of, unreadable, unwrap
from servicebus_pair.core.protocol.typed_values import text_keys
from servicebus_pair.core.sdk.message_browser import MessageBrowser
from servicebus_pair.core.sdk.received_message import ReceivedMessage
from servicebus_pair.core.sdk.session_browser import SessionBrowser
from servicebus_pair.core.syphon.drain_context import CALL_TIMEOUT, DrainContext
from servicebus_pair.core.syphon.policies.destination_backoff import explain_queue_error
from servicebus_pair.core.syphon.ports import Source


@dataclass(frozen=True, slots=True)
class DestinationSurvey:
    """What waits for one destination. Times are seconds since the Unix epoch.

    :param messages: number of messages.
    :param bytes: approximate size of their bodies and application properties.
    :param oldest: when the first of them was enqueued in the backlog.
    :param newest: when the last of them was.
    """

    messages: int = 0
    bytes: int = 0
    oldest: float | None = None
    newest: float | None = None

    def ages(self, now: float) -> tuple[float, float]:
        """Return the ages in seconds of the newest and the oldest message; 0 if there is none."""
        newest = 0.0 if self.newest is None else now - self.newest
        return newest, 0.0 if self.oldest is None else now - self.oldest

    def __add__(self, other: DestinationSurvey) -> DestinationSurvey:
        oldest = [each for each in (self.oldest, other.oldest) if each is not None]
        newest = [each for each in (self.newest, other.newest) if each is not None]
        return DestinationSurvey(
            self.messages + other.messages,
            self.bytes + other.bytes,
            min(oldest, default=None),
            max(newest, default=None),
        )


@dataclass(frozen=True, slots=True)
class BacklogSurvey:
    """What some backlog queues hold.

    :param destinations: by entity.
    :param undeliverable: number of messages that would be dead-lettered, by reason.
    :param unreadable: places in a queue that could not be read: at least so many messages.
    :param locked: messages in sessions that syphons were moving, whose destinations are unknown; in a survey of some
        entities or of a first page, and without the right to count messages, one for each of the sessions.
    """

    destinations: Mapping[str, DestinationSurvey] = field(default_factory=dict)
    undeliverable: Mapping[str, int] = field(default_factory=dict)
    unreadable: int = 0
    locked: int = 0

    @property
    def messages(self) -> int:
        """Number of all messages found."""
        waiting = sum(each.messages for each in self.destinations.values())
        return waiting + sum(self.undeliverable.values()) + self.unreadable + self.locked

    @classmethod
    def total(cls, parts: Iterable[BacklogSurvey]) -> BacklogSurvey:
        """Return what several queues hold together."""
        return sum(parts, cls())

    def __add__(self, other: BacklogSurvey) -> BacklogSurvey:
        destinations = dict(self.destinations)
        for entity, each in other.destinations.items():
            destinations[entity] = destinations.get(entity, DestinationSurvey()) + each
        undeliverable = Counter(self.undeliverable)
        undeliverable.update(other.undeliverable)
        return BacklogSurvey(
            destinations, dict(undeliverable), self.unreadable + other.unreadable, self.locked + other.locked
        )


class Surveyor:
    """Reads backlog queues without locking or removing messages."""

    def __init__(self, context: DrainContext) -> None:
        self._context = context

    async def survey(self, queue: str, *, first_page: bool = False) -> BacklogSurvey:
        """Return what ``queue`` holds; one page is in memory at a time.

        :param first_page: only one page, of the oldest messages.
        :raises ServiceError: it cannot be read.
        """
        source = self._context.source(queue)
        try:
            return await self._read(source, first_page=first_page)
        except ServiceError as error:
            _raise_explained(error, queue)
        finally:
            await source.close()

    async def survey_sessions(
        self, queue: str, *, count: Callable[[Collection[str]], Awaitable[int]], first_page: bool = False
    ) -> BacklogSurvey:
        """Return what a queue that requires sessions holds.

        A session can be peeked only by the receiver that holds it, so each is accepted for a moment. Nothing can be
        said of those that others hold, except how many messages they have together.

        :param count: returns how many messages queues hold.
        :raises ServiceError: it cannot be read.
        """
        size, waiting, undeliverable = self._context.max_batch_messages, dict[str, DestinationSurvey](), Counter[str]()
        browser = SessionBrowser(self._context, queue, page_size=size, timeout=CALL_TIMEOUT)
        found = BacklogSurvey()
        try:
            async with aclosing(browser.readable_pages(first_page=first_page)) as pages:
                async for page in pages:
                    self._count(page, waiting, undeliverable)
                    found = BacklogSurvey(waiting, dict(undeliverable))
                    if first_page and found.messages >= size:
                        break
        except ServiceError as error:
            _raise_explained(error, queue)
        found, locked = replace(found, unreadable=browser.undecodable), len(browser.locked)
        if not locked or first_page:
            return replace(found, locked=locked)
        if self._context.selection.entities is None:
            with suppress(ServiceError, ConfigurationError):
                locked = max(locked, await count([queue]) - found.messages)
        return replace(found, locked=locked)

    async def _read(self, source: Source, *, first_page: bool) -> BacklogSurvey:
        browser = MessageBrowser(source, page_size=self._context.max_batch_messages, timeout=CALL_TIMEOUT)
        waiting: dict[str, DestinationSurvey] = {}
        undeliverable: Counter[str] = Counter()
        async for page in browser.readable_pages():
            self._count(page, waiting, undeliverable)
            if first_page:
                break
        return BacklogSurvey(waiting, dict(undeliverable), browser.undecodable)

    def is_selected(self, received: ReceivedMessage) -> bool:
        """Return whether a peeked message is to be moved or dead-lettered by this drain."""
        entity = destination_of(received.amqp)
        return not self._context.redrive if entity is None else self._context.selection.matches(entity)

    def is_workable(self, received: ReceivedMessage, skipped: AbstractSet[int]) -> bool:
        """Return whether a drain could still move or dead-letter a peeked message.

        :param skipped: sequence numbers of messages that this drain does not handle.
        """
        if received.sequence_number in skipped or not self.is_selected(received):
            return False
        entity = destination_of(received.amqp)
        return entity is None or not self._context.backoff.is_abandoned(entity)

    def _count(
        self,
        page: Iterable[ReceivedMessage],
        waiting: dict[str, DestinationSurvey],
        undeliverable: Counter[str],
    ) -> None:
        for received in page:
            try:
                entity, found = _describe(received)
            except UndeliverableError as error:
                undeliverable[error.reason] += 1
                continue
            if self._context.selection.matches(entity):
                waiting[entity] = waiting.get(entity, DestinationSurvey()) + found


def _raise_explained(error: ServiceError, queue: str) -> NoReturn:
    explained = explain_queue_error(error, queue)
    if explained is error:
        raise error
    raise explained from error


def _describe(received: ReceivedMessage) -> tuple[str, DestinationSurvey]:
    """Return the destination of a message, and what it adds to a survey. :raises UndeliverableError: it has none."""
    entity = unwrap(received.amqp).entity
    try:
        at = None if (enqueued := received.enqueued_time) is None else enqueued.timestamp()
        return entity, DestinationSurvey(1, _approximate_size(received.amqp), at, at)
    except Exception as error:
        raise unreadable(error) from error


def _approximate_size(message: AmqpMessage) -> int:
    """Return the bytes of the body and the application properties."""
    properties = text_keys(message.application_properties).items()
    return body_size(message) + sum(len(name) + value_size(value) for name, value in properties)
