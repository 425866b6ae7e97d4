"""Looking into queues from Spark tasks: every message of the places and of the backlog, by peek.

The tasks share the queues among themselves by number, so that the driver need not know the pair's
settings.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from azure.servicebus import ServiceBusMessageState, ServiceBusReceivedMessage

from servicebus_pair.core.amqp_types import text, texts
from servicebus_pair.core.backlog import backlog_queues
from servicebus_pair.core.blocking import Bridge
from servicebus_pair.core.configuration import PairSettings
from servicebus_pair.core.envelope import PATH
from servicebus_pair.core.errors import EntityNotFoundError
from servicebus_pair.core.options import Endpoint
from servicebus_pair.core.prober import PING_CONTENT_TYPE
from servicebus_pair.core.reconcile import Location
from servicebus_pair.core.unreadable import BEYOND_ALL
from servicebus_pair.spark.browsing import Browser, Look
from servicebus_pair.spark.cursors import DEAD_LETTER, MAIN, Peekable
from servicebus_pair.spark.places import Place
from servicebus_pair.spark.redaction import Redaction, secret_free
from servicebus_pair.spark.references import PairReference
from servicebus_pair.spark.shape import Shape

__all__ = ["ABSENT", "PEEKED", "PING", "UNREADABLE", "peek_task"]

PEEKED: Final = Shape(
    {
        "entity": "string",
        "id": "string",
        "place": "string",
        "location": "string",
        "session": "string",
        "number": "bigint",
    }
)
# What stands in the column location beside the values of ``Location``.
ABSENT: Final = "absent"
PING: Final = "ping"
UNREADABLE: Final = "unreadable"

_STATES: Final = {
    ServiceBusMessageState.ACTIVE: Location.ACTIVE,
    ServiceBusMessageState.SCHEDULED: Location.SCHEDULED,
    ServiceBusMessageState.DEFERRED: Location.DEFERRED,
}


@dataclass(frozen=True, slots=True)
class _Target:
    """One queue, subscription or dead-letter queue; ``entity`` is ``None`` for the backlog."""

    path: str
    entity: str | None
    dead_letter: bool


@dataclass(frozen=True, slots=True)
class _Opened:
    """A target, looked into."""

    target: _Target
    look: Look
    exists: bool


def peek_task(
    reference: PairReference, places: Sequence[Place] | None, share: int, *, of: int
) -> Iterator[pa.RecordBatch]:
    """Yield one row per message held by this task's share of the queues.

    A row with the location :data:`ABSENT` stands for a backlog queue that does not exist, one with
    :data:`PING` for a ping that the service keeps, and one with :data:`UNREADABLE` for a message that the SDK cannot
    decode, of which no more is known.

    :param places: where to look; ``None`` is the pair's backlog queues.
    :param share: number of this task, from 0, among ``of``.
    :raises SparkTaskError: a place does not exist or cannot be read; without secrets.
    """
    redaction = Redaction()
    with secret_free(redaction):
        settings = reference.resolve(redaction)
        endpoint = settings.secondary if places is None else settings.primary
        targets = _backlog(settings) if places is None else _targets((place.path, place.entity) for place in places)
        with Bridge() as bridge:
            pages = _pages(endpoint, targets[share::of])
            while (page := bridge.run(_next(pages))) is not None:
                yield PEEKED.batch(page)


async def _next(pages: AsyncIterator[list[dict[str, Any]]]) -> list[dict[str, Any]] | None:
    return await anext(pages, None)


def _backlog(settings: PairSettings) -> list[_Target]:
    queues = backlog_queues(settings.primary.namespace, settings.options.backlog_queue_count)
    return _targets((queue, None) for queue in queues)


def _targets(paths: Iterable[tuple[str, str | None]]) -> list[_Target]:
    return [_Target(path, entity, dead_letter) for path, entity in paths for dead_letter in (False, True)]


async def _pages(endpoint: Endpoint, targets: Sequence[_Target]) -> AsyncIterator[list[dict[str, Any]]]:
    browser = Browser(endpoint)

    async def opened(target: _Target) -> _Opened:
        look = browser.look(Peekable(target.path, DEAD_LETTER if target.dead_letter else MAIN))
        try:
            await look.page(BEYOND_ALL, most=1)
        except EntityNotFoundError:
            if target.entity is not None:
                raise
            return _Opened(target, look, exists=False)
        return _Opened(target, look, exists=True)

    try:
        # Opening and closing a link takes half a second each, so all are opened and closed at once.
        for each in await asyncio.gather(*map(opened, targets)):
            async for page in _rows(each):
                yield page
    finally:
        await browser.close()


async def _rows(opened: _Opened) -> AsyncIterator[list[dict[str, Any]]]:
    if not opened.exists:
        yield [_note(opened.target, ABSENT)]
        return
    async for page in opened.look.readable_pages():
        yield [_note(opened.target, UNREADABLE)] if page is None else [_row(opened.target, each) for each in page]


def _note(target: _Target, said: str) -> dict[str, Any]:
    return {"entity": "", "id": None, "place": target.path, "location": said}


def _row(target: _Target, message: ServiceBusReceivedMessage) -> dict[str, Any]:
    location: str
    if message.content_type == PING_CONTENT_TYPE:
        location = PING
    elif target.entity is None:
        location = Location.BACKLOG_DEAD_LETTER if target.dead_letter else Location.BACKLOG
    else:
        location = Location.DEAD_LETTER if target.dead_letter else _STATES[message.state]
    return {
        "entity": _destination(message) if target.entity is None else target.entity,
        # Those without an id are no copies of one another.
        "id": f"(none) {target.path} {message.sequence_number}" if message.message_id is None else message.message_id,
        "place": target.path,
        "location": str(location),
        "session": message.session_id,
        "number": message.sequence_number,
    }


def _destination(message: ServiceBusReceivedMessage) -> str:
    """Where a backlog message belongs; empty when it does not say, or not in a text."""
    path = texts(message.raw_amqp_message.application_properties).get(PATH)
    try:
        return text(path) if isinstance(path, str | bytes) else ""
    except UnicodeDecodeError:
        return ""
