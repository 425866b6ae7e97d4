"""Maps exceptions of the SDK to our errors, by class, and by message text only where nothing else is public.

The table restates how each fault was measured to reach a client of azure-servicebus 7.15:

=====================================================  ==========================
exception                                              error
=====================================================  ==========================
``ServiceBusConnectionError``, ``...Communication``,   ``UnreachableError``
``OSError``, ``azure.core`` request errors
``OperationTimeoutError``, ``TimeoutError``            ``TimedOutError``
``ServiceBusServerBusyError``                          ``ServerBusyError``
``ServiceBusAuthenticationError``, credential errors   ``AuthenticationError``, or
also within a ``ServiceBusError``                      ``AuthenticationSuspectError``
                                                       if the client had authenticated
``ServiceBusAuthorizationError``                       ``AuthorizationError``
``MessagingEntityNotFoundError``                       ``EntityNotFoundError``
``MessagingEntityDisabledError``                       ``EntityDisabledError``
``ServiceBusQuotaExceededError``                       ``QuotaExceededError``
``MessageSizeExceededError``                           ``MessageTooLargeError``
``MessageLockLostError``, ``SessionLockLostError``     ``LockLostError``
``SessionCannotBeLockedError``                         ``SessionLockedError``
``ValueError``, ``TypeError``                          ``InvalidMessageError``
``ServiceBusError`` with a condition of refusal        ``RefusedError``
``ServiceBusError`` of a rejected message or request   ``RejectedError``
any other                                              ``ServiceFaultError``
=====================================================  ==========================
"""

from __future__ import annotations

import re
from typing import Final

from azure.core import exceptions as azure
from azure.servicebus import exceptions as sdk

from servicebus_pair.core.model import errors
from servicebus_pair.core.model.logs import printable
from servicebus_pair.core.model.options import PairOptions
from servicebus_pair.core.sdk._private.capabilities import fast_path

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
    (sdk.SessionCannotBeLockedError, errors.SessionLockedError),
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
# Conditions that the SDK has no class for and does not retry: the request is wrong, not the service.
_REFUSED_CONDITIONS: Final = (
    "amqp:not-allowed",
    "amqp:not-implemented",
    "amqp:precondition-failed",
    "amqp:invalid-field",
    "amqp:decode-error",
    "com.microsoft:argument-error",
    "com.microsoft:argument-out-of-range",
)
# What a message is rejected with that the service cannot digest.
_REJECTED_CONDITION: Final = "amqp:internal-error"
# The SDK's class for the outcome of one message; it is not public, and only its name is compared.
_MESSAGE_EXCEPTION: Final = "MessageException"
_STATED_CONDITION: Final = re.compile(r"Error condition: ([\w.:-]+?)\.?(?: |$)")
_MAX_CHARACTERS: Final = 300
_MAX_SCRUBBED: Final = 10_000


def classify(failure: BaseException, *, where: str, authenticated: bool) -> errors.ServiceError:
    """Return the error that stands for ``failure``.

    :param where: the failed operation, such as ``send to flights on contoso``.
    :param authenticated: whether this client has authenticated before; then a refused credential is only a
        suspicion, since the SDK reports every failure of the token exchange alike.
    """
    hide_secrets(failure)
    failure = _unwrap_credential_error(failure)
    kind = next((ours for theirs, ours in _TABLE if isinstance(failure, theirs)), errors.ServiceFaultError)
    if kind is errors.UnreachableError and _is_refused_token(failure):
        kind = errors.AuthenticationError
    if kind is errors.AuthenticationError and authenticated:
        kind = errors.AuthenticationSuspectError
    if kind is errors.ServiceFaultError and _condition(failure) in _REFUSED_CONDITIONS:
        kind = errors.RefusedError
    if kind is errors.ServiceFaultError and _is_rejected_message(failure):
        kind = errors.RejectedError
    return kind(f"{where}: {type(failure).__name__}: {error_text(failure)}")


def error_text(failure: BaseException) -> str:
    """Return the message of an exception as one line of at most 300 characters, which are printed, without secrets."""
    return _line(str(failure))[:_MAX_CHARACTERS]


def _line(text: str) -> str:
    return printable(_bounded(" ".join(text.split())))


def _bounded(text: str) -> str:
    """Return the beginning of what a namespace says, which may have any length."""
    if len(text) <= _MAX_SCRUBBED:
        return text
    # A secret that is cut in two would not be known.
    return text[:_MAX_SCRUBBED].rpartition(" ")[0] or f"a word of {len(text)} characters"


def hide_secrets(failure: BaseException) -> None:
    """Make one line without secrets of the text of an exception of the SDK, and of those behind it.

    Tracebacks show them. A gateway or an authority that repeats a request in its answer repeats its token, or the
    client secret; and a line end in an answer would begin a line of a log.
    """
    waiting: list[BaseException | None] = [failure]
    seen: set[int] = set()
    while waiting:
        each = waiting.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        waiting += [each.__cause__, each.__context__, getattr(each, "inner_exception", None)]
        waiting += each.exceptions if isinstance(each, BaseExceptionGroup) else ()
        text = str(each)
        shown = _line(text)
        if shown != text:
            each.args = (shown,)
            if isinstance(each, azure.AzureError):
                each.message = shown
            if isinstance(each, OSError) and each.strerror:
                each.strerror = _line(each.strerror)
            if isinstance(each, azure.HttpResponseError):
                each.response = None  # its text is shown beside the message


def _is_refused_token(failure: BaseException) -> bool:
    """Detect a refused token, which the SDK reports as a lost connection when it connects to a custom endpoint."""
    inner = failure.inner_exception if isinstance(failure, sdk.ServiceBusConnectionError) else None
    return hasattr(inner, "status_code")


def _is_rejected_message(failure: BaseException) -> bool:
    """Detect a rejected message or request; a link or connection that ends with the same condition is another class.

    The SDK wraps the exception of an outcome, a link or a connection. It wraps none when a request was answered.
    """
    if not isinstance(failure, sdk.ServiceBusError) or _condition(failure) != _REJECTED_CONDITION:
        return False
    inner = failure.inner_exception
    return inner is None or any(kind.__name__ == _MESSAGE_EXCEPTION for kind in type(inner).__mro__)


def _unwrap_credential_error(failure: BaseException) -> BaseException:
    """Return the error of a credential, which the SDK wraps in the same "Handler failed" as its internal errors."""
    inner = failure.inner_exception if isinstance(failure, sdk.ServiceBusError) else None
    return inner if isinstance(inner, azure.AzureError) and not isinstance(inner, sdk.ServiceBusError) else failure


def _condition(failure: BaseException) -> str:
    """Return the AMQP error condition: a private attribute of the SDK's errors, and public in their text only."""
    if not fast_path():
        stated = _STATED_CONDITION.search(str(failure))
        return "" if stated is None else stated[1]
    condition = getattr(failure, "_condition", None)
    value = getattr(condition, "value", condition)
    return value.decode() if isinstance(value, bytes) else str(value)


def triggers_failover(error: errors.ServiceError, options: PairOptions) -> bool:
    """Return whether a failed send counts against the health of its entity (SPEC section 4)."""
    match error:
        case errors.QuotaExceededError():
            return options.on_quota_exceeded == "fail_over"
        case errors.EntityDisabledError():
            return options.on_entity_disabled == "fail_over"
    return error.triggers_failover
