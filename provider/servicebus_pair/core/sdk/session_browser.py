"""Message browsing (peek) of a queue that requires sessions, session by session."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from typing import Final, Protocol

from servicebus_pair.core.model.errors import SessionLockedError
from servicebus_pair.core.sdk.message_browser import MessageBrowser, Peekable
from servicebus_pair.core.sdk.received_message import ReceivedMessage

_ACCEPT_WAIT: Final = 1.0
_RETRY_DELAY: Final = 1.0


class _Session(Peekable, Protocol):
    """A link that accepts one session."""

    async def accept(self, *, timeout: float) -> str | None: ...

    async def close(self) -> None: ...


class _Client(Protocol):
    """The part of ``NamespaceClient`` that a browser uses."""

    async def list_sessions(self, path: str, *, timeout: float) -> list[str]: ...

    def session_link(self, path: str, *, wait: float, session_id: str) -> _Session: ...


class SessionBrowser:
    """Reads the messages of a queue that requires sessions; nothing is received.

    The SDK peeks a session only under its lock: each session is locked while it is read, one at a time.

    :param expected: sessions to read in any case; those that the service lists are read as well.
    :param lock_wait: seconds to wait for a session that another receiver holds.
    :param page_size: maximum number of messages per request.
    :param timeout: seconds per request.
    :param attempts: how often a request for a page is sent when it fails with a retriable error.
    :ivar undecodable: number of gaps found so far; each is at least one message.
    :ivar locked: sessions that another receiver held, and that were not read.
    """

    def __init__(
        self,
        client: _Client,
        path: str,
        *,
        page_size: int,
        timeout: float,
        attempts: int = 1,
        expected: Iterable[str] = (),
        lock_wait: float = 0.0,
    ) -> None:
        self._client = client
        self._path = path
        self._page_size = page_size
        self._timeout = timeout
        self._attempts = attempts
        self._expected = tuple(expected)
        self._lock_wait = lock_wait
        self.undecodable = 0
        self.locked: list[str] = []

    async def readable_pages(self, *, first_page: bool = False) -> AsyncGenerator[list[ReceivedMessage], None]:
        """Yield all messages that can be decoded, one non-empty page of one session at a time.

        :param first_page: only one page of each session, of its oldest messages.
        :raises ServiceError: the queue cannot be read.
        """
        listed = await self._client.list_sessions(self._path, timeout=self._timeout)
        for session_id in dict.fromkeys((*self._expected, *listed)):
            link = await self._accept(session_id)
            if link is None:
                self.locked.append(session_id)
                continue
            browser = MessageBrowser(link, page_size=self._page_size, timeout=self._timeout, attempts=self._attempts)
            try:
                async for page in browser.readable_pages():
                    yield page
                    if first_page:
                        break
            finally:
                self.undecodable += browser.undecodable
                await link.close()

    async def _accept(self, session_id: str) -> _Session | None:
        """Return a link that holds the lock of a session; ``None`` if another receiver keeps it."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + self._lock_wait
        while True:
            link = self._client.session_link(self._path, wait=_ACCEPT_WAIT, session_id=session_id)
            try:
                await link.accept(timeout=self._timeout)
            except SessionLockedError:
                await link.close()
                if clock() >= deadline:
                    return None
            else:
                return link
            await asyncio.sleep(_RETRY_DELAY)
