"""Peeks queues from Spark tasks: one row per message of the receiving entities and the backlog queues.

The tasks divide the queues among themselves by index, so that the driver need not know the pair's settings.

A queue that requires sessions is read session by session, under its lock. A syphon that holds one is waited for: its
messages are in the backlog, and would be classified as lost if they were left out.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

from servicebus_pair.core import Endpoint, PairSettings, SyncBridge, is_ping
from servicebus_pair.core.errors import EntityNotFoundError, SessionLockedError
from servicebus_pair.core.ledger import Location
from servicebus_pair.core.model import SystemClock
from servicebus_pair.core.protocol import (
    AmqpMessage,
    OutlineReader,
    backlog_prefixes,
    backlog_session_id,
    body_digest,
    is_session_queue,
    queues_in_use,
)
from servicebus_pair.core.sdk import MessageState, ReceivedMessage
from servicebus_pair.core.spool import open_spool
from servicebus_pair.spark.analysis.receiving_entities import ReceivingEntity
from servicebus_pair.spark.base.arrow_schema import RowSchema
from servicebus_pair.spark.base.credential_reference import PairReference
from servicebus_pair.spark.base.offsets import DEAD_LETTER, MAIN, PeekTarget
from servicebus_pair.spark.base.redaction import Redaction, redact_errors
from servicebus_pair.spark.connections.peek_client import PeekClient, PeekCursor, iterate

PEEKED_SCHEMA: Final = RowSchema(
    {
        "entity": "string",
        "id": "string",
        "place": "string",
        "location": "string",
        "session": "string",
        "number": "bigint",
        "digest": "string",
    }
)
# Values of the column location in addition to those of ``Location``.
ABSENT: Final = "absent"
PING: Final = "ping"
UNREADABLE: Final = "unreadable"
EXAMINED: Final = "spool examined"
_SPOOL: Final = "spool"
_FORMER_QUEUE: Final = re.compile(r"/[0-9]{1,2}\Z")

# A syphon that died keeps its session for one lock duration of the queue, a minute.
_SESSION_WAIT_SECONDS: Final = 65.0

_LOCATIONS: Final = {
    MessageState.ACTIVE: Location.ACTIVE,
    MessageState.SCHEDULED: Location.SCHEDULED,
    MessageState.DEFERRED: Location.DEFERRED,
}


@dataclass(frozen=True, slots=True)
class _Queue:
    """A queue, subscription or dead-letter queue; ``entity`` is ``None`` for the backlog.

    :param sessions: sessions to read at least, if the queue requires sessions; ``None`` if it does not.
    :param tap: its copies are receipts.
    """

    path: str
    entity: str | None
    dead_letter: bool
    sessions: tuple[str, ...] | None = None
    tap: bool = False


def peek_task(
    reference: PairReference,
    entities: Sequence[ReceivingEntity] | None,
    index: int,
    *,
    tasks: int,
    diverted: Sequence[str] = (),
    recorded_queues: Sequence[str] = (),
) -> Iterator[pa.RecordBatch]:
    """Yield one row per message in this task's share of the queues.

    A row with location :data:`ABSENT` stands for a backlog queue that does not exist, :data:`PING` for a ping that
    the service kept, and :data:`UNREADABLE` for messages that the SDK cannot decode, of which nothing else is known.

    :param entities: what to peek; ``None`` is the pair's backlog queues.
    :param index: number of this task, from 0, among ``tasks``.
    :param diverted: entities whose sessions in the backlog must be read, even if a syphon holds them now.
    :param recorded_queues: backlog queues to read in addition to those in use.
    :raises SparkTaskError: an entity does not exist or cannot be read; without secrets.
    """
    redaction = Redaction()
    with redact_errors(redaction):
        settings = reference.resolve(redaction)
        if entities is None:
            endpoint, queues = settings.secondary, _backlog_queues(settings, diverted, recorded_queues)
        else:
            endpoint = settings.primary
            queues = [queue for each in entities for queue in _with_dead_letters(each.path, each.entity, tap=each.tap)]
        with SyncBridge() as bridge:
            for page in iterate(bridge, _pages(endpoint, queues[index::tasks])):
                yield PEEKED_SCHEMA.batch(page)


def spool_task(reference: PairReference) -> Iterator[pa.RecordBatch]:
    """Yield one row per message in the pair's spool; what was set aside counts as dead-lettered.

    A row with location :data:`EXAMINED` says at the end that all of it was read, and its place is the name of the
    spool. There is none of a folder without a name, to which nothing was ever written here.

    :raises SparkTaskError: the spool cannot be read; without secrets.
    """
    redaction = Redaction()
    with redact_errors(redaction):
        spool = open_spool(reference.resolve(redaction).options, clock=SystemClock())
        if spool is None:
            return
        with SyncBridge() as bridge:
            for entity, aside, messages in iterate(bridge, spool.peek()):
                location = Location.BACKLOG_DEAD_LETTER if aside else Location.SPOOL
                place = {"entity": entity, "place": _SPOOL, "location": str(location)}
                rows = ({**place, "id": _message_id(each), "digest": body_digest(each)} for each in messages)
                yield PEEKED_SCHEMA.batch(list(rows))
            if (name := bridge.run(spool.existing_name())) is not None:
                yield PEEKED_SCHEMA.batch([{"place": name, "location": EXAMINED}])


def _message_id(message: AmqpMessage) -> str | None:
    return None if message.properties is None else _text(message.properties.message_id)


def _text(value: Any) -> str | None:
    """Return an id, which AMQP also has as a number, UUID or bytes, as the ledger has it."""
    if value is None:
        return None
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)


def _backlog_queues(settings: PairSettings, diverted: Sequence[str], recorded: Sequence[str]) -> list[_Queue]:
    namespace = settings.primary.namespace
    # A queue that is no longer in use may still hold messages. Whoever writes to the ledger names no other queue.
    former = [
        path
        for path in recorded
        if path.casefold().startswith(backlog_prefixes(namespace)) and _FORMER_QUEUE.search(path) is not None
    ]
    paths = {path.casefold(): path for path in (*queues_in_use(namespace, settings.options), *former)}
    queues = [queue for path in paths.values() for queue in _with_dead_letters(path, None)]
    sessions = tuple(dict.fromkeys(map(backlog_session_id, diverted)))
    return [
        replace(queue, sessions=sessions)
        if is_session_queue(namespace, queue.path) and not queue.dead_letter
        else queue
        for queue in queues
    ]


def _with_dead_letters(path: str, entity: str | None, *, tap: bool = False) -> list[_Queue]:
    return [_Queue(path, entity, dead_letter, tap=tap) for dead_letter in (False, True)]


async def _pages(endpoint: Endpoint, queues: Sequence[_Queue]) -> AsyncIterator[list[dict[str, Any]]]:
    client, outlines = PeekClient(endpoint), OutlineReader()

    async def open_cursor(queue: _Queue) -> PeekCursor | None:
        target = PeekTarget(queue.path, DEAD_LETTER if queue.dead_letter else MAIN)
        cursor = client.cursor(target, outlines=outlines)
        try:
            await cursor.check_readable()
        except EntityNotFoundError:
            if queue.entity is not None:
                raise
            return None
        return cursor

    try:
        # Opening a link takes about half a second, so all are opened concurrently.
        unordered = [queue for queue in queues if queue.sessions is None]
        cursors = await asyncio.gather(*map(open_cursor, unordered))
        for queue, cursor in zip(unordered, cursors, strict=True):
            async for page in _queue_pages(queue, cursor):
                yield page
        for queue in queues:
            if queue.sessions is not None:
                async for page in _session_pages(client, queue, queue.sessions):
                    yield page
    finally:
        await client.close()


async def _session_pages(
    client: PeekClient, queue: _Queue, expected: Sequence[str]
) -> AsyncIterator[list[dict[str, Any]]]:
    """Yield the messages of all sessions of a queue, one session at a time, so that a syphon is held up briefly.

    :param expected: sessions to read even if the service does not list them.
    :raises SessionLockedError: another receiver keeps a session.
    """
    browser = client.session_browser(queue.path, expected=expected, lock_wait=_SESSION_WAIT_SECONDS)
    try:
        async for page in browser.readable_pages():
            yield [_row(queue, message) for message in page]
    except EntityNotFoundError:
        yield [_marker(queue, ABSENT)]
        return
    if browser.locked:
        raise SessionLockedError(
            f"sessions {', '.join(browser.locked)} of {queue.path} are held by another receiver, so that their "
            "messages cannot be examined: wait for the end of the drain, or pause the syphon"
        )
    if browser.undecodable:
        yield [_marker(queue, UNREADABLE)] * browser.undecodable


async def _queue_pages(queue: _Queue, cursor: PeekCursor | None) -> AsyncIterator[list[dict[str, Any]]]:
    if cursor is None:
        yield [_marker(queue, ABSENT)]
        return
    async for page in cursor.readable_pages():
        yield [_row(queue, message) for message in page]
    if cursor.undecodable:
        yield [_marker(queue, UNREADABLE)] * cursor.undecodable


def _marker(queue: _Queue, location: str) -> dict[str, Any]:
    return {"entity": "", "id": None, "place": queue.path, "location": location}


def _row(queue: _Queue, message: ReceivedMessage) -> dict[str, Any]:
    location: str
    message_id = _text(message.message_id)
    if is_ping(message.content_type):
        location = PING
    elif queue.tap:
        location = Location.RECEIPT
    elif queue.entity is None:
        location = Location.BACKLOG_DEAD_LETTER if queue.dead_letter else Location.BACKLOG
    else:
        location = Location.DEAD_LETTER if queue.dead_letter else _LOCATIONS[message.state]
    return {
        "entity": message.destination if queue.entity is None else queue.entity,
        # Messages without an id are not copies of one another, so each gets an id of its own.
        "id": f"(none) {queue.path} {message.sequence_number}" if message_id is None else message_id,
        "place": queue.path,
        "location": str(location),
        "session": _text(message.session_id),
        "number": message.sequence_number,
        "digest": message.digest,
    }
