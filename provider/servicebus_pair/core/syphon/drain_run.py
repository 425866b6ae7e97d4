"""One call of ``drain`` or ``run``: what the drains of all queues share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from servicebus_pair.core.model.errors import AuthorizationError, ConfigurationError, ServiceError
from servicebus_pair.core.model.logs import get_logger
from servicebus_pair.core.syphon.policies.destination_backoff import PermanentFailures

if TYPE_CHECKING:
    from servicebus_pair.core.syphon.drain_context import DrainContext

_log = get_logger(__name__)
# Sessions that are served at a time, over all queues; as many of them send at the same time as there are turns.
_MAX_SESSIONS: Final = 16
_TURNS: Final = 8


async def _unknown(queues: Collection[str]) -> int:
    raise AuthorizationError(f"nothing counts what {list(queues)} hold")


@dataclass(slots=True, kw_only=True)
class DrainRun:
    """One call of ``drain`` or ``run``: what the drains of its queues share.

    :param continuous: run until stopped; else until the queues are empty.
    :param wait_for_permissions: do not fail if every queue or destination has refused from the start.
    :param initial_delay: seconds of the first backoff after a failure.
    :param long_poll: seconds of one receive of a continuous run.
    :param max_links: most busy links to backlog queues, over all queues.
    :param resumed: set while the syphon is not paused.
    :param count_messages: returns how many messages some queues hold; needs the right to manage the secondary.
    :ivar finishing: tasks that are releasing their messages and must not be cancelled.
    :ivar active_sessions: sessions that are being served, over all queues.
    :ivar held_sessions: sessions that are held for failing destinations.
    :ivar failed: ends the drain with its exception.
    """

    queue_count: int
    continuous: bool
    wait_for_permissions: bool
    initial_delay: float
    long_poll: float
    max_links: int
    resumed: asyncio.Event
    stopped: asyncio.Event
    report_progress: Callable[[], None]
    count_messages: Callable[[Collection[str]], Awaitable[int]] = _unknown
    queue_failures: PermanentFailures = field(default_factory=PermanentFailures)
    busy_queues: set[str] = field(default_factory=set)
    extra_links: int = 0
    finishing: set[asyncio.Task[Any] | None] = field(default_factory=set)
    session_turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_TURNS))
    active_sessions: int = 0
    held_sessions: int = 0
    failed: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    _may_count: bool = True

    @property
    def is_full(self) -> bool:
        """Whether no further session should be accepted."""
        return self.active_sessions >= _MAX_SESSIONS

    async def count(self, queue: str) -> int | None:
        """Return how many messages a queue holds; ``None`` if that is unknown."""
        if not self._may_count:
            return None
        try:
            return await self.count_messages([queue])
        except (AuthorizationError, ConfigurationError) as error:
            self._may_count = False
            _log.info("what remains in the backlog cannot be counted: %s", error)
        except ServiceError as error:
            _log.info("what remains in queue=%s cannot be counted now: %s", queue, error)
        return None

    def fail(self, error: Exception) -> None:
        """End the whole drain with ``error``."""
        if not self.failed.done():
            self.failed.set_exception(error)

    def raise_if_all_failed(self, context: DrainContext) -> None:
        """:raises ServiceError: in a continuous run, every queue, or every destination, has refused from the start."""
        if not self.continuous or self.wait_for_permissions:
            return
        queues, destinations = self.queue_failures.errors, context.permanent_failures
        if len(queues) == self.queue_count:
            raise next(iter(queues.values()))
        if destinations.errors and not destinations.any_succeeded:
            raise next(iter(destinations.errors.values()))
