"""The one error tree: what a caller can catch, and what an error carries."""

from __future__ import annotations

import asyncio
import inspect

import pytest

from servicebus_pair.core import errors
from servicebus_pair.core.results import SendResult


def classes() -> list[type[Exception]]:
    found = [getattr(errors, name) for name in errors.__all__]
    return [each for each in found if inspect.isclass(each) and issubclass(each, Exception)]


@pytest.mark.parametrize("kind", classes(), ids=lambda kind: kind.__name__)
def test_everything_raised_on_purpose_has_one_root_and_says_what_it_is(kind: type[Exception]) -> None:
    assert issubclass(kind, errors.PairError)
    assert inspect.getdoc(kind)


@pytest.mark.parametrize("kind", classes(), ids=lambda kind: kind.__name__)
def test_every_error_is_drawn_in_the_tree(kind: type[Exception]) -> None:
    assert f" {kind.__name__}" in (errors.__doc__ or "").replace("PairError\n", " PairError\n", 1)


@pytest.mark.parametrize("kind", classes(), ids=lambda kind: kind.__name__)
def test_section_4_what_the_tree_says_of_an_error_is_what_its_class_says(kind: type[errors.PairError]) -> None:
    [line] = [line for line in (errors.__doc__ or "").splitlines() if f"-- {kind.__name__} " in f"{line} "] or [""]
    assert ("retriable" in line, "fails over" in line) == (kind.retriable, kind.fails_over)
    # What counts against an entity may pass; and what may be stored is never said to be refused.
    assert kind.retriable or not (kind.fails_over or kind.may_be_stored)


def test_no_public_error_is_left_out_of_the_list() -> None:
    public = {
        name
        for name, kind in vars(errors).items()
        if inspect.isclass(kind) and issubclass(kind, Exception) and kind.__module__ == errors.__name__
    }
    assert public | {"account_of"} == set(errors.__all__)


def test_the_account_of_a_send_is_found_behind_what_it_ended_in() -> None:
    account = errors.SendCancelledError("so far", cause=asyncio.CancelledError(), result=SendResult(), unsent=())
    cancelled, late = asyncio.CancelledError(), TimeoutError()
    cancelled.__cause__, late.__cause__ = account, cancelled
    assert [errors.account_of(error) for error in (account, cancelled, late)] == [account] * 3
    # As Python 3.11.2 raises it.
    unnamed = TimeoutError()
    unnamed.__context__ = cancelled
    assert errors.account_of(unnamed) is account
    other = ValueError()
    other.__context__ = account
    assert errors.account_of(other) is None


def test_bad_input_is_a_value_error_too() -> None:
    assert issubclass(errors.ConfigurationError, ValueError)
    assert issubclass(errors.InvalidMessageError, ValueError)


def test_section_4_a_failed_send_leaves_the_caller_with_its_messages_and_both_failures() -> None:
    cause = errors.UnreachableError("refused")
    unsent = ["a", "b"]
    error = errors.NoBacklogQueueError("both down", cause=cause, result=SendResult(primary=1), unsent=unsent)
    unsent.clear()
    assert isinstance(error, errors.SendError)
    assert error.cause is cause
    assert error.result.sent == 1
    assert error.unsent == ("a", "b")
    assert (error.retriable, error.fails_over) == (False, False)


def test_section_6_an_undeliverable_message_has_a_reason_and_a_description_for_its_dead_letter() -> None:
    error = errors.UndeliverableError("NoPath", "the message has no path")
    assert (error.reason, error.description) == ("NoPath", "the message has no path")
    assert str(error) == "NoPath: the message has no path"
