"""Message browsing (peek) of a whole queue, past messages that the SDK cannot decode."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final, Protocol

from servicebus_pair.core.model.errors import ServiceError, ServiceFaultError
from servicebus_pair.core.sdk.received_message import ReceivedMessage

_FIRST_SEQUENCE_NUMBER: Final = 1
# No message has this sequence number, not even where the highest 16 bits name a partition: a peek from here returns
# nothing, and fails only if the queue as a whole cannot be read.
_BEYOND_ALL: Final = 2**62
_RETRY_DELAY: Final = 1.0
_LINEAR_PROBES: Final = 64


class Peekable(Protocol):
    """A link whose queue can be browsed without locking messages."""

    async def peek(self, *, max_messages: int, timeout: float, from_sequence_number: int = 1) -> list[ReceivedMessage]:
        """Return up to ``max_messages`` messages from a sequence number on, in ascending order."""


class MessageBrowser:
    """Reads all messages of a queue page by page, without locking or removing any.

    A peek fails as a whole if the SDK cannot decode one of its messages. The browser then searches for the next
    readable message and counts the gap in :attr:`undecodable`.

    :param link: the link to peek over; the caller closes it.
    :param page_size: maximum number of messages per request.
    :param timeout: seconds per request.
    :param attempts: how often a request for a page is sent when it fails with a retriable error.
    """

    def __init__(self, link: Peekable, *, page_size: int, timeout: float, attempts: int = 1) -> None:
        self._link = link
        self._page_size = page_size
        self._timeout = timeout
        self._attempts = attempts
        self.undecodable = 0
        """Number of gaps found so far; each is at least one message."""

    async def page(
        self, from_sequence_number: int = _FIRST_SEQUENCE_NUMBER, *, max_messages: int | None = None
    ) -> list[ReceivedMessage]:
        """Return the messages from a sequence number on, at most ``max_messages`` or one page.

        :raises ServiceError: the queue cannot be read, or holds an undecodable message there.
        """
        count = self._page_size if max_messages is None else max_messages
        for attempt in range(1, self._attempts):
            try:
                return await self._peek(from_sequence_number, count)
            except ServiceError as error:
                if not error.retriable:
                    raise
            await asyncio.sleep(_RETRY_DELAY * attempt)
        return await self._peek(from_sequence_number, count)

    async def check_readable(self) -> None:
        """:raises ServiceError: the queue cannot be read at all, for instance because it does not exist."""
        await self.page(_BEYOND_ALL)

    async def readable_pages(
        self, from_sequence_number: int = _FIRST_SEQUENCE_NUMBER
    ) -> AsyncIterator[list[ReceivedMessage]]:
        """Yield all messages that can be decoded from a sequence number on, one non-empty page at a time.

        :raises ServiceError: the queue cannot be read.
        """
        cursor, max_messages = from_sequence_number, self._page_size
        while True:
            try:
                page = await self.page(cursor, max_messages=max_messages)
            except ServiceFaultError:
                if max_messages > 1:
                    # Read one at a time up to the message that cannot be decoded.
                    max_messages = 1
                    continue
                await self.check_readable()
                self.undecodable += 1
                cursor, max_messages = await self._next_readable(cursor), self._page_size
                continue
            if not page:
                return
            cursor = page[-1].sequence_number + 1
            yield page

    async def _next_readable(self, undecodable: int) -> int:
        """Return the first sequence number after ``undecodable`` from which a message can be decoded."""
        # One by one at first: bisection would miss a readable message between two that are not.
        for number in range(undecodable + 1, undecodable + 1 + _LINEAR_PROBES):
            if await self._is_readable(number):
                return number
        low, step = undecodable + _LINEAR_PROBES, 1
        while not await self._is_readable(low + step):
            if low + step > _BEYOND_ALL:
                raise ServiceFaultError(f"no message after sequence number {undecodable} can be read")
            low, step = low + step, step * 2
        while step := step // 2:
            if not await self._is_readable(low + step):
                low += step
        return low + 1

    async def _is_readable(self, sequence_number: int) -> bool:
        try:
            await self._peek(sequence_number, 1)
        except ServiceFaultError:
            return False
        return True

    async def _peek(self, from_sequence_number: int, max_messages: int) -> list[ReceivedMessage]:
        return await self._link.peek(
            max_messages=max_messages, timeout=self._timeout, from_sequence_number=from_sequence_number
        )
