"""Failures of one backlog queue itself: how long to wait before the next attempt, and when to give up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from servicebus_pair.core.model.errors import AuthorizationError, EntityNotFoundError, ServiceError
from servicebus_pair.core.model.logs import get_logger
from servicebus_pair.core.syphon.policies.destination_backoff import (
    MAX_CONSECUTIVE_FAILURES,
    backoff_delay,
    explain_queue_error,
)

if TYPE_CHECKING:
    from servicebus_pair.core.syphon.batch_sender import DrainCounters
    from servicebus_pair.core.syphon.drain_run import DrainRun

_log = get_logger(__name__)
_PERMANENT: Final = (AuthorizationError, EntityNotFoundError)


class QueueFailures:
    """Counts consecutive failures of one queue; an error that no retry can fix ends its drain at once.

    :ivar count: consecutive failures.
    """

    def __init__(self, run: DrainRun, queue: str, counters: DrainCounters) -> None:
        self.count = 0
        self._run = run
        self._queue = queue
        self._counters = counters
        self._permanent = False

    @property
    def given_up(self) -> bool:
        """Whether the drain of the queue ends; that of a continuous run never does."""
        return self._permanent or (self.count >= MAX_CONSECUTIVE_FAILURES and not self._run.continuous)

    def record(self, error: ServiceError) -> float:
        """Record a failure; return the seconds until the next attempt, 0 if there is none."""
        explained = explain_queue_error(error, self._queue)
        self._counters.failures[self._queue] = str(explained)
        self.count += 1
        if isinstance(explained, _PERMANENT) and self._run.queue_failures.record(self._queue, explained):
            self._permanent = not self._run.continuous
        if self.given_up:
            return 0.0
        delay = backoff_delay(self.count, initial_delay=self._run.initial_delay)
        _log.warning("syphon queue=%s retry_in=%.0fs: %s", self._queue, delay, explained)
        return delay

    def record_success(self) -> None:
        """Record that the queue can be read."""
        self.count = 0
        self._counters.failures.pop(self._queue, None)
        self._run.queue_failures.record_success(self._queue)
