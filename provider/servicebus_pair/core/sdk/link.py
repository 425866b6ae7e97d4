"""Base class of an AMQP link: opens lazily, bounds every call twice, and is replaced after a failure.

Every call has the SDK's own timeout and an outer one, because some faults (a frozen peer, an unexpected outcome)
make the SDK hang in spite of its timeout.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from math import inf
from typing import Any, Final, NoReturn, Protocol, TypeVar

from servicebus_pair.core.model.errors import (
    AuthenticationError,
    AuthenticationSuspectError,
    InvalidMessageError,
    LockLostError,
    MessageTooLargeError,
    QuotaExceededError,
    ServerBusyError,
    ServiceError,
)
from servicebus_pair.core.model.logs import get_logger
from servicebus_pair.core.model.usage_meter import Meter, Operation
from servicebus_pair.core.sdk.error_mapping import classify
from servicebus_pair.core.sdk.idle_links import IdleLinks

_log = get_logger(__name__)
_OUTER_GRACE: Final = 0.4
_MIN_TIMEOUT: Final = 0.1
CLOSE_TIMEOUT: Final = 2.0
# The service drops a silent connection after 4 min and detaches a link after 10 min, but the client only notices
# on its next call: a link that was unused for longer than this is reopened first.
_IDLE_SECONDS: Final = 200.0
# The SDK keeps the link after these errors; it closes the link after every other one.
_LINK_SURVIVES: Final = (InvalidMessageError, LockLostError, MessageTooLargeError, QuotaExceededError, ServerBusyError)

ResultT = TypeVar("ResultT")


class _Handler(Protocol):
    async def close(self) -> None: ...


class LinkOwner(Protocol):
    """The part of ``NamespaceClient`` that its links use."""

    namespace: str
    authenticated: bool
    meter: Meter
    send_operation: Operation
    idle_links: IdleLinks
    is_closed: bool

    def check_open(self) -> None:
        """:raises PairClosedError: the client was closed, or faulted with its partner."""

    async def run_bounded(self, call: Awaitable[ResultT], seconds: float) -> ResultT:
        """Await ``call`` for at most ``seconds``. :raises TimeoutError: it took longer."""

    async def explain_auth_failure(self, error: ServiceError, path: str, *, timeout: float) -> ServiceError:
        """Return the error that a refused token for ``path`` stands for."""

    def close_soon(self, handler: _Handler) -> None:
        """Close a discarded handler in the background."""


class Link:
    """One sender or receiver of the SDK, used by one coroutine at a time."""

    def __init__(self, client: LinkOwner, path: str, create_handler: Callable[[], Any]) -> None:
        self.path = path
        self._client = client
        self._create_handler = create_handler
        self._handler: Any = None
        self._last_used = -inf
        self._lock = asyncio.Lock()

    async def _call(self, action: str, operation: Callable[[Any], Awaitable[ResultT]], *, timeout: float) -> ResultT:
        """Run ``operation`` on the handler within ``timeout`` seconds, once the link is free.

        :raises ServiceError: classified; the handler is discarded unless the link survives the error.
        """
        started = asyncio.get_running_loop().time()
        async with self._lock:
            try:
                return await self._attempt(action, operation, timeout=timeout)
            except (AuthenticationError, AuthenticationSuspectError) as error:
                await self._raise_explained(error, timeout=timeout, since=started)

    async def _raise_explained(self, error: ServiceError, *, timeout: float, since: float) -> NoReturn:
        """Raise what a refused token stands for: the service refuses that for an entity that does not exist."""
        remaining = remaining_seconds(timeout, since=since)
        explained = await self._client.explain_auth_failure(error, self.path, timeout=remaining)
        if explained is error:
            raise error  # raised from itself, it would be its own cause
        raise explained from error

    async def _attempt(
        self, action: str, operation: Callable[[Any], Awaitable[ResultT]], *, timeout: float, is_open: bool = False
    ) -> ResultT:
        if self._client.is_closed:
            self._client.check_open()
        if self._handler is None:
            self._handler, self._last_used = self._create_handler(), -inf
        seconds = timeout + _OUTER_GRACE
        try:
            call = operation(self._handler)
            if is_open:
                # Cancellation works: a separate task would be too expensive per send.
                async with asyncio.timeout(seconds):
                    result = await call
            else:
                result = await self._client.run_bounded(call, seconds)
        except asyncio.CancelledError:
            # The handler may have written half a frame: never use it again.
            self._discard()
            raise
        except Exception as failure:
            where = f"{action} {self.path} on {self._client.namespace}"
            error = self._blame(failure, classify(failure, where=where, authenticated=self._client.authenticated))
            if not isinstance(error, _LINK_SURVIVES):
                self._discard()
            raise error from failure
        self._client.authenticated = True
        self._on_success()
        return result

    def _blame(self, failure: Exception, error: ServiceError) -> ServiceError:  # noqa: ARG002 - for receivers
        """Return the error that stands for ``failure`` on a link of this kind."""
        return error

    def _on_success(self) -> None:
        self._last_used = asyncio.get_running_loop().time()

    def seconds_unused(self) -> float:
        """Return the time since the last call that succeeded."""
        return asyncio.get_running_loop().time() - self._last_used

    @property
    def attached(self) -> bool:
        """True when the last call left a working link, and was recent enough for its connection to be alive."""
        return self._handler is not None and asyncio.get_running_loop().time() - self._last_used <= _IDLE_SECONDS

    def _discard(self) -> None:
        handler, self._handler = self._handler, None
        if handler is not None:
            self._client.close_soon(handler)

    async def close(self) -> None:
        """Detach within 2 s; the SDK releases the messages that a receiver has buffered."""
        handler, self._handler = self._handler, None
        if handler is not None:
            await close_quietly(handler)


def remaining_seconds(timeout: float, *, since: float) -> float:
    """Return what is left of a time limit, at least 0.1 s."""
    return max(_MIN_TIMEOUT, timeout - (asyncio.get_running_loop().time() - since))


async def close_quietly(handler: _Handler) -> None:
    """Close a handler that may be broken, within 2 s and without raising."""
    try:
        await asyncio.wait_for(handler.close(), CLOSE_TIMEOUT)
    except Exception as failure:  # noqa: BLE001 - it may be broken already, and nothing depends on it
        _log.debug("closing a handler ended with %s", type(failure).__name__)
