"""One link of the SDK as the rest of the core uses it: opened late, bounded twice, thrown away when it broke.

Every call is bounded by the SDK's own timeout and by an outer wait, since some faults (a frozen
peer, an unexpected outcome) hang the SDK even with a timeout. After a failure of the link it is
thrown away and opened anew by the next call. One link is used by one coroutine at a time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from math import inf
from typing import Any, Final, Protocol, TypeVar

from servicebus_pair.core.errors import (
    InvalidMessageError,
    LockLostError,
    MessageTooLargeError,
    QuotaExceededError,
    ServerBusyError,
    ServiceError,
)
from servicebus_pair.core.failures import classify
from servicebus_pair.core.meter import Meter, Operation

__all__ = ["CLOSE_SECONDS", "Link", "Owner", "close_quietly"]

_log = logging.getLogger(__name__)
_OUTER_GRACE: Final = 0.4
CLOSE_SECONDS: Final = 2.0
# What was never used for longer is taken for closed by the service, which says so only to the next call:
# after 4 min without a byte a connection is dropped, after 10 min a link detached.
_IDLE_SECONDS: Final = 200.0
# After these the SDK keeps the link; it shuts down after every other error.
_LINK_REMAINS: Final = (InvalidMessageError, LockLostError, MessageTooLargeError, QuotaExceededError, ServerBusyError)

ResultT = TypeVar("ResultT")


class _Handler(Protocol):
    async def close(self) -> None: ...


class Owner(Protocol):
    """What a link needs of the client that made it."""

    namespace: str
    authenticated: bool
    meter: Meter
    sends: Operation

    def check_open(self) -> None:
        """:raises PairClosedError: the client was closed, or faulted with its partner."""

    async def bounded(self, call: Awaitable[ResultT], seconds: float) -> ResultT:
        """Await a call for at most ``seconds``. :raises TimeoutError: there was no answer."""

    async def explain(self, error: ServiceError, path: str, *, seconds: float) -> ServiceError:
        """Answer what a refused token for ``path`` means."""

    def close_soon(self, handler: _Handler) -> None:
        """Close a thrown-away handler in the background."""


async def _timed(call: Awaitable[ResultT], seconds: float) -> ResultT:
    """Bound a call on an open link, which ends at once when it is cancelled: a task of its own costs too much here."""
    async with asyncio.timeout(seconds):
        return await call


class Link:
    """What a send link and a receive link share: opening late, bounded calls, throwing away."""

    def __init__(self, client: Owner, path: str, make: Callable[[], Any]) -> None:
        self.path = path
        self._client = client
        self._make = make
        self._handler: Any = None
        self._used = -inf
        self._lock = asyncio.Lock()

    async def _call(self, doing: str, operation: Callable[[Any], Awaitable[ResultT]], *, timeout: float) -> ResultT:
        """Wait for this link's turn, then run ``operation`` on the open handler within ``timeout`` seconds.

        :raises ServiceError: classified; the handler is thrown away unless the link remains.
        """
        async with self._lock:
            return await self._attempt(doing, operation, timeout=timeout)

    async def _attempt(
        self, doing: str, operation: Callable[[Any], Awaitable[ResultT]], *, timeout: float, open_already: bool = False
    ) -> ResultT:
        self._client.check_open()
        if self._handler is None:
            self._handler, self._used = self._make(), -inf
        bounded = _timed if open_already else self._client.bounded
        try:
            answer = await bounded(operation(self._handler), timeout + _OUTER_GRACE)
        except asyncio.CancelledError:
            # The handler may be in the middle of a frame: never use it again.
            self._discard()
            raise
        except Exception as failure:
            where = f"{doing} {self.path} on {self._client.namespace}"
            error = classify(failure, where=where, authenticated=self._client.authenticated)
            if not isinstance(error, _LINK_REMAINS):
                self._discard()
            raise error from failure
        self._client.authenticated = True
        self._used = asyncio.get_running_loop().time()
        return answer

    @property
    def _idle(self) -> bool:
        """True when the handler was not used for so long that its connection is likely to be gone."""
        return asyncio.get_running_loop().time() - self._used > _IDLE_SECONDS

    def _discard(self) -> None:
        handler, self._handler = self._handler, None
        if handler is not None:
            self._client.close_soon(handler)

    async def close(self) -> None:
        """Detach; buffered messages of a receiver are released by the SDK. Bounded to 2 s."""
        handler, self._handler = self._handler, None
        if handler is not None:
            await close_quietly(handler)


async def close_quietly(handler: _Handler) -> None:
    """Close what may be broken already, bounded to 2 s."""
    try:
        await asyncio.wait_for(handler.close(), CLOSE_SECONDS)
    except Exception as failure:  # noqa: BLE001 - closing what is already broken; nothing depends on it
        _log.debug("closing a handler ended with %s", type(failure).__name__)
