"""Claims messages of queues for a stream, by deferring them, and removes them once they have landed.

What was deferred and is in no checkpoint, because the driver died in between, is found again by peek
(:meth:`ClaimClient.deferred`): nothing that was claimed is ever forgotten in its queue.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Final, TypeVar

from servicebus_pair.core import Endpoint, is_ping
from servicebus_pair.core.errors import LockLostError, ServiceError, SessionLockedError
from servicebus_pair.core.protocol import body_size
from servicebus_pair.core.sdk import (
    MessageBrowser,
    MessageState,
    NamespaceClient,
    ReceivedMessage,
    ReceiveLink,
    SessionBrowser,
)
from servicebus_pair.spark.base.claims import Claims, numbers_of
from servicebus_pair.spark.base.offsets import MAIN, PeekTarget
from servicebus_pair.spark.connections.peek_client import LOCK_WAIT, PeekCursor

ClaimedNumbers = Mapping[tuple[str, str], Sequence[int]]
ResultT = TypeVar("ResultT")

_PAGE_SIZE: Final = 1000
_PEEK_SIZE: Final = 500
_REMOVE_SIZE: Final = 200
_CALL_SECONDS: Final = 30.0
_ATTEMPTS: Final = 3
_RETRY_DELAY: Final = 1.0
# Once some messages have come, a queue that is silent for so long has no more.
_SILENCE: Final = 0.1
_SESSIONS_AT_ONCE: Final = 8
# A batch that is limited by bytes begins with so few messages, to learn how large they are.
_FIRST_MESSAGES: Final = 10


class ClaimClient:
    """Receives from queues of one namespace on behalf of a stream; must be closed.

    :param targets: the queues and sub-queues.
    :param requires_session: they require sessions.
    :param max_bytes: of the bodies of one batch; ``None`` is unlimited.
    :ivar dead_lettered: number of messages that could not be decoded, and were dead-lettered.
    :ivar uncertain: whether messages may have been deferred that :meth:`claim` did not return.
    """

    def __init__(
        self, endpoint: Endpoint, targets: Sequence[PeekTarget], *, requires_session: bool, max_bytes: int | None = None
    ) -> None:
        self._client = NamespaceClient(endpoint)
        self._targets = {target.address: target for target in targets}
        self._requires_session = requires_session
        self._max_bytes = max_bytes
        self._rotation = 0
        self._links: dict[str, ReceiveLink] = {}
        if not requires_session:
            self._links = {
                target.address: self._client.receive_link(target.path if target.sub_queue == MAIN else target.address)
                for target in targets
            }
        self.dead_lettered = 0
        self.uncertain = False

    async def close(self) -> None:
        """Close the client."""
        await self._client.close()

    async def end(self, address: str, first: int) -> int:
        """Return the sequence number after the last message of a queue without sessions, searched from ``first`` on."""
        return await PeekCursor(self._links[address]).end(first)

    async def waiting(self, address: str, first: int) -> int:
        """Return how many sequence numbers the messages of a queue without sessions cover, from ``first`` on."""
        found = await PeekCursor(self._links[address]).available(first)
        return 0 if found is None else found.end - found.first

    async def deferred(self) -> ClaimedNumbers:
        """Return all deferred messages of the queues, which reads each queue once by peek.

        :raises SessionLockedError: another receiver keeps a session, whose messages are unknown therefore.
        """
        found: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        self.uncertain = False
        for address in self._targets:
            async for page in self._browse(address):
                for message in page:
                    if message.state is MessageState.DEFERRED:
                        session_id = str(message.session_id) if self._requires_session else ""
                        found[address, session_id].append(message.sequence_number)
        return found

    async def claim(self, limit: int, *, wait: float) -> ClaimedNumbers:
        """Defer up to ``limit`` messages, in order within each session; return their sequence numbers.

        :param wait: seconds to wait for the first.
        :raises ServiceError: some may be deferred already; :meth:`deferred` finds them.
        """
        self._rotation += 1
        addresses = list(self._targets)
        addresses = [addresses[(self._rotation + number) % len(addresses)] for number in range(len(addresses))][:limit]
        share = limit // len(addresses)
        claim = self._claim_sessions if self._requires_session else self._claim_queue
        parts = await asyncio.gather(*(claim(address, share, wait) for address in addresses))
        return {key: numbers for part in parts for key, numbers in part.items() if numbers}

    async def remove(self, claims: Claims) -> None:
        """Remove claimed messages; those that are gone already are none that is missed.

        :raises ServiceError: some may be left; call it again.
        """
        slots = asyncio.Semaphore(_SESSIONS_AT_ONCE)

        async def remove(address: str, session_id: str) -> None:
            numbers = list(numbers_of(claims[address, session_id]))
            async with slots, self.link(address, session_id) as link:
                for first in range(0, len(numbers), _REMOVE_SIZE):
                    await self._remove(link, numbers[first : first + _REMOVE_SIZE])

        await asyncio.gather(*(remove(*key) for key in claims))

    async def _claim_queue(self, address: str, limit: int, wait: float) -> dict[tuple[str, str], list[int]]:
        return {(address, ""): await self._take(self._links[address], limit, wait)}

    async def _claim_sessions(self, address: str, limit: int, wait: float) -> dict[tuple[str, str], list[int]]:
        claimed: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        free = limit

        async def claim_some() -> None:
            nonlocal free
            while free > 0:
                share = min(free, _PAGE_SIZE)
                free -= share
                link = self._client.session_link(address, wait=wait)
                try:
                    session_id = await _retried(partial(link.accept, timeout=_CALL_SECONDS))
                    numbers = [] if session_id is None else await self._take(link, share, _SILENCE)
                finally:
                    await link.close()
                free += share - len(numbers)
                if not numbers:
                    return
                claimed[address, str(session_id)] += numbers

        await asyncio.gather(*(claim_some() for _ in range(_SESSIONS_AT_ONCE)))
        return claimed

    async def _take(self, link: ReceiveLink, limit: int, wait: float) -> list[int]:
        numbers: list[int] = []
        size = 0
        while (page := self._page(limit, len(numbers), size)) > 0:
            # A receive that failed is repeated; one that was given messages has returned them.
            received = await _retried(
                partial(
                    link.receive,
                    max_messages=page,
                    max_wait_time=_SILENCE if numbers else wait,
                    timeout=_CALL_SECONDS,
                )
            )
            if not received:
                break
            wanted = await self._screen(link, received)
            for message, error in zip(wanted, await link.defer(wanted, timeout=_CALL_SECONDS), strict=True):
                if error is not None:
                    # In a session, later messages must not overtake this one.
                    if self._requires_session or not (error.retriable or isinstance(error, LockLostError)):
                        raise error
                    self.uncertain = True
                    continue
                numbers.append(message.sequence_number)
                size += body_size(message.amqp) if self._max_bytes is not None else 0
        return numbers

    def _page(self, limit: int, claimed: int, size: int) -> int:
        """Return how many messages to receive next."""
        page = min(_PAGE_SIZE, limit - claimed)
        if self._max_bytes is None:
            return page
        if claimed == 0:
            return min(page, _FIRST_MESSAGES)
        if size >= self._max_bytes:
            return 0
        return min(page, max(1, (self._max_bytes - size) * claimed // max(1, size)))

    async def _screen(self, link: ReceiveLink, received: Sequence[ReceivedMessage]) -> list[ReceivedMessage]:
        """Return what belongs to the stream: pings are completed, and what cannot be decoded is dead-lettered."""
        wanted: list[ReceivedMessage] = []
        pings: list[ReceivedMessage] = []
        for message in received:
            if (reason := message.decode_error) is not None:
                error = await link.dead_letter(message, reason="Undecodable", description=reason, timeout=_CALL_SECONDS)
                if error is not None:
                    raise error
                self.dead_lettered += 1
            elif is_ping(message.content_type):
                pings.append(message)
            else:
                wanted.append(message)
        if pings:
            await link.complete(pings, timeout=_CALL_SECONDS)
        return wanted

    async def _remove(self, link: ReceiveLink, numbers: Sequence[int]) -> None:
        pending = list(numbers)
        deadline = asyncio.get_running_loop().time() + LOCK_WAIT
        while pending and not await _retried(partial(link.remove_deferred, pending, timeout=_CALL_SECONDS)):
            remaining = await self.still_deferred(link, pending)
            if len(remaining) == len(pending) > 1:
                middle = len(pending) // 2
                await self._remove(link, pending[:middle])
                await self._remove(link, pending[middle:])
                return
            if remaining == pending:
                # Somebody has received it by its number; the lock will end.
                if asyncio.get_running_loop().time() >= deadline:
                    raise LockLostError(f"message {pending[0]} of {link.path} is locked by another receiver")
                await asyncio.sleep(_RETRY_DELAY)
            pending = remaining

    async def still_deferred(self, link: ReceiveLink, numbers: Sequence[int]) -> list[int]:
        """Return which of these messages are deferred, in ascending order."""
        wanted, found = set(numbers), []
        cursor = PeekCursor(link)
        async for page in cursor.pages(min(numbers), end=max(numbers) + 1):
            found += [
                each.sequence_number
                for each in page
                if each.state is MessageState.DEFERRED and each.sequence_number in wanted
            ]
        return found

    @asynccontextmanager
    async def link(self, address: str, session_id: str) -> AsyncIterator[ReceiveLink]:
        """Yield the link of a queue, or one that holds a session. :raises SessionLockedError: another receiver does."""
        if not self._requires_session:
            yield self._links[address]
            return
        link = await self._accept(address, session_id)
        try:
            yield link
        finally:
            await link.close()

    async def _accept(self, address: str, session_id: str) -> ReceiveLink:
        """Return a link that holds a session, whose lock a task that was killed may have left."""
        deadline = asyncio.get_running_loop().time() + LOCK_WAIT
        while True:
            link = self._client.session_link(address, wait=_RETRY_DELAY, session_id=session_id)
            try:
                await _retried(partial(link.accept, timeout=_CALL_SECONDS))
            except SessionLockedError:
                await link.close()
                if asyncio.get_running_loop().time() >= deadline:
                    raise
                await asyncio.sleep(_RETRY_DELAY)
            else:
                return link

    async def _browse(self, address: str) -> AsyncIterator[list[ReceivedMessage]]:
        if not self._requires_session:
            browser = MessageBrowser(
                self._links[address], page_size=_PEEK_SIZE, timeout=_CALL_SECONDS, attempts=_ATTEMPTS
            )
            async for page in browser.readable_pages():
                yield page
            return
        sessions = SessionBrowser(
            self._client,
            address,
            page_size=_PEEK_SIZE,
            timeout=_CALL_SECONDS,
            attempts=_ATTEMPTS,
            lock_wait=LOCK_WAIT,
        )
        async for page in sessions.readable_pages():
            yield page
        if sessions.locked:
            raise SessionLockedError(f"session {sessions.locked[0]!r} of {address} is locked by another receiver")


async def _retried(call: Callable[[], Awaitable[ResultT]]) -> ResultT:
    """Call up to three times while it fails with an error that may pass."""
    for attempt in range(1, _ATTEMPTS):
        try:
            return await call()
        except ServiceError as error:
            if not error.retriable:
                raise
        await asyncio.sleep(_RETRY_DELAY * attempt)
    return await call()
