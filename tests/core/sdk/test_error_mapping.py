"""Exceptions of the SDK map to our errors (SPEC section 4)."""

from __future__ import annotations

import inspect
import socket
import ssl
from collections.abc import Callable
from typing import Any

import pytest
from azure.core import exceptions as azure
from azure.servicebus import exceptions as sdk

from servicebus_emulator import Fault, FaultKind
from servicebus_pair.core.model import errors
from servicebus_pair.core.model.options import PairOptions
from servicebus_pair.core.sdk.error_mapping import classify, triggers_failover
from servicebus_pair.core.sdk.message_batch import EncodedBatch
from servicebus_pair.core.sdk.messages import to_amqp_message
from tests.core.support.local_pair import numbered, open_quick_pair

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
    sdk.SessionCannotBeLockedError: errors.SessionLockedError,
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
    # The SDK's wrapper of what a credential of azure-identity raised while a link was opened.
    (sdk.ServiceBusError("Handler failed", error=azure.ClientAuthenticationError("x")), errors.AuthenticationError),
    (sdk.ServiceBusError("Handler failed", error=azure.ServiceRequestError("x")), errors.UnreachableError),
    (sdk.ServiceBusError("Handler failed", error=ValueError("a race")), errors.ServiceFaultError),
    (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad byte"), errors.InvalidMessageError),
    (AttributeError("'NoneType' object has no attribute 'get_state'"), errors.ServiceFaultError),
    (RuntimeError("race"), errors.ServiceFaultError),
]


def new_exception(kind: Callable[..., Exception]) -> Exception:
    """Construct an exception of the SDK, whose classes differ in their parameters."""
    if kind is sdk.MessageAlreadySettled:
        return kind()
    positional = "message" in inspect.signature(kind).parameters
    return kind("the text") if positional else kind(message="the text")


def test_section_4_every_sdk_exception_is_mapped() -> None:
    public = {
        kind
        for kind in vars(sdk).values()
        if inspect.isclass(kind) and issubclass(kind, Exception) and kind.__module__ == sdk.__name__
    }
    assert public - set(CLASSES) == set()


@pytest.mark.parametrize(
    ("failure", "ours"),
    [*((new_exception(theirs), ours) for theirs, ours in CLASSES.items()), *OTHERS],
    ids=lambda value: type(value).__name__,
)
def test_section_4_each_exception_maps_to_its_error(failure: BaseException, ours: type[errors.ServiceError]) -> None:
    assert type(classify(failure, where=WHERE, authenticated=False)) is ours


@pytest.mark.parametrize(
    "failure", [new_exception(sdk.ServiceBusAuthenticationError), azure.ClientAuthenticationError("x")]
)
def test_section_4_a_refused_credential_that_worked_before_triggers_failover(failure: Exception) -> None:
    assert type(classify(failure, where=WHERE, authenticated=True)) is errors.AuthenticationSuspectError
    assert type(classify(failure, where=WHERE, authenticated=False)) is errors.AuthenticationError


def test_section_4_a_missing_right_never_triggers_failover() -> None:
    failure = new_exception(sdk.ServiceBusAuthorizationError)
    assert type(classify(failure, where=WHERE, authenticated=True)) is errors.AuthorizationError


def test_the_error_names_operation_and_exception_on_one_bounded_line() -> None:
    error = classify(new_exception(sdk.ServiceBusConnectionError), where=WHERE, authenticated=False)
    assert str(error).startswith("send to flights on contoso: ServiceBusConnectionError: the text")
    long = classify(RuntimeError("a\nb " * 1000), where=WHERE, authenticated=False)
    assert str(long) == f"{WHERE}: RuntimeError: {'a b ' * 75}"
    longest = classify(RuntimeError("a" * 10_000), where=WHERE, authenticated=False)
    assert str(longest) == f"{WHERE}: RuntimeError: {'a' * 300}"
    endless = classify(RuntimeError("a" * 10_001), where=WHERE, authenticated=False)
    assert str(endless) == f"{WHERE}: RuntimeError: a word of 10001 characters"
    # Cut before it is searched for secrets, and not within one: the first part of a token has no shape.
    secrets = classify(RuntimeError(f"eyJ{'a' * 700}.{'b' * 800}.c4n4ry " * 20), where=WHERE, authenticated=False)
    assert str(secrets) == f"{WHERE}: RuntimeError: {' '.join(['***'] * 6)}"


TOKEN, HIDDEN = (f"SharedAccessSignature sr=x&sig={each}&se=1&skn=n" for each in ("c4n4ry" * 8, "***"))


def test_each_exception_behind_one_is_a_line_without_secrets_and_other_texts_stay() -> None:
    answer, plain = azure.HttpResponseError(f"said {TOKEN}"), azure.HttpResponseError("no")
    response: Any = object()
    answer.response = plain.response = response
    failure = sdk.ServiceBusError(f"Handler failed: {TOKEN}", error=answer)
    failure.__context__, failure.__cause__ = plain, OSError(f"closed: {TOKEN}")
    answer.__context__ = failure
    endless = failure.__cause__.__context__ = RuntimeError("Z" * 10_001)
    forged = ssl.SSLError(1, "closed\n2026 CRITICAL \x1b[31mforged\u202e")
    answer.__cause__ = ExceptionGroup("both", [azure.DecodeError("syntax: line 1\nforged\x07"), forged])
    classify(failure, where=WHERE, authenticated=False)
    assert str(failure.__cause__) == f"closed: {HIDDEN}"
    assert (str(answer), answer.message, answer.response) == (*[f"said {HIDDEN}"] * 2, None)
    assert failure.message == str(failure) == f"Handler failed: {HIDDEN}"
    assert (str(plain), plain.message, plain.response) == ("no", "no", response)
    assert str(endless) == "a word of 10001 characters"
    assert str(answer.__cause__.exceptions[0]) == r"syntax: line 1 forged\x07"
    assert forged.strerror == r"closed 2026 CRITICAL \x1b[31mforged\u202e"
    assert str(forged).isprintable()
    assert not hasattr(endless, "message")


@pytest.mark.fast_sdk
def test_the_condition_of_an_error_is_known_however_long_its_text_is() -> None:
    failure = sdk.ServiceBusError("a b " * 5_000, condition="amqp:not-allowed")
    assert type(classify(failure, where=WHERE, authenticated=True)) is errors.RefusedError


@pytest.mark.usefixtures("sdk_path")
@pytest.mark.parametrize("condition", [b"amqp:not-allowed", "com.microsoft:argument-error", "amqp:precondition-failed"])
def test_section_4_a_refused_request_is_not_an_outage(condition: Any) -> None:
    failure = sdk.ServiceBusError("the session id is missing", condition=condition)
    error = classify(failure, where=WHERE, authenticated=True)
    assert type(error) is errors.RefusedError
    unknown = sdk.ServiceBusError("", condition="amqp:unheard-of")
    assert type(classify(unknown, where=WHERE, authenticated=True)) is errors.ServiceFaultError


@pytest.mark.parametrize("kind", [errors.QuotaExceededError, errors.EntityDisabledError])
def test_section_4_options_decide_whether_a_full_or_disabled_entity_fails_over(kind: type[errors.ServiceError]) -> None:
    assert not triggers_failover(kind("x"), PairOptions(on_quota_exceeded="raise", on_entity_disabled="raise"))
    assert triggers_failover(kind("x"), PairOptions(on_quota_exceeded="fail_over", on_entity_disabled="fail_over"))
    other = PairOptions(on_quota_exceeded="fail_over") if kind is errors.EntityDisabledError else None
    assert not triggers_failover(kind("x"), other or PairOptions(on_entity_disabled="fail_over"))


class MessageException(Exception):  # noqa: N818 - the name of the SDK's class for the outcome of a message
    pass


class MessageSendFailed(MessageException):
    pass


@pytest.mark.usefixtures("sdk_path")
@pytest.mark.parametrize(
    ("inner", "condition", "ours"),
    [
        (MessageException(), b"amqp:internal-error", errors.RejectedError),
        (MessageSendFailed(), "amqp:internal-error", errors.RejectedError),
        (MessageException(), "amqp:client-error", errors.ServiceFaultError),
        (RuntimeError(), "amqp:internal-error", errors.ServiceFaultError),
        (None, "amqp:internal-error", errors.RejectedError),
    ],
)
def test_section_4_a_rejection_is_a_verdict_on_the_message(
    inner: Exception | None, condition: Any, ours: type[errors.ServiceError]
) -> None:
    failure = sdk.ServiceBusError("cannot be processed", error=inner, condition=condition)
    assert type(classify(failure, where=WHERE, authenticated=True)) is ours


async def test_section_4_a_rejected_message_and_a_closed_link_are_told_apart() -> None:
    async with open_quick_pair() as local_pair:
        link = local_pair.pair._open().primary.send_link("flights")
        batch = EncodedBatch(await link.open(timeout=5))
        assert batch.try_add(to_amqp_message(numbered(1)[0]))
        local_pair.primary.set_fault(Fault(kind=FaultKind.INTERNAL_ERROR, count=1))
        with pytest.raises(errors.RejectedError):
            await link.send(batch, timeout=5)
        local_pair.primary.set_fault(Fault(kind=FaultKind.CLOSE_LINK, condition="amqp:internal-error", count=1))
        with pytest.raises(errors.ServiceError) as caught:
            await link.send(batch, timeout=5)
        assert caught.value.triggers_failover
