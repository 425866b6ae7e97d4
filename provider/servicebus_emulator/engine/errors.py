# ruff: noqa: N818 - a refusal is named for what was refused; their common base ends in Error
"""What the broker refuses, and the symbol under which each refusal goes out on the wires.

The tree::

    BrokerError
    +-- EntityNotFound          amqp:not-found
    +-- EntityExists            com.microsoft:entity-already-exists
    +-- EntityDisabled          com.microsoft:entity-disabled
    +-- InvalidArgument         com.microsoft:argument-error
    +-- OperationNotAllowed     amqp:not-allowed
    +-- OperationNotSupported   amqp:not-implemented
    +-- MessageTooLarge         amqp:link:message-size-exceeded
    +-- QuotaExceeded           amqp:resource-limit-exceeded
    +-- MessageLockLost         com.microsoft:message-lock-lost
    +-- MessageNotFound         com.microsoft:message-not-found
    +-- SessionLockLost         com.microsoft:session-lock-lost
    +-- SessionCannotBeLocked   com.microsoft:session-cannot-be-locked
    +-- OperationTimedOut       com.microsoft:timeout
    +-- Unauthorized            amqp:unauthorized-access

The symbols are those of Microsoft's "AMQP 1.0 in Azure Service Bus: protocol guide" and of the
official clients, which choose their exception class by symbol alone.
"""

from __future__ import annotations

__all__ = [
    "BrokerError",
    "EntityDisabled",
    "EntityExists",
    "EntityNotFound",
    "InvalidArgument",
    "MessageLockLost",
    "MessageNotFound",
    "MessageTooLarge",
    "OperationNotAllowed",
    "OperationNotSupported",
    "OperationTimedOut",
    "QuotaExceeded",
    "SessionCannotBeLocked",
    "SessionLockLost",
    "Unauthorized",
]


class BrokerError(Exception):
    """An operation that the broker refused.

    :ivar condition: the AMQP error condition.
    :ivar status: the status code of an HTTP or request/response answer.
    """

    condition: str = "amqp:internal-error"
    status: int = 500


class EntityNotFound(BrokerError):
    """No entity has this path."""

    condition = "amqp:not-found"
    status = 404


class EntityExists(BrokerError):
    """The path is taken."""

    condition = "com.microsoft:entity-already-exists"
    status = 409


class EntityDisabled(BrokerError):
    """The entity's status forbids the direction."""

    condition = "com.microsoft:entity-disabled"
    status = 400


class InvalidArgument(BrokerError):
    """A value of the request is missing, malformed or out of range."""

    condition = "com.microsoft:argument-error"
    status = 400


class OperationNotAllowed(BrokerError):
    """The entity does not take part in this kind of operation."""

    condition = "amqp:not-allowed"
    status = 400


class OperationNotSupported(BrokerError):
    """The broker does not know the operation."""

    condition = "amqp:not-implemented"
    status = 501


class MessageTooLarge(BrokerError):
    """The message or batch exceeds the entity's limit."""

    condition = "amqp:link:message-size-exceeded"
    status = 403


class QuotaExceeded(BrokerError):
    """The entity is full."""

    condition = "amqp:resource-limit-exceeded"
    status = 403


class MessageLockLost(BrokerError):
    """The lock token is unknown, expired or already settled."""

    condition = "com.microsoft:message-lock-lost"
    status = 410


class MessageNotFound(BrokerError):
    """No message with this sequence number is in the required state."""

    condition = "com.microsoft:message-not-found"
    status = 404


class SessionLockLost(BrokerError):
    """The session is not, or no longer, locked by this receiver."""

    condition = "com.microsoft:session-lock-lost"
    status = 410


class SessionCannotBeLocked(BrokerError):
    """Another receiver holds the session."""

    condition = "com.microsoft:session-cannot-be-locked"
    status = 410


class OperationTimedOut(BrokerError):
    """The time the client gave ended before there was something to answer."""

    condition = "com.microsoft:timeout"
    status = 408


class Unauthorized(BrokerError):
    """The client has not shown that it may do this."""

    condition = "amqp:unauthorized-access"
    status = 401
