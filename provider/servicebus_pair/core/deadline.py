"""The end of a caller's patience, on the pair's clock."""

from __future__ import annotations

from math import inf, isnan

from servicebus_pair.core.errors import ConfigurationError, SendTimeoutError, ServiceError, TimedOutError
from servicebus_pair.core.ports import Clock
from servicebus_pair.core.results import SendResult

__all__ = ["Deadline"]


class Deadline:
    """When a send must end.

    :param timeout: seconds from now; ``None`` sets no end.
    :raises ConfigurationError: it is no number, or below 0.
    """

    def __init__(self, clock: Clock, *, timeout: float | None) -> None:
        if timeout is not None and not _is_duration(timeout):
            raise ConfigurationError(f"timeout is {timeout!r}: it must be a number of seconds from 0 on, or None")
        self._clock = clock
        self._timeout = timeout
        self._at = inf if timeout is None else clock.now() + timeout

    def left(self, *, last: ServiceError | None = None) -> float:
        """Answer the seconds that are left; infinite without an end.

        :param last: the failure that used up the time, if any.
        :raises SendTimeoutError: none are left.
        """
        seconds = self._at - self._clock.now()
        if seconds <= 0:
            raise self.over(last=last)
        return seconds

    def over(self, *, last: ServiceError | None) -> SendTimeoutError:
        """Answer the error that says so; the sender completes it with its account."""
        cause = TimedOutError("the time given by the caller is over") if last is None else last
        return SendTimeoutError(
            f"not finished within the {self._timeout} s given by the caller: {cause}",
            cause=cause,
            result=SendResult(),
            unsent=(),
        )


def _is_duration(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return not isnan(value) and value >= 0
