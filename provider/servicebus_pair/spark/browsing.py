"""Looking into one namespace by peek: nothing is received, locked or settled. Memory is bounded by one page.

A session is the exception: it can only be looked into under its lock, which is held meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Generator, Sequence
from typing import Final

from azure.servicebus import ServiceBusReceivedMessage

from servicebus_pair.core.clients import NamespaceClient, ReceiveLink
from servicebus_pair.core.errors import RefusedError, ServiceError, ServiceFaultError
from servicebus_pair.core.options import Endpoint
from servicebus_pair.core.unreadable import BEYOND_ALL, readable_behind
from servicebus_pair.spark.cursors import FIRST, MAIN, Ahead, Peekable, search_end

__all__ = ["Browser", "Look", "after"]

_PAGE: Final = 500
_CALL_SECONDS: Final = 30.0
_TRIES: Final = 3
_PAUSE_SECONDS: Final = 1.0
_HOW_TO_READ: Final = (
    "(what requires sessions is read by option sessionId, and a topic by its subscriptions, topic/Subscriptions/name)"
)


class Browser:
    """One namespace; close it."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._client = NamespaceClient(endpoint)
        self.namespace: Final = endpoint.namespace

    def look(self, peekable: Peekable) -> Look:
        """Answer a look at a queue; it opens when it is used first."""
        if peekable.sub_queue == MAIN:
            link = self._client.receive_link(peekable.path, session_id=peekable.session_id)
        else:
            link = self._client.receive_link(peekable.address)
        return Look(link)

    async def close(self) -> None:
        """Close the client and all looks."""
        await self._client.close()


class Look:
    """A look at one queue. Failures that may pass are tried again, three times in all."""

    def __init__(self, link: ReceiveLink) -> None:
        self._link = link

    async def page(self, first: int = FIRST, *, most: int = _PAGE) -> list[ServiceBusReceivedMessage]:
        """Answer up to ``most`` messages from sequence number ``first`` on.

        :raises ServiceError: such as for a queue that does not exist.
        """
        for attempt in range(1, _TRIES):
            try:
                return await self._link.peek(most=most, timeout=_CALL_SECONDS, first=first)
            except ServiceError as error:
                if isinstance(error, RefusedError):
                    raise RefusedError(f"{error} {_HOW_TO_READ}") from error
                if not error.retriable:
                    raise
            await asyncio.sleep(_PAUSE_SECONDS * attempt)
        return await self._link.peek(most=most, timeout=_CALL_SECONDS, first=first)

    async def pages(
        self, first: int = FIRST, *, end: int | None = None
    ) -> AsyncIterator[list[ServiceBusReceivedMessage]]:
        """Yield all messages from sequence number ``first`` on, up to and without ``end``, page by page."""
        cursor = first
        while end is None or cursor < end:
            page = await self.page(cursor)
            if not page:
                return
            cursor = after(page)
            taken = page if end is None else [message for message in page if _number(message) < end]
            if taken:
                yield taken

    async def readable_pages(self) -> AsyncIterator[list[ServiceBusReceivedMessage] | None]:
        """Yield all messages, page by page, and ``None`` in place of each that the SDK cannot decode.

        :raises ServiceError: nothing can be read, so it is no matter of a message.
        """
        cursor, most = FIRST, _PAGE
        while True:
            try:
                page = await self.page(cursor, most=most)
            except ServiceFaultError:
                if most > 1:
                    most = 1  # one at a time, up to the one that cannot be decoded
                    continue
                await self._link.peek(most=1, timeout=_CALL_SECONDS, first=BEYOND_ALL)
                cursor, most = await readable_behind(cursor, self._is_readable), _PAGE
                yield None
                continue
            if not page:
                return
            cursor = after(page)
            yield page

    async def _is_readable(self, number: int) -> bool:
        try:
            await self._link.peek(most=1, timeout=_CALL_SECONDS, first=number)
        except ServiceFaultError:
            return False
        return True

    async def ahead(self, first: int) -> Ahead | None:
        """Answer what lies from sequence number ``first`` on; ``None`` when nothing does."""
        start = await self._first_from(first)
        return None if start is None else Ahead(start, await self._answered(search_end(start)))

    async def end(self, first: int) -> int:
        """Answer the number after the last message, or ``first`` when there is none from there on."""
        return await self._answered(search_end(first))

    async def _answered(self, questions: Generator[int, int | None, int]) -> int:
        number = next(questions)
        while True:
            found = await self._first_from(number)
            try:
                number = questions.send(found)
            except StopIteration as end:
                return int(end.value)

    async def _first_from(self, number: int) -> int | None:
        found: Sequence[ServiceBusReceivedMessage] = await self.page(number, most=1)
        return _number(found[0]) if found else None


def after(page: Sequence[ServiceBusReceivedMessage]) -> int:
    """Answer the sequence number after the last of ``page``."""
    return 1 + max(map(_number, page))


def _number(message: ServiceBusReceivedMessage) -> int:
    return message.sequence_number or 0
