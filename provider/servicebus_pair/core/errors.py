"""The one error tree.

::

    PairError
    |-- ConfigurationError        an option, connection or argument is wrong
    |-- UndeliverableError        a backlog message that can never be delivered
    |-- PairClosedError           the pair was used after it was closed
    |   `-- PartnerFaultError     one client ended, so the other one was faulted
    |-- DrillError                a drill could not be run, or was given up
    |-- ProvisionError            no usable backlog queue exists
    |-- ObserverError             an observer, such as the ledger, could not take note of accepted messages
    |-- SendError                 a send ended without acceptance; carries the unsent messages
    |   |-- SendTimeoutError      the time given by the caller was over
    |   |-- SendCancelledError    behind the CancelledError of a send
    |   `-- NoBacklogQueueError   primary and every backlog queue refused
    `-- ServiceError              one failure of the service, classified (see ``failures``)
        |-- UnreachableError      no connection, connection or link lost        retriable, fails over
        |-- TimedOutError         no answer in time                             retriable, fails over
        |-- ServiceFaultError     internal, unknown or unclassified             retriable, fails over
        |-- AuthenticationSuspectError  refused where it had worked before      retriable, fails over
        |-- ServerBusyError       throttled                                     retriable
        |-- AuthenticationError   refused from the start
        |-- AuthorizationError    a right is missing
        |-- EntityNotFoundError
        |-- EntityExistsError
        |-- EntityDisabledError
        |-- QuotaExceededError
        |-- MessageTooLargeError
        |-- InvalidMessageError
        |-- RefusedError          not allowed as it was asked for, such as no session id where one is needed
        `-- LockLostError         the lock ended before the settlement

Class attributes answer the only questions a caller asks: ``retriable`` (may the same call succeed
later?), ``fails_over`` (does it count against the health of the entity, SPEC section 4?) and, of a
send, ``may_be_stored`` (may the message be stored all the same?).

A send that is cancelled ends in ``CancelledError``; :func:`account_of` finds its ``SendCancelledError``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from servicebus_pair.core.results import SendResult

__all__ = [
    "AuthenticationError",
    "AuthenticationSuspectError",
    "AuthorizationError",
    "ConfigurationError",
    "DrillError",
    "EntityDisabledError",
    "EntityExistsError",
    "EntityNotFoundError",
    "InvalidMessageError",
    "LockLostError",
    "MessageTooLargeError",
    "NoBacklogQueueError",
    "ObserverError",
    "PairClosedError",
    "PairError",
    "PartnerFaultError",
    "ProvisionError",
    "QuotaExceededError",
    "RefusedError",
    "SendCancelledError",
    "SendError",
    "SendTimeoutError",
    "ServerBusyError",
    "ServiceError",
    "ServiceFaultError",
    "TimedOutError",
    "UndeliverableError",
    "UnreachableError",
    "account_of",
]


class PairError(Exception):
    """Root of everything this package raises on purpose."""

    retriable: ClassVar[bool] = False
    fails_over: ClassVar[bool] = False
    may_be_stored: ClassVar[bool] = False


class ConfigurationError(PairError, ValueError):
    """A setting is wrong: the message names the field, the value and what is allowed."""


class PairClosedError(PairError):
    """The pair, or a sender of it, was used before it was opened or after it was closed."""


class PartnerFaultError(PairClosedError):
    """The client was faulted because its partner, the other namespace's, ended (SPEC section 7)."""


class ProvisionError(PairError):
    """Provisioning ended without one usable backlog queue, or was not authorized."""


class DrillError(PairError):
    """A drill could not begin, or was given up; the entity is not left failed over by it."""


class UndeliverableError(PairError):
    """A message in a backlog queue that no retry can deliver (SPEC section 6).

    :param reason: short code, used as the dead-letter reason.
    :param description: one sentence for people, used as the dead-letter description.
    """

    def __init__(self, reason: str, description: str) -> None:
        super().__init__(f"{reason}: {description}")
        self.reason = reason
        self.description = description


class ServiceError(PairError):
    """One failure of the service or the way to it, classified from the SDK's exception."""


class UnreachableError(ServiceError):
    """No connection, or a connection or link that was lost."""

    retriable = True
    fails_over = True
    may_be_stored = True


class TimedOutError(ServiceError):
    """No answer within the time allowed; the message may or may not have been stored."""

    retriable = True
    fails_over = True
    may_be_stored = True


class ServiceFaultError(ServiceError):
    """An internal, unknown or unclassified failure, connection races of the SDK included."""

    retriable = True
    fails_over = True
    may_be_stored = True


class AuthenticationSuspectError(ServiceError):
    """Authentication failed on a client that had authenticated before: wrong key or outage."""

    retriable = True
    fails_over = True


class ServerBusyError(ServiceError):
    """The service throttles; wait ``server_busy_delay`` and send again."""

    retriable = True


class AuthenticationError(ServiceError):
    """The credential was refused and never worked on this client."""


class AuthorizationError(ServiceError):
    """The credential lacks the right (Send, Listen or Manage) for this operation."""


class EntityNotFoundError(ServiceError):
    """The queue, topic or subscription does not exist."""


class EntityExistsError(ServiceError):
    """What was to be created exists: a concurrent run made it."""


class EntityDisabledError(ServiceError):
    """The entity is disabled for this operation."""


class QuotaExceededError(ServiceError):
    """The entity is full, or a limit of the namespace was reached."""


class MessageTooLargeError(ServiceError):
    """The message, or its backlog copy, does not fit the link's maximum size."""


class InvalidMessageError(ServiceError, ValueError):
    """The SDK refused the message or an argument before sending."""


class RefusedError(ServiceError):
    """The service does not allow what was asked for: the message or the arguments are wrong for this entity."""


class LockLostError(ServiceError):
    """The message's lock ended before it was settled: it will be delivered again."""


class ObserverError(PairError):
    """An observer raised when it was told of accepted messages: they are accepted, its note of them is missing."""


class SendError(PairError):
    """A send that did not end in acceptance of every message.

    Nothing is lost: what was accepted is in ``result`` (by route, with the ids), what was not is in
    ``unsent``, in order. Messages that were not yet taken from an iterator of the caller are there.

    :param cause: the failure that ended the send.
    :param result: what was accepted before.
    :param unsent: the messages that the caller still owns.
    :param in_doubt: those of ``unsent`` that may be stored although nobody confirmed it: to send them
        again with their ids is safe with duplicate detection, and may make duplicates without.

    ``sequence_numbers`` are those of ``result.primary_ids``, if the messages were to be scheduled.
    """

    def __init__(
        self,
        message: str,
        *,
        cause: BaseException,
        result: SendResult,
        unsent: Sequence[Any],
        in_doubt: Sequence[Any] = (),
    ) -> None:
        super().__init__(message)
        self.cause = cause
        self.result = result
        self.unsent = tuple(unsent)
        self.in_doubt = tuple(in_doubt)
        self.sequence_numbers: tuple[int, ...] = ()


class SendTimeoutError(SendError, TimeoutError):
    """The time given by the caller was over before every message was accepted."""


class NoBacklogQueueError(SendError):
    """The entity is failed over and no backlog queue took the messages; both failures are named."""


class SendCancelledError(SendError):
    """A send was cancelled. It is the ``__cause__`` of the ``CancelledError``: see :func:`account_of`."""


def account_of(error: BaseException) -> SendError | None:
    """Answer the account of a send that ended with ``error``, or ``None`` if no send is behind it.

    A cancelled send must end in asyncio's own ``CancelledError`` (``asyncio.timeout`` knows no other),
    so its account is found along the causes: of that, or of the ``TimeoutError`` that came of it. Python 3.11.2,
    Debian 12's, names no cause of a ``TimeoutError``, but the error in whose handling it was raised.
    """
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, SendError):
        unnamed = cause.__context__ if isinstance(cause, TimeoutError) else None
        cause = unnamed if cause.__cause__ is None else cause.__cause__
    return cause
