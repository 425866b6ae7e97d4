"""SPEC section 4, which failures count; each exception of the SDK stands for one error of ours."""

from __future__ import annotations

import inspect
import socket
from collections.abc import Callable
from typing import Any

import pytest
from azure.core import exceptions as azure
from azure.servicebus import exceptions as sdk

from servicebus_pair.core import errors
from servicebus_pair.core.failures import classify

WHERE = "send to flights on contoso"
CLASSES: dict[type[Exception], type[errors.ServiceError]] = {
    sdk.ServiceBusError: errors.ServiceFaultError,
    sdk.ServiceBusConnectionError: errors.UnreachableError,
    sdk.ServiceBusCommunicationError: errors.UnreachableError,
    sdk.ServiceBusAuthenticationError: errors.AuthenticationError,
    sdk.ServiceBusAuthorizationError: errors.AuthorizationError,
    sdk.OperationTimeoutError: errors.TimedOutError,
    sdk.MessageSizeExceededError: errors.MessageTooLargeError,
    sdk.MessageAlreadySettled: errors.InvalidMessageError,
    sdk.MessageLockLostError: errors.LockLostError,
    sdk.SessionLockLostError: errors.LockLostError,
    sdk.MessageNotFoundError: errors.ServiceFaultError,
    sdk.MessagingEntityNotFoundError: errors.EntityNotFoundError,
    sdk.MessagingEntityDisabledError: errors.EntityDisabledError,
    sdk.MessagingEntityAlreadyExistsError: errors.ServiceFaultError,
    sdk.ServiceBusQuotaExceededError: errors.QuotaExceededError,
    sdk.ServiceBusServerBusyError: errors.ServerBusyError,
    sdk.SessionCannotBeLockedError: errors.ServiceFaultError,
    sdk.AutoLockRenewFailed: errors.ServiceFaultError,
    sdk.AutoLockRenewTimeout: errors.ServiceFaultError,
}
OTHERS: list[tuple[BaseException, type[errors.ServiceError]]] = [
    (azure.ClientAuthenticationError("no token"), errors.AuthenticationError),
    (azure.ResourceNotFoundError("no queue"), errors.EntityNotFoundError),
    (azure.ServiceRequestError("refused"), errors.UnreachableError),
    (azure.ServiceResponseError("cut off"), errors.UnreachableError),
    (azure.HttpResponseError("500"), errors.ServiceFaultError),
    (TimeoutError("late"), errors.TimedOutError),
    (TimeoutError(), errors.TimedOutError),
    (ConnectionResetError("reset"), errors.UnreachableError),
    (socket.gaierror(-2, "no such host"), errors.UnreachableError),
    (ValueError("bad argument"), errors.InvalidMessageError),
    (TypeError("bad type"), errors.InvalidMessageError),
    # As the SDK hands on what a credential of azure-identity raised while a link was opened.
    (sdk.ServiceBusError("Handler failed", error=azure.ClientAuthenticationError("x")), errors.AuthenticationError),
    (sdk.ServiceBusError("Handler failed", error=azure.ServiceRequestError("x")), errors.UnreachableError),
    (sdk.ServiceBusError("Handler failed", error=ValueError("a race")), errors.ServiceFaultError),
    (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad byte"), errors.InvalidMessageError),
    (AttributeError("'NoneType' object has no attribute 'get_state'"), errors.ServiceFaultError),
    (RuntimeError("race"), errors.ServiceFaultError),
]
# SPEC section 4: may the same call succeed later, and does it count against the entity?
FLAGS: dict[type[errors.ServiceError], tuple[bool, bool]] = {
    errors.UnreachableError: (True, True),
    errors.TimedOutError: (True, True),
    errors.ServiceFaultError: (True, True),
    errors.AuthenticationSuspectError: (True, True),
    errors.ServerBusyError: (True, False),
    errors.AuthenticationError: (False, False),
    errors.AuthorizationError: (False, False),
    errors.EntityNotFoundError: (False, False),
    errors.EntityDisabledError: (False, False),
    errors.EntityExistsError: (False, False),
    errors.QuotaExceededError: (False, False),
    errors.MessageTooLargeError: (False, False),
    errors.InvalidMessageError: (False, False),
    errors.RefusedError: (False, False),
    errors.LockLostError: (False, False),
}


def made(kind: Callable[..., Exception]) -> Exception:
    """An exception as the SDK makes it: its classes differ in what they take."""
    if kind is sdk.MessageAlreadySettled:
        return kind()
    positional = "message" in inspect.signature(kind).parameters
    return kind("told so") if positional else kind(message="told so")


@pytest.mark.parametrize(("theirs", "ours"), CLASSES.items(), ids=lambda kind: kind.__name__)
def test_section_4_each_exception_of_the_sdk_has_its_class(
    theirs: type[Exception], ours: type[errors.ServiceError]
) -> None:
    assert type(classify(made(theirs), where=WHERE, authenticated=False)) is ours


def test_section_4_no_exception_of_the_sdk_is_forgotten() -> None:
    public = {
        kind
        for kind in vars(sdk).values()
        if inspect.isclass(kind) and issubclass(kind, Exception) and kind.__module__ == sdk.__name__
    }
    assert public - set(CLASSES) == set()


@pytest.mark.parametrize(("failure", "ours"), OTHERS, ids=lambda value: type(value).__name__)
def test_section_4_failures_from_around_the_sdk_have_their_class(
    failure: BaseException, ours: type[errors.ServiceError]
) -> None:
    assert type(classify(failure, where=WHERE, authenticated=False)) is ours


@pytest.mark.parametrize("failure", [made(sdk.ServiceBusAuthenticationError), azure.ClientAuthenticationError("x")])
def test_section_4_a_refused_credential_that_had_worked_before_counts(failure: Exception) -> None:
    assert type(classify(failure, where=WHERE, authenticated=True)) is errors.AuthenticationSuspectError
    assert type(classify(failure, where=WHERE, authenticated=False)) is errors.AuthenticationError


def test_section_4_a_missing_right_never_counts() -> None:
    failure = made(sdk.ServiceBusAuthorizationError)
    assert type(classify(failure, where=WHERE, authenticated=True)) is errors.AuthorizationError


@pytest.mark.parametrize(("ours", "flags"), FLAGS.items(), ids=lambda value: getattr(value, "__name__", None))
def test_section_4_what_may_succeed_later_and_what_counts(
    ours: type[errors.ServiceError], flags: tuple[bool, bool]
) -> None:
    assert (ours.retriable, ours.fails_over) == flags


def test_section_4_every_class_of_service_error_is_judged() -> None:
    def below(kind: type[Any]) -> set[type[Any]]:
        return {found for child in kind.__subclasses__() for found in {child, *below(child)}}

    assert {kind for kind in below(errors.ServiceError) if kind.__module__ == errors.__name__} == set(FLAGS)


def test_the_error_says_what_was_done_and_what_was_raised_on_one_bounded_line() -> None:
    error = classify(made(sdk.ServiceBusConnectionError), where=WHERE, authenticated=False)
    assert str(error).startswith("send to flights on contoso: ServiceBusConnectionError: told so")
    long = str(classify(RuntimeError("a\nb " * 1000), where=WHERE, authenticated=False))
    assert "\n" not in long
    assert len(long) < 400


@pytest.mark.parametrize("condition", [b"amqp:not-allowed", "com.microsoft:argument-error", "amqp:precondition-failed"])
def test_section_4_what_the_service_refuses_as_it_was_asked_for_is_no_outage(condition: Any) -> None:
    failure = sdk.ServiceBusError("the session id is missing", condition=condition)
    error = classify(failure, where=WHERE, authenticated=True)
    assert type(error) is errors.RefusedError
    unknown = sdk.ServiceBusError("", condition="amqp:internal-error")
    assert type(classify(unknown, where=WHERE, authenticated=True)) is errors.ServiceFaultError
