"""Time limits of one send: the caller's deadline, and the search for a backlog queue.

A secondary that refuses does so at once, so every backlog queue is asked. One that is silent would hold a send for
the call timeout of each queue in turn; the time for all failing queues together is therefore bounded.
"""

from __future__ import annotations

from math import inf
from typing import Final

from servicebus_pair.core.model.errors import ConfigurationError, SendTimeoutError, ServiceError, TimedOutError
from servicebus_pair.core.model.interfaces import Clock
from servicebus_pair.core.model.results import SendResult

# All values are seconds.
MAX_CALL_TIMEOUT: Final = 10.0
_MIN_ATTEMPT: Final = 1.0
_MIN_SEARCH: Final = 10.0
_MAX_SEARCH: Final = 20.0
_UNRESPONSIVE_SEARCH: Final = 4.0
# Timeout of a call that starts when the time of its attempt is already used up.
_MIN_CALL: Final = 0.1


class Deadline:
    """The caller's time limit for one send; immutable.

    :param timeout: seconds from now; ``None`` for no limit.
    :ivar at: when it passes, on the clock; infinite without a limit.
    :raises ConfigurationError: ``timeout`` is not a number of seconds from 0 on.
    """

    def __init__(self, clock: Clock, *, timeout: float | None) -> None:
        if timeout is not None and not _is_duration(timeout):
            raise ConfigurationError(f"timeout is {timeout!r}: it must be a number of seconds from 0 on, or None")
        self._clock = clock
        self._timeout = timeout
        self.at = inf if timeout is None else clock.now() + timeout

    def remaining(self, *, last: ServiceError | None = None) -> float:
        """Return the remaining seconds; infinite without a limit.

        :param last: the failure that used up the time, if any.
        :raises SendTimeoutError: the deadline has passed.
        """
        seconds = self.at - self._clock.now()
        if seconds <= 0:
            raise self.timeout_error(last=last)
        return seconds

    def timeout_error(self, *, last: ServiceError | None) -> SendTimeoutError:
        """Return the error of a missed deadline; the delivery adds result and unsent messages."""
        cause = TimedOutError("the time given by the caller is over") if last is None else last
        return SendTimeoutError(
            f"not finished within the {self._timeout} s given by the caller: {cause}",
            cause=cause,
            result=SendResult(),
            unsent=(),
        )


def search_timeout(failover_interval: float, *, unresponsive: bool) -> float:
    """Return how long all failing backlog queues may take together: the failover interval, within 10 to 20 s.

    :param failover_interval: seconds.
    :param unresponsive: the pair's last search timed out; then 4 s, until the secondary accepts something again.
    """
    return _UNRESPONSIVE_SEARCH if unresponsive else min(_MAX_SEARCH, max(_MIN_SEARCH, failover_interval))


class BacklogSearchBudget:
    """Time budget of one send for attempts on backlog queues; successful attempts cost nothing.

    An attempt may use half of the remaining budget, at least 1 s and at most ``longest``.

    :param seconds: total of all failed attempts.
    :param deadline: the caller's limit, which takes precedence.
    :param longest: seconds; the option ``attempt_timeout``.
    """

    def __init__(self, clock: Clock, *, seconds: float, deadline: Deadline, longest: float = MAX_CALL_TIMEOUT) -> None:
        self._clock = clock
        self._longest = longest
        self.deadline = deadline
        self._remaining = seconds
        self._started = clock.now()

    @property
    def exhausted(self) -> bool:
        """True when no further attempt may be made."""
        return self._remaining <= 0

    def start_attempt(self) -> None:
        """Start timing an attempt; called again when the attempt makes progress."""
        self._started = self._clock.now()

    def fail_attempt(self) -> None:
        """Charge the time since the attempt started."""
        self._remaining -= self._clock.now() - self._started

    def call_timeout(self) -> float:
        """Return the timeout of the attempt's next call, in seconds.

        :raises SendTimeoutError: the caller's deadline has passed.
        """
        share = min(self._longest, max(_MIN_ATTEMPT, self._remaining / 2))
        remaining = max(_MIN_CALL, share - (self._clock.now() - self._started))
        return min(remaining, self.deadline.remaining())


def _is_duration(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0
