"""The error tree and what errors carry."""

from __future__ import annotations

import asyncio
import inspect
from copy import copy

import pytest

from servicebus_pair.core.model import errors
from servicebus_pair.core.model.results import SendResult


def classes() -> list[type[Exception]]:
    found = [getattr(errors, name) for name in errors.__all__]
    return [each for each in found if inspect.isclass(each) and issubclass(each, Exception)]


@pytest.mark.parametrize("kind", classes(), ids=lambda kind: kind.__name__)
def test_error_is_documented_in_the_tree(kind: type[errors.PairError]) -> None:
    assert issubclass(kind, errors.PairError)
    assert inspect.getdoc(kind)
    tree = (errors.__doc__ or "").replace("PairError\n", " PairError\n", 1)
    assert f" {kind.__name__}" in tree
    [line] = [line for line in tree.splitlines() if f"-- {kind.__name__} " in f"{line} "] or [""]
    assert ("retriable" in line, "triggers failover" in line) == (kind.retriable, kind.triggers_failover)
    assert kind.retriable or not (kind.triggers_failover or kind.may_be_stored)


def test_every_error_is_public() -> None:
    public = {
        name
        for name, kind in vars(errors).items()
        if inspect.isclass(kind) and issubclass(kind, Exception) and kind.__module__ == errors.__name__
    }
    assert public | {"find_send_error"} == set(errors.__all__)


def test_find_send_error_follows_the_cause() -> None:
    account = errors.SendCancelledError("so far", cause=asyncio.CancelledError(), result=SendResult(), unsent=())
    cancelled, late = asyncio.CancelledError(), TimeoutError()
    cancelled.__cause__, late.__cause__ = account, cancelled
    assert [errors.find_send_error(error) for error in (account, cancelled, late)] == [account] * 3
    # As Python 3.11.2 raises it.
    unnamed = TimeoutError()
    unnamed.__context__ = cancelled
    assert errors.find_send_error(unnamed) is account
    other = ValueError()
    other.__context__ = account
    assert errors.find_send_error(other) is None


def test_input_errors_are_value_errors() -> None:
    assert issubclass(errors.ConfigurationError, ValueError)
    assert issubclass(errors.InvalidMessageError, ValueError)


@pytest.mark.parametrize("kind", [errors.EntityNotFoundError, errors.ConfigurationError, errors.ObserverError])
def test_a_text_of_others_in_an_error_begins_no_line_and_turns_no_letters(kind: type[errors.PairError]) -> None:
    error = kind("entity a\nCRITICAL \x1b[31m \u202e\x85 of Zürich")
    assert str(error) == r"entity a\nCRITICAL \x1b[31m \u202e\x85 of Zürich"
    assert str(copy(error)) == str(error)


def test_send_error_carries_cause_result_and_unsent_messages() -> None:
    cause = errors.UnreachableError("refused")
    unsent = ["a", "b"]
    error = errors.NoBacklogQueueError("both down", cause=cause, result=SendResult(primary=1), unsent=unsent)
    unsent.clear()
    assert isinstance(error, errors.SendError)
    assert error.cause is cause
    assert error.result.sent == 1
    assert error.unsent == ("a", "b")
    assert (error.retriable, error.triggers_failover) == (False, False)


def test_undeliverable_error_carries_dead_letter_reason() -> None:
    error = errors.UndeliverableError("NoPath", "the message has no path")
    assert (error.reason, error.description) == ("NoPath", "the message has no path")
    assert str(error) == "NoPath: the message has no path"
