"""The exception hierarchy.

::

    PairError
    |-- ConfigurationError        an option, connection or argument is wrong
    |-- UndeliverableError        a backlog message that can never be delivered
    |-- PairClosedError           the pair was used after it was closed
    |   `-- PartnerFaultError     the client of the other namespace ended
    |-- DrillError                a drill could not start, or was abandoned
    |-- ProvisionError            no usable backlog queue exists
    |-- HealthStoreError          with ordering="session", shared health cannot be read or written
    |-- SpoolError                the spool cannot be written or read        retriable
    |   `-- SpoolFullError        it is full, or holds too old messages       retriable
    |-- ObserverError             an observer, such as the ledger, failed to record accepted messages
    |-- SendError                 a send ended without acceptance; carries the unsent messages
    |   |-- SendTimeoutError      the caller's timeout expired
    |   |-- SendCancelledError    the cause of a send's CancelledError
    |   `-- NoBacklogQueueError   the primary and every backlog queue failed
    `-- ServiceError              a failure of the service, classified from the SDK's exception
        |-- UnreachableError      no connection, connection or link lost        retriable, triggers failover
        |-- TimedOutError         no answer in time                             retriable, triggers failover
        |-- ServiceFaultError     internal, unknown or unclassified             retriable, triggers failover
        |-- AuthenticationSuspectError  failed where it had worked before       retriable, triggers failover
        |-- ServerBusyError       throttled                                     retriable
        |-- RejectedError         a verdict on a message, not on its entity     retriable
        |-- SessionLockedError    another receiver holds the session            retriable
        |-- AuthenticationError   the credential never worked
        |-- AuthorizationError    a right is missing
        |-- EntityNotFoundError
        |-- EntityExistsError
        |-- EntityDisabledError
        |-- QuotaExceededError
        |-- MessageTooLargeError
        |-- InvalidMessageError
        |-- RefusedError          not allowed on this entity, such as no session id where one is required
        `-- LockLostError         the lock expired before the settlement

Class attributes: ``retriable`` (the same call may succeed later), ``triggers_failover`` (counts as a failure of the
entity, SPEC section 4) and ``may_be_stored`` (the message of the failed send may be stored nevertheless).

A cancelled send raises ``CancelledError``; :func:`find_send_error` returns the ``SendCancelledError`` behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from servicebus_pair.core.model.logs import printable

if TYPE_CHECKING:
    from servicebus_pair.core.model.results import SendResult

__all__ = [
    "AuthenticationError",
    "AuthenticationSuspectError",
    "AuthorizationError",
    "ConfigurationError",
    "DrillError",
    "EntityDisabledError",
    "EntityExistsError",
    "EntityNotFoundError",
    "HealthStoreError",
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
    "RejectedError",
    "SendCancelledError",
    "SendError",
    "SendTimeoutError",
    "ServerBusyError",
    "ServiceError",
    "ServiceFaultError",
    "SessionLockedError",
    "SpoolError",
    "SpoolFullError",
    "TimedOutError",
    "UndeliverableError",
    "UnreachableError",
    "find_send_error",
]


class PairError(Exception):
    """Base class of the errors that this package raises; their texts have one line and hold no secret."""

    retriable: ClassVar[bool] = False
    triggers_failover: ClassVar[bool] = False
    may_be_stored: ClassVar[bool] = False

    def __init__(self, *args: object) -> None:
        super().__init__(*(printable(value) if isinstance(value, str) else value for value in args))


class ConfigurationError(PairError, ValueError):
    """A setting is wrong; the message names the field, its value and what is allowed."""


class PairClosedError(PairError):
    """The pair, or one of its senders, was used before it was opened or after it was closed."""


class PartnerFaultError(PairClosedError):
    """The client was faulted because the client of the other namespace ended (SPEC section 7)."""


class ProvisionError(PairError):
    """Provisioning was not authorized, or left no usable backlog queue."""


class DrillError(PairError):
    """A drill could not start or was abandoned; it does not leave the entity failed over."""


class UndeliverableError(PairError):
    """A message in a backlog queue that no retry can deliver (SPEC section 6).

    :param reason: short code, used as the dead-letter reason.
    :param description: one sentence, used as the dead-letter description.
    """

    def __init__(self, reason: str, description: str) -> None:
        super().__init__(f"{reason}: {description}")
        self.reason = reason
        self.description = description


class ServiceError(PairError):
    """A failure of the service or of the connection to it, classified from the SDK's exception."""


class UnreachableError(ServiceError):
    """No connection could be made, or a connection or link was lost."""

    retriable = True
    triggers_failover = True
    may_be_stored = True


class TimedOutError(ServiceError):
    """No answer arrived in time; the message may or may not have been stored."""

    retriable = True
    triggers_failover = True
    may_be_stored = True


class ServiceFaultError(ServiceError):
    """An internal, unknown or unclassified failure, including connection races in the SDK."""

    retriable = True
    triggers_failover = True
    may_be_stored = True


class AuthenticationSuspectError(ServiceError):
    """Authentication failed on a client that had authenticated before: a changed key or an outage of tokens."""

    retriable = True
    triggers_failover = True


class ServerBusyError(ServiceError):
    """The service is throttling; wait ``server_busy_delay`` and send again."""

    retriable = True


class RejectedError(ServiceError):
    """The service rejected the message with an internal error: it says so of a message that it cannot digest.

    The rejection is definite: nothing was stored. By itself it says nothing about the entity (SPEC section 4).
    """

    retriable = True


class SessionLockedError(ServiceError):
    """Another receiver holds the session, until it closes or its lock expires."""

    retriable = True


class AuthenticationError(ServiceError):
    """The credential was rejected and never worked on this client."""


class AuthorizationError(ServiceError):
    """The credential lacks the right (Send, Listen or Manage) for this operation."""


class EntityNotFoundError(ServiceError):
    """The queue, topic or subscription does not exist."""


class EntityExistsError(ServiceError):
    """The entity to create already exists, for example because of a concurrent run."""


class EntityDisabledError(ServiceError):
    """The entity is disabled for this operation."""


class QuotaExceededError(ServiceError):
    """The entity is full, or a limit of the namespace is reached."""


class MessageTooLargeError(ServiceError):
    """The message, or its backlog copy, does not fit the link's maximum size."""


class InvalidMessageError(ServiceError, ValueError):
    """The SDK rejected the message or an argument before sending."""


class RefusedError(ServiceError):
    """The operation is not allowed: the message or the arguments do not suit this entity."""


class LockLostError(ServiceError):
    """The lock expired before the message was settled; it will be delivered again."""


class HealthStoreError(PairError):
    """With ``ordering="session"``, the shared store could not be read or written, so nothing is sent."""


class SpoolError(PairError):
    """The spool cannot be written or read; what was being written may be in it."""

    retriable = True
    may_be_stored = True


class SpoolFullError(SpoolError):
    """The spool is full, or holds messages that are too old; nothing was written."""

    may_be_stored = False


class ObserverError(PairError):
    """An observer raised on accepted messages: they remain accepted, but its record of them is missing."""


class SendError(PairError):
    """A send ended before every message was accepted.

    No message is lost: accepted ones are in ``result`` (by route, with ids), the others in ``unsent``, in order.
    Messages not yet taken from the caller's iterator are still in it.

    :param cause: failure that ended the send.
    :param result: messages accepted before.
    :param unsent: messages that the caller still owns: its own objects.
    :param in_doubt: members of ``unsent`` that may be stored although no confirmation arrived. Sending them again
        with the same ids is safe with duplicate detection and may create duplicates without it.
    :ivar refused: members of ``unsent`` that the service rejected while it accepted others; sending them again
        unchanged is useless.
    :ivar verdicts: why, each reason once.
    :ivar sequence_numbers: of ``result.primary_ids``, when the messages were being scheduled.
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
        self.refused: tuple[Any, ...] = ()
        self.verdicts: tuple[str, ...] = ()
        self.sequence_numbers: tuple[int, ...] = ()


class SendTimeoutError(SendError, TimeoutError):
    """The caller's timeout expired before every message was accepted."""


class NoBacklogQueueError(SendError):
    """The entity is failed over and no backlog queue accepted the messages; the text names both failures."""


class SendCancelledError(SendError):
    """A send was cancelled; the ``__cause__`` of its ``CancelledError``. See :func:`find_send_error`."""


def find_send_error(error: BaseException) -> SendError | None:
    """Return the ``SendError`` behind ``error``, or ``None`` if no send caused it.

    A cancelled send must raise asyncio's own ``CancelledError`` (``asyncio.timeout`` recognises no other), so its
    ``SendError`` is found along the chain of causes, also of the ``TimeoutError`` that ``asyncio.timeout`` makes of it.
    """
    # Python 3.11.2 (Debian 12) sets only __context__, not __cause__, on the TimeoutError of asyncio.timeout.
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, SendError):
        context = cause.__context__ if isinstance(cause, TimeoutError) else None
        cause = context if cause.__cause__ is None else cause.__cause__
    return cause
