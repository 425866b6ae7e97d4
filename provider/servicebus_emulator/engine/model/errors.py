# ruff: noqa: N818 - named after the Service Bus error conditions; only the base class ends in Error
"""The errors of the broker, with their AMQP error conditions and HTTP status codes.

The conditions are those of Microsoft's "AMQP 1.0 in Azure Service Bus: protocol guide" and of the
official clients, which choose their exception class by condition alone.
"""

from __future__ import annotations


class BrokerError(Exception):
    """An operation failed.

    :ivar condition: the AMQP error condition.
    :ivar status: the status code of an HTTP or AMQP request/response reply.
    """

    condition: str = "amqp:internal-error"
    status: int = 500


class EntityNotFound(BrokerError):
    """No entity has this path."""

    condition = "amqp:not-found"
    status = 404


class EntityExists(BrokerError):
    """An entity with this path already exists."""

    condition = "com.microsoft:entity-already-exists"
    status = 409


class EntityDisabled(BrokerError):
    """The status of the entity forbids sending or receiving."""

    condition = "com.microsoft:entity-disabled"
    status = 400


class InvalidArgument(BrokerError):
    """A value of the request is missing, malformed or out of range."""

    condition = "com.microsoft:argument-error"
    status = 400


class OperationNotAllowed(BrokerError):
    """The entity does not support this operation in its configuration."""

    condition = "amqp:not-allowed"
    status = 400


class OperationNotSupported(BrokerError):
    """The broker does not implement the operation."""

    condition = "amqp:not-implemented"
    status = 501


class MessageTooLarge(BrokerError):
    """The message or batch exceeds the entity's limit."""

    condition = "amqp:link:message-size-exceeded"
    status = 403


class QuotaExceeded(BrokerError):
    """The entity has reached its maximum size."""

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
    """The receiver does not hold the lock of the session, or no longer does."""

    condition = "com.microsoft:session-lock-lost"
    status = 410


class SessionCannotBeLocked(BrokerError):
    """Another receiver has locked the session."""

    condition = "com.microsoft:session-cannot-be-locked"
    status = 410


class OperationTimedOut(BrokerError):
    """The client's timeout elapsed before there was a result."""

    condition = "com.microsoft:timeout"
    status = 408


class TransactionUnknown(BrokerError):
    """The transaction was never declared, is discharged, or has taken too long."""

    condition = "amqp:transaction:unknown-id"
    status = 400


class TransactionRolledBack(BrokerError):
    """The transaction could not be committed."""

    condition = "amqp:transaction:rollback"
    status = 400


class ServerBusy(BrokerError):
    """The namespace is throttled."""

    condition = "com.microsoft:server-busy"
    status = 503


class Unauthorized(BrokerError):
    """The client is not authorized for the operation."""

    condition = "amqp:unauthorized-access"
    status = 401


class UnprocessableMessage(BrokerError):
    """The broker cannot digest a message; the service reports this as an error of its own."""

    condition = "amqp:internal-error"
    status = 500
