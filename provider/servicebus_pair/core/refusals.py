"""What the service refuses a syphon for good: a right that is missing, a queue that is not there (SPEC section 6).

No waiting mends either, so the first answer is the error. Where the same queue or entity had worked
before, somebody is changing rights or queues at this moment: that is trouble like any other, and is waited for.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from servicebus_pair.core.errors import AuthorizationError, EntityNotFoundError, ServiceError

__all__ = ["Refusals", "explain_destination", "explain_queue"]


class Refusals:
    """Which places of one namespace refused from the start, by path without regard to case."""

    def __init__(self) -> None:
        self._worked: set[str] = set()
        self._errors: dict[str, ServiceError] = {}

    @property
    def errors(self) -> Mapping[str, ServiceError]:
        """The refusal of each place that never worked."""
        return MappingProxyType(self._errors)

    @property
    def anything_worked(self) -> bool:
        """True once one place answered as it should."""
        return bool(self._worked)

    def works(self, path: str) -> None:
        """Note that ``path`` did what was asked of it."""
        self._worked.add(path.casefold())
        self._errors.pop(path.casefold(), None)

    def note(self, path: str, error: ServiceError) -> bool:
        """Note a refusal; answer whether it is one from the start."""
        if path.casefold() in self._worked:
            return False
        self._errors[path.casefold()] = error
        return True


def explain_queue(error: ServiceError, queue: str) -> ServiceError:
    """Answer ``error`` of reading a backlog queue, with what to do about it if it is a refusal for good."""
    match error:
        case AuthorizationError():
            return AuthorizationError(_needs("Listen", queue, error))
        case EntityNotFoundError():
            return EntityNotFoundError(
                f"{error}: the backlog queue {queue} does not exist: create the backlog with provision, or name a "
                "queue that exists"
            )
    return error


def explain_destination(error: AuthorizationError, entity: str) -> AuthorizationError:
    """Answer ``error`` of sending to an entity, with what to do about it."""
    return AuthorizationError(_needs("Send", entity, error))


def _needs(right: str, path: str, error: ServiceError) -> str:
    return f"{error}: the right {right} on {path} is needed: give it to the credential of this namespace"
