"""Retry policy of a drain: backoff after transient failures, no retry after permanent ones (SPEC section 6).

Time is a parameter. A missing right or queue is permanent: the first answer is reported. Where the same path had
worked before, permissions or queues are being changed at this moment, and the failure counts as transient.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf, isfinite
from types import MappingProxyType
from typing import Final

from servicebus_pair.core.model.errors import AuthorizationError, EntityNotFoundError, ServiceError

# Seconds.
MAX_BACKOFF: Final = 120.0
MAX_CONSECUTIVE_FAILURES: Final = 5


def backoff_delay(failures: int, *, initial_delay: float) -> float:
    """Return the seconds to wait after so many consecutive failures: ``initial_delay``, doubling, at most 120 s."""
    return float(min(initial_delay * 2 ** min(failures - 1, 30), MAX_BACKOFF))


@dataclass(slots=True)
class _Failure:
    error: str
    count: int
    failed_at: float
    retry_at: float
    retrying: bool = False


class DestinationBackoff:
    """Backoff per destination, by path without regard to case; shared by all links of a syphon.

    When a delay is over, one link tries the destination again while the others go on with other destinations.

    :param initial_delay: seconds after the first failure; each further consecutive failure doubles it.
    """

    def __init__(self, *, initial_delay: float) -> None:
        self._initial_delay = initial_delay
        self._failures: dict[str, _Failure] = {}

    def try_acquire(self, entity: str, *, now: float) -> bool:
        """Return whether the caller may send to ``entity`` now; after a delay, True for the first caller only.

        A caller that got True reports :meth:`record_success`, :meth:`record_failure` or :meth:`release`.
        """
        failure = self._failures.get(entity.casefold())
        if failure is None:
            return True
        if failure.retrying or now < failure.retry_at:
            return False
        failure.retrying = True
        return True

    def is_due(self, entity: str, *, now: float) -> bool:
        """Return whether :meth:`try_acquire` would return True."""
        failure = self._failures.get(entity.casefold())
        return failure is None or (not failure.retrying and now >= failure.retry_at)

    def record_failure(self, entity: str, error: str, *, now: float, started: float) -> float:
        """Record a transient failure; return the seconds until the next attempt.

        An attempt that was already under way when the entity failed belongs to the same failure.

        :param started: when the attempt started.
        """
        previous = self._failures.get(entity.casefold())
        if previous is not None and started <= previous.failed_at:
            return max(0.0, previous.retry_at - now)
        count = 1 if previous is None else previous.count + 1
        delay = backoff_delay(count, initial_delay=self._initial_delay)
        self._failures[entity.casefold()] = _Failure(error, count, now, now + delay)
        return delay

    def record_permanent_failure(self, entity: str, error: str, *, now: float) -> None:
        """Record a failure that no retry can fix: ``entity`` is abandoned at once."""
        self._failures[entity.casefold()] = _Failure(error, MAX_CONSECUTIVE_FAILURES, now, inf)

    def reset_permanent_failures(self) -> None:
        """Retry destinations that were abandoned for a permanent failure; permissions may have changed."""
        self._failures = {name: each for name, each in self._failures.items() if isfinite(each.retry_at)}

    def record_success(self, entity: str) -> None:
        """Record a success, which ends the backoff."""
        self._failures.pop(entity.casefold(), None)

    def release(self, entity: str, *, started: float) -> None:
        """Give back what :meth:`try_acquire` granted at ``started``, if nothing was sent."""
        failure = self._failures.get(entity.casefold())
        if failure is not None and started > failure.failed_at:
            failure.retrying = False

    def is_abandoned(self, entity: str) -> bool:
        """Return whether ``entity`` failed five times in a row or permanently; a drain does not wait for it."""
        failure = self._failures.get(entity.casefold())
        return failure is not None and failure.count >= MAX_CONSECUTIVE_FAILURES

    def retry_at(self, entity: str) -> float | None:
        """Return when the delay of ``entity`` ends; ``None`` if it is not failing."""
        failure = self._failures.get(entity.casefold())
        return None if failure is None else failure.retry_at

    def next_retry(self, *, now: float, waited_for: Iterable[str] = ()) -> float | None:
        """Return when the next delay ends; ``None`` when no destination is to be retried.

        A destination is not retried before there is a message for it, which may never be: a delay that is over counts
        for the destinations in ``waited_for`` only.
        """
        waited = {entity.casefold() for entity in waited_for}
        ends = (each.retry_at for name, each in self._failures.items() if each.retry_at > now or name in waited)
        return min(filter(isfinite, ends), default=None)

    def errors(self) -> dict[str, str]:
        """Return the last error of each failing destination."""
        return {entity: each.error for entity, each in self._failures.items()}


class PermanentFailures:
    """Permanent failures of paths that have never worked, by path without regard to case."""

    def __init__(self) -> None:
        self._succeeded: set[str] = set()
        self._errors: dict[str, ServiceError] = {}

    @property
    def errors(self) -> Mapping[str, ServiceError]:
        """The error of each path that has never worked."""
        return MappingProxyType(self._errors)

    @property
    def any_succeeded(self) -> bool:
        """True once any path worked."""
        return bool(self._succeeded)

    def record_success(self, path: str) -> None:
        """Record that ``path`` works."""
        self._succeeded.add(path.casefold())
        self._errors.pop(path.casefold(), None)

    def record(self, path: str, error: ServiceError) -> bool:
        """Record a permanent error; return False, and ignore it, if ``path`` worked before."""
        if path.casefold() in self._succeeded:
            return False
        self._errors[path.casefold()] = error
        return True


def explain_queue_error(error: ServiceError, queue: str) -> ServiceError:
    """Return an error of reading a backlog queue; a permanent one says how to fix it."""
    match error:
        case AuthorizationError():
            return AuthorizationError(_missing_right("Listen", queue, error))
        case EntityNotFoundError():
            return EntityNotFoundError(
                f"{error}: the backlog queue {queue} does not exist: create the backlog with provision, or name a "
                "queue that exists"
            )
    return error


def explain_destination_error(error: AuthorizationError, entity: str) -> AuthorizationError:
    """Return an error of sending to an entity that says how to fix it."""
    return AuthorizationError(_missing_right("Send", entity, error))


def _missing_right(right: str, path: str, error: ServiceError) -> str:
    return f"{error}: the right {right} on {path} is needed: give it to the credential of this namespace"
