"""Parameters of operators: checked when the DAG is parsed, if they are no templates, and again when rendered."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from servicebus_pair.core.errors import ConfigurationError

__all__ = [
    "check_early",
    "choice",
    "duration",
    "flag",
    "path_of_entity",
    "paths_of_entities",
    "positive_rate",
    "whole_number",
]

_FLAGS: Final[Mapping[str, bool]] = {"true": True, "false": False}


def check_early(name: str, value: Any, check: Callable[[str, Any], object]) -> None:
    """Check a parameter of a DAG file; what only a run can know (a template, another task's XCom) is left for later.

    :raises ConfigurationError: as ``check`` does.
    """
    if not _is_known_later(value):
        check(name, value)


def _is_known_later(value: Any) -> bool:
    if isinstance(value, str):
        return "{{" in value or "{%" in value
    if isinstance(value, Mapping):
        return any(_is_known_later(each) for each in value.values())
    if isinstance(value, list | tuple):
        return any(_is_known_later(each) for each in value)
    return hasattr(value, "resolve")  # an XComArg, or a value that Airflow resolves like one


def flag(name: str, value: Any) -> bool:
    """Read a switch; a template renders to text.

    :raises ConfigurationError: naming the parameter, its value and what is allowed.
    """
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in _FLAGS:
        return _FLAGS[value.strip().lower()]
    raise ConfigurationError(f"{name} is {value!r}: allowed are true and false")


def choice(*allowed: str) -> Callable[[str, Any], str]:
    """Return a check that a parameter is one of ``allowed``."""

    def check(name: str, value: Any) -> str:
        if value not in allowed:
            raise ConfigurationError(f"{name} is {value!r}: allowed are {', '.join(allowed)}")
        return str(value)

    return check


def whole_number(low: int, high: int) -> Callable[[str, Any], int]:
    """Return a check that a parameter is a whole number, or a text of one, from ``low`` to ``high``."""

    def check(name: str, value: Any) -> int:
        problem = ConfigurationError(f"{name} is {value!r}: it must be a whole number from {low} to {high}")
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise problem
        try:
            number = int(value)
        except ValueError:
            raise problem from None
        if not low <= number <= high:
            raise problem
        return number

    return check


def positive_rate(name: str, value: Any) -> float | None:
    """Read a limit of messages a second, or none: a template renders to text.

    :raises ConfigurationError: it is no number above 0.
    """
    if value in (None, "", "None"):
        return None
    try:
        rate = 0.0 if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        rate = 0.0
    if not 0 < rate < float("inf"):
        raise ConfigurationError(f"{name} is {value!r}: it must be a number of messages a second above 0")
    return rate


def duration(low: timedelta, high: timedelta) -> Callable[[str, Any], timedelta]:
    """Return a check that a parameter is a ``timedelta``, or a number or text of seconds, from ``low`` to ``high``."""

    def check(name: str, value: Any) -> timedelta:
        problem = ConfigurationError(
            f"{name} is {value!r}: it must be a timedelta or a number of seconds, "
            f"from {low.total_seconds():g} to {high.total_seconds():g} s"
        )
        if isinstance(value, timedelta):
            read = value
        elif isinstance(value, bool) or not isinstance(value, int | float | str):
            raise problem
        else:
            try:
                read = timedelta(seconds=float(value))
            except (ValueError, OverflowError):
                raise problem from None
        if not low <= read <= high:
            raise problem
        return read

    return check


def path_of_entity(name: str, value: Any) -> str:
    """Read the path of a queue or topic.

    :raises ConfigurationError: naming the parameter, its value and what is allowed.
    """
    if not isinstance(value, str) or not value.strip():
        raise ConfigurationError(f"{name} is {value!r}: it must be the path of a queue or topic")
    return value


def paths_of_entities(name: str, value: Any) -> list[str]:
    """Read one path, several separated by commas (which no path contains), or a list; without repetitions.

    :raises ConfigurationError: as :func:`path_of_entity`, or there is none.
    """
    values: Sequence[Any] = [each.strip() for each in value.split(",")] if isinstance(value, str) else value
    if not isinstance(values, list | tuple) or not values:
        raise ConfigurationError(f"{name} is {value!r}: it must be the path of a queue or topic, or a list of them")
    return list({each.casefold(): each for each in (path_of_entity(name, each) for each in values)}.values())
