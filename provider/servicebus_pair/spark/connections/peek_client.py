"""Peek access to one namespace: nothing is received, locked or settled. Memory is bounded by one page.

Sessions are the exception: a session can only be peeked while its lock is held.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Generator, Hashable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Final, TypeVar

from servicebus_pair.core import Endpoint, SyncBridge
from servicebus_pair.core.errors import RefusedError, SessionLockedError
from servicebus_pair.core.protocol import OutlineReader
from servicebus_pair.core.sdk import (
    MessageBrowser,
    MessageState,
    NamespaceClient,
    ReceivedMessage,
    ReceiveLink,
    SessionBrowser,
)
from servicebus_pair.spark.base.claims import Ranges, ranges_of
from servicebus_pair.spark.base.offsets import (
    DEAD_LETTER,
    FIRST_SEQUENCE_NUMBER,
    MAIN,
    OffsetRange,
    PeekTarget,
    check_not_partitioned,
    find_end,
)
from servicebus_pair.spark.connections.kept_connections import kept

PageT = TypeVar("PageT")

LOCK_WAIT: Final = 65.0
"""Seconds to wait for a lock that a killed process may have left: a little more than the usual duration of a lock."""
_PAGE_SIZE: Final = 500
# Enough to pass over some scheduled messages.
_PROBE_SIZE: Final = 10
_CALL_SECONDS: Final = 30.0
_ACCEPT_WAIT: Final = 1.0
_ATTEMPTS: Final = 3
_MAX_LINKS: Final = 16
_REFUSED_HINT: Final = (
    "(an entity that requires sessions is read with option sessionId, or received with requiresSession=true, "
    "a topic through its subscriptions, "
    "topic/Subscriptions/name)"
)


class PeekClient:
    """Peeks the entities of one namespace; must be closed."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._client = NamespaceClient(endpoint)
        self._cursors: dict[PeekTarget, PeekCursor] = {}
        self.namespace: Final = endpoint.namespace

    @classmethod
    @contextmanager
    def kept(cls, reference: Hashable, endpoint: Endpoint) -> Iterator[tuple[SyncBridge, PeekClient]]:
        """Lend a client, perhaps of an earlier task in this process, and the bridge that runs its coroutines.

        :param reference: where ``endpoint`` is from.
        """

        async def open_client() -> PeekClient:
            return cls(endpoint)

        with kept((cls, reference), endpoint, open_client) as loan:
            yield loan.bridge, loan.connection

    def cursor(self, target: PeekTarget, *, outlines: OutlineReader | None = None) -> PeekCursor:
        """Return the cursor over one queue; its link opens on first use, and stays open until :meth:`leave`.

        :param outlines: reads messages of which no more is needed than their outlines.
        """
        if target.sub_queue == MAIN and target.session_id is not None:
            return PeekCursor(self._client.session_link(target.path, wait=_ACCEPT_WAIT, session_id=target.session_id))
        cursor = self._cursors.pop(target, None)
        if cursor is None:
            link = self._client.receive_link(target.path if target.sub_queue == MAIN else target.address)
            link.outlines = outlines
            cursor = PeekCursor(link)
        self._cursors[target] = cursor
        return cursor

    async def leave(self, cursor: PeekCursor) -> None:
        """Close the cursor of a session, which releases its lock; keep that of a queue, if it is not one of many."""
        if cursor not in self._cursors.values():
            await cursor.close()
        while len(self._cursors) > _MAX_LINKS:
            await self._cursors.pop(next(iter(self._cursors))).close()

    def session_browser(self, path: str, *, expected: Iterable[str], lock_wait: float) -> SessionBrowser:
        """Return a browser of all sessions of a queue that requires them."""
        return SessionBrowser(
            self._client,
            path,
            page_size=_PAGE_SIZE,
            timeout=_CALL_SECONDS,
            attempts=_ATTEMPTS,
            expected=expected,
            lock_wait=lock_wait,
        )

    async def dead_letters(self, path: str, numbers: Collection[int]) -> set[int]:
        """Return which of these sequence numbers are in the dead-letter queue: dead letters keep theirs."""
        cursor = self.cursor(PeekTarget(path, DEAD_LETTER))
        pages = cursor.claimed_pages(ranges_of(numbers))
        return {message.sequence_number async for page in pages for message in page}

    async def close(self) -> None:
        """Close the client and all its cursors."""
        await self._client.close()


class PeekCursor(MessageBrowser):
    """Reads one queue by peek; a request that fails with a retriable error is sent up to three times."""

    def __init__(self, link: ReceiveLink) -> None:
        super().__init__(link, page_size=_PAGE_SIZE, timeout=_CALL_SECONDS, attempts=_ATTEMPTS)
        self._receive_link = link

    async def close(self) -> None:
        """Close the link."""
        await self._receive_link.close()

    async def page(
        self, from_sequence_number: int = FIRST_SEQUENCE_NUMBER, *, max_messages: int | None = None
    ) -> list[ReceivedMessage]:
        """Return up to ``max_messages`` messages from a sequence number on.

        :raises RefusedError: the error names the option that the entity needs.
        :raises ServiceError: the queue cannot be read, for instance because it does not exist.
        """
        try:
            return await super().page(from_sequence_number, max_messages=max_messages)
        except RefusedError as error:
            raise RefusedError(f"{error} {_REFUSED_HINT}") from error

    async def pages(
        self, first: int = FIRST_SEQUENCE_NUMBER, *, end: int | None = None
    ) -> AsyncIterator[list[ReceivedMessage]]:
        """Yield the messages from sequence number ``first`` up to but excluding ``end``, page by page."""
        position = first
        while end is None or position < end:
            page = await self.page(position)
            if not page:
                return
            position = page[-1].sequence_number + 1
            selected = page if end is None else [message for message in page if message.sequence_number < end]
            if selected:
                yield selected

    async def claimed_pages(self, ranges: Ranges) -> AsyncIterator[list[ReceivedMessage]]:
        """Yield the messages that have one of these sequence numbers, in order, page by page.

        A session that another receiver holds is waited for: a task that was killed may have left its lock.
        """
        position, number = 0, 0
        while number < len(ranges):
            position = max(position, ranges[number][0])
            page = await self._unlocked_page(position)
            if not page:
                return
            selected, position = [], page[-1].sequence_number + 1
            for message in page:
                while number < len(ranges) and ranges[number][1] < message.sequence_number:
                    number += 1
                if number < len(ranges) and ranges[number][0] <= message.sequence_number:
                    selected.append(message)
            while number < len(ranges) and ranges[number][1] < position:
                number += 1
            if selected:
                yield selected

    async def _unlocked_page(self, position: int) -> list[ReceivedMessage]:
        clock = asyncio.get_running_loop().time
        deadline = clock() + LOCK_WAIT
        while True:
            try:
                return await self.page(position)
            except SessionLockedError:
                if clock() >= deadline:
                    raise
            await asyncio.sleep(_ACCEPT_WAIT)

    async def available(self, first: int) -> OffsetRange | None:
        """Return the range of messages from sequence number ``first`` on; ``None`` if there are none."""
        start = await self._first_from(first)
        return None if start is None else OffsetRange(start, await self._search(find_end(start)))

    async def end(self, first: int) -> int:
        """Return the sequence number after the last message, or ``first`` if there is none from there on."""
        return await self._search(find_end(first))

    async def first_since(self, moment: datetime) -> int:
        """Return the sequence number from which on messages were enqueued at ``moment`` or later, or the end.

        Sequence numbers are given in the order of enqueueing, but for scheduled messages, which get another one then.

        :raises ConfigurationError: the entity is partitioned, so that this order is one of each partition.
        """
        first, after = FIRST_SEQUENCE_NUMBER, await self.end(FIRST_SEQUENCE_NUMBER)
        check_not_partitioned(self._receive_link.path, OffsetRange(first, after))
        while first < after:
            middle = (first + after) // 2
            message = await self._first_enqueued(middle, after)
            if message is None or message.enqueued_time is None or message.enqueued_time >= moment:
                after = middle
            else:
                first = max(middle, message.sequence_number) + 1
        return after

    async def _first_enqueued(self, number: int, end: int) -> ReceivedMessage | None:
        while number < end and (page := await self.page(number, max_messages=_PROBE_SIZE)):
            for message in page:
                if message.state is not MessageState.SCHEDULED:
                    return message
            number = page[-1].sequence_number + 1
        return None

    async def _search(self, search: Generator[int, int | None, int]) -> int:
        number = next(search)
        while True:
            found = await self._first_from(number)
            try:
                number = search.send(found)
            except StopIteration as finished:
                return int(finished.value)

    async def _first_from(self, number: int) -> int | None:
        messages = await self.page(number, max_messages=1)
        return messages[-1].sequence_number if messages else None


def iterate(bridge: SyncBridge, pages: AsyncIterator[PageT]) -> Iterator[PageT]:
    """Yield the pages of an asynchronous iterator in synchronous code."""

    async def next_page() -> PageT | None:
        return await anext(pages, None)

    while (page := bridge.run(next_page())) is not None:
        yield page
