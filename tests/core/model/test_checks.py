"""Checks of option values, which may be text: what they accept, and errors with name, value and what is allowed."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from servicebus_pair.core.model.checks import boolean, choice, duration, integer, message_rate, non_empty_text
from servicebus_pair.core.model.errors import ConfigurationError

SECOND = timedelta(seconds=1)
Check = Callable[[str, Any], Any]


NO_DURATIONS: list[Any] = [0.9, 61, True, "nan", "inf", 1e300, [], "soon"]


@pytest.mark.parametrize(
    ("check", "value", "expected"),
    [
        (boolean, False, False),
        (boolean, " True ", True),
        (choice("a", "b"), "b", "b"),
        (integer(1), 10**6, 10**6),
        (integer(1, 3), "1", 1),
        (integer(1, 3), 3.0, 3),
        (message_rate, "0.5", 0.5),
        (duration(SECOND, 2 * SECOND), SECOND, SECOND),
        (duration(SECOND, 2 * SECOND), "2", 2 * SECOND),
        (duration(SECOND), timedelta.max, timedelta.max),
        (non_empty_text, " a", " a"),
    ],
)
def test_check_returns_value_in_its_type(check: Check, value: Any, expected: Any) -> None:
    result = check("field", value)
    assert (result, type(result)) == (expected, type(expected))


@pytest.mark.parametrize(
    ("check", "value", "allowed"),
    [
        (boolean, 1, "allowed are true and false"),
        (boolean, "yes", "allowed are true and false"),
        (choice("a", "b"), "c", "allowed are a, b"),
        (choice("a", "b"), [], "allowed are a, b"),
        (integer(1), 0, "it must be a whole number from 1"),
        (integer(1, 3), 4, "it must be a whole number from 1 to 3"),
        *((integer(0, 3), value, "it must be a whole number from 0 to 3") for value in (True, None, 1.5, "many")),
        *(
            (message_rate, value, "it must be a number of messages a second above 0")
            for value in (0, True, "inf", "nan", None, 10**400)
        ),
        *(
            (duration(SECOND, 60 * SECOND), value, "it must be a timedelta or a number of seconds, from 1 to 60 s")
            for value in NO_DURATIONS
        ),
        (duration(SECOND), 0, "it must be a timedelta or a number of seconds, from 1 s"),
        *((non_empty_text, value, "it must be a text that is not empty") for value in ("", " ", 5, None)),
    ],
)
def test_check_rejects_value_and_names_what_is_allowed(check: Check, value: Any, allowed: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        check("field", value)
    assert str(caught.value) == f"field is {value!r}: {allowed}"
