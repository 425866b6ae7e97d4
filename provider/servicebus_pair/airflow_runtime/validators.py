"""Checks of operator, sensor and trigger parameters.

An operator checks each parameter twice: when the DAG is parsed, unless it is a template, and again after rendering.
Every check takes the parameter's name and value, returns the value in its proper type, and raises
``ConfigurationError`` with the name, the value and what is allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.core.model import boolean, choice, duration, integer, message_rate, non_empty_text

__all__ = [
    "boolean",
    "check_unless_template",
    "choice",
    "duration",
    "entity_path",
    "entity_paths",
    "integer",
    "optional_message_rate",
    "optional_path_list",
    "path_list",
    "poll_interval_seconds",
]


def check_unless_template(name: str, value: Any, check: Callable[[str, Any], object]) -> None:
    """Run ``check`` at parse time, unless the value is known at run time only: a template or another task's XCom."""
    if not _is_resolved_at_run_time(value):
        check(name, value)


def _is_resolved_at_run_time(value: Any) -> bool:
    if isinstance(value, str):
        return "{{" in value or "{%" in value
    if isinstance(value, Mapping):
        return any(_is_resolved_at_run_time(each) for each in value.values())
    if isinstance(value, list | tuple):
        return any(_is_resolved_at_run_time(each) for each in value)
    return hasattr(value, "resolve")  # an XComArg, or any other value that Airflow resolves in the same way


def optional_message_rate(name: str, value: Any) -> float | None:
    """Parse a limit in messages per second; ``None`` and an empty text mean no limit."""
    return None if value in (None, "", "None") else message_rate(name, value)


def poll_interval_seconds(name: str, value: object) -> float:
    """Check a polling interval of 1 to 3600 seconds."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 1 <= value <= 3600:  # noqa: PLR2004
        raise ConfigurationError(f"{name} is {value!r}: allowed are 1 to 3600 seconds")
    return float(value)


def entity_path(name: str, value: Any) -> str:
    """Check the path of one queue or topic."""
    return non_empty_text(name, value, meaning="the path of a queue or topic")


def entity_paths(name: str, value: Any) -> list[str]:
    """Parse one path, several separated by commas, or a list of at least one, and drop duplicates."""
    values: Sequence[Any] = [each.strip() for each in value.split(",")] if isinstance(value, str) else value
    if not isinstance(values, list | tuple) or not values:
        raise ConfigurationError(f"{name} is {value!r}: it must be the path of a queue or topic, or a list of them")
    return list({each.casefold(): each for each in (entity_path(name, each) for each in values)}.values())


def path_list(name: str, value: object) -> Sequence[str]:
    """Check a list of paths, which may be empty."""
    if not isinstance(value, list | tuple) or not all(isinstance(each, str) and each for each in value):
        raise ConfigurationError(f"{name} is {value!r}: it must be a list of paths of at least one character")
    return value


def optional_path_list(name: str, value: Any) -> Sequence[str] | None:
    """Parse a list of paths or a text with commas; ``None`` and an empty text, as from a template, mean no list."""
    if value in (None, ""):
        return None
    return path_list(name, [each.strip() for each in value.split(",")] if isinstance(value, str) else value)
