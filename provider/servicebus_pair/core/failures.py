"""SDK exception -> our error, by class and never by message text.

The table restates what each fault was measured to look like to a client of azure-servicebus 7.15:

=====================================================  ==========================
exception                                              error
=====================================================  ==========================
``ServiceBusConnectionError``, ``...Communication``,   ``UnreachableError``
``OSError``, ``azure.core`` request errors
``OperationTimeoutError``, ``TimeoutError``            ``TimedOutError``
``ServiceBusServerBusyError``                          ``ServerBusyError``
``ServiceBusAuthenticationError``, credential errors   ``AuthenticationError``, or
also within a ``ServiceBusError``                      ``AuthenticationSuspectError``
                                                       once the client had worked
``ServiceBusAuthorizationError``                       ``AuthorizationError``
``MessagingEntityNotFoundError``                       ``EntityNotFoundError``
``MessagingEntityDisabledError``                       ``EntityDisabledError``
``ServiceBusQuotaExceededError``                       ``QuotaExceededError``
``MessageSizeExceededError``                           ``MessageTooLargeError``
``MessageLockLostError``, ``SessionLockLostError``     ``LockLostError``
``ValueError``, ``TypeError``                          ``InvalidMessageError``
``ServiceBusError`` with a condition of refusal        ``RefusedError``
any other                                              ``ServiceFaultError``
=====================================================  ==========================
"""

from __future__ import annotations

from typing import Final

from azure.core import exceptions as azure
from azure.servicebus import exceptions as sdk

from servicebus_pair.core import errors
from servicebus_pair.core.options import PairOptions

__all__ = ["classify", "counts", "shown"]

# The first match wins: subclasses stand before their bases.
_TABLE: Final[tuple[tuple[type[BaseException], type[errors.ServiceError]], ...]] = (
    (sdk.MessageSizeExceededError, errors.MessageTooLargeError),
    (sdk.ServiceBusQuotaExceededError, errors.QuotaExceededError),
    (sdk.ServiceBusServerBusyError, errors.ServerBusyError),
    (sdk.MessagingEntityDisabledError, errors.EntityDisabledError),
    (sdk.MessagingEntityNotFoundError, errors.EntityNotFoundError),
    (sdk.ServiceBusAuthorizationError, errors.AuthorizationError),
    (sdk.ServiceBusAuthenticationError, errors.AuthenticationError),
    (sdk.OperationTimeoutError, errors.TimedOutError),
    (sdk.ServiceBusConnectionError, errors.UnreachableError),
    (sdk.ServiceBusCommunicationError, errors.UnreachableError),
    (sdk.MessageLockLostError, errors.LockLostError),
    (sdk.SessionLockLostError, errors.LockLostError),
    (sdk.ServiceBusError, errors.ServiceFaultError),
    (azure.ClientAuthenticationError, errors.AuthenticationError),
    (azure.ResourceNotFoundError, errors.EntityNotFoundError),
    (azure.ServiceRequestError, errors.UnreachableError),
    (azure.ServiceResponseError, errors.UnreachableError),
    (TimeoutError, errors.TimedOutError),
    (OSError, errors.UnreachableError),
    (ValueError, errors.InvalidMessageError),
    (TypeError, errors.InvalidMessageError),
)
# What the SDK has no class for and does not try again: the request is wrong, not the service.
_REFUSALS: Final = (
    "amqp:not-allowed",
    "amqp:not-implemented",
    "amqp:precondition-failed",
    "amqp:invalid-field",
    "amqp:decode-error",
    "com.microsoft:argument-error",
    "com.microsoft:argument-out-of-range",
)
_SHOWN_CHARACTERS: Final = 300


def classify(failure: BaseException, *, where: str, authenticated: bool) -> errors.ServiceError:
    """Answer the error that stands for ``failure``.

    :param where: what was being done, such as ``send to flights on contoso``.
    :param authenticated: whether this client had authenticated before; then a refused credential is
        a suspicion, since the SDK reports every failure of the token exchange alike.
    """
    failure = _of_credential(failure)
    kind = next((ours for theirs, ours in _TABLE if isinstance(failure, theirs)), errors.ServiceFaultError)
    if kind is errors.UnreachableError and _refused_token(failure):
        kind = errors.AuthenticationError
    if kind is errors.AuthenticationError and authenticated:
        kind = errors.AuthenticationSuspectError
    if kind is errors.ServiceFaultError and _condition(failure) in _REFUSALS:
        kind = errors.RefusedError
    return kind(f"{where}: {type(failure).__name__}: {shown(failure)}")


def shown(failure: BaseException) -> str:
    """Answer what an exception says, in one line of 300 characters at most."""
    return " ".join(str(failure).split())[:_SHOWN_CHARACTERS]


def _refused_token(failure: BaseException) -> bool:
    """A refused token, which the SDK calls a lost connection where connections are made to a custom endpoint."""
    inner = failure.inner_exception if isinstance(failure, sdk.ServiceBusConnectionError) else None
    return hasattr(inner, "status_code")


def _of_credential(failure: BaseException) -> BaseException:
    """The failure of a credential, which the SDK wraps as it wraps its own accidents: "Handler failed"."""
    inner = failure.inner_exception if isinstance(failure, sdk.ServiceBusError) else None
    return inner if isinstance(inner, azure.AzureError) and not isinstance(inner, sdk.ServiceBusError) else failure


def _condition(failure: BaseException) -> str:
    """The AMQP condition of an exception of the SDK, which keeps it to itself."""
    condition = getattr(failure, "_condition", None)
    value = getattr(condition, "value", condition)
    return value.decode() if isinstance(value, bytes) else str(value)


def counts(error: errors.ServiceError, options: PairOptions) -> bool:
    """Answer whether a failed send counts against the health of its entity (SPEC section 4)."""
    match error:
        case errors.QuotaExceededError():
            return options.on_quota_exceeded == "fail_over"
        case errors.EntityDisabledError():
            return options.on_entity_disabled == "fail_over"
    return error.fails_over
