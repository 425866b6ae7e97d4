"""Checks of operator, sensor and trigger parameters.

An operator checks each parameter twice: when the DAG is parsed, unless it is a template, and again after rendering.
Every check takes the parameter's name and value, returns the value in its proper type, and raises
``ConfigurationError`` with the name, the value and what is allowed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Final

import pendulum

from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.core.model import (
    boolean,
    choice,
    integer,
    message_rate,
    no_secret,
    non_empty_text,
    storage_location,
)
from servicebus_pair.core.model import duration as _duration

__all__ = [
    "boolean",
    "check_unless_template",
    "choice",
    "duration",
    "entity_path",
    "entity_paths",
    "flag",
    "integer",
    "mapping",
    "no_secret_in",
    "optional",
    "optional_message_rate",
    "optional_path_list",
    "optional_spool",
    "poll_interval_seconds",
    "storage_path",
    "text",
]

_BELONGS: Final = "in the connection"


def _plain(name: str, value: Any, *, meaning: str) -> str:
    # Airflow shows the parameters of tasks to all who may read the DAG, and an entity is in logs and shared health.
    no_secret(name, value, belongs=_BELONGS)
    return non_empty_text(name, value, meaning=meaning)


text: Final = partial(_plain, meaning="a text of at least one character")


def no_secret_in(parameters: Mapping[str, Any]) -> None:
    """Refuse parameters that hold a secret, also in a template, as Airflow stores and shows what it is given."""
    for name, value in parameters.items():
        no_secret(name, value, belongs=_BELONGS)


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
    return None if value is None or value in ("", "None") else message_rate(name, value)


def optional(check: Callable[[str, Any], Any]) -> Callable[[str, Any], Any]:
    """Return a check that also accepts ``None``."""
    return lambda name, value: None if value is None else check(name, value)


def flag(name: str, value: Any) -> bool:
    """Check a boolean that is no template, so that a text cannot be meant."""
    if not isinstance(value, bool):
        raise ConfigurationError(f"{name} is {value!r}: allowed are True and False")
    return value


def duration(low: timedelta, high: timedelta = timedelta.max) -> Callable[[str, Any], timedelta]:
    """Return a check for a ``timedelta``, seconds, or an ISO 8601 duration, from ``low`` to ``high``."""
    check = _duration(low, high)

    def parse(name: str, value: Any) -> timedelta:
        if isinstance(value, str) and value.startswith("P"):
            try:
                parsed = pendulum.parse(value)
            except ValueError:
                parsed = None
            value = parsed.as_timedelta() if isinstance(parsed, pendulum.Duration) else value
        return check(name, value)

    return parse


def storage_path(name: str, value: Any) -> str:
    """Check the path or URL of a file or folder: a text or any path object, also Airflow's ``ObjectStoragePath``."""
    if not (isinstance(value, str | os.PathLike) or hasattr(value, "joinpath")) or not str(value):
        raise ConfigurationError(f"{name} is {value!r}: it must be a path or URL, such as s3://bucket/name")
    no_secret(name, str(value), belongs=_BELONGS)
    return str(value)


def optional_spool(name: str, value: Any) -> str | None:
    """Check the folder or the URL of a spool; ``None`` and an empty text mean that of the connection."""
    return None if value is None or value in ("", "None") else storage_location(name, storage_path(name, value))


def poll_interval_seconds(name: str, value: object) -> float:
    """Check a polling interval of 1 to 3600 seconds, or such a ``timedelta``, and return seconds."""
    value = value.total_seconds() if isinstance(value, timedelta) else value
    if not isinstance(value, int | float) or isinstance(value, bool) or not 1 <= value <= 3600:  # noqa: PLR2004
        raise ConfigurationError(f"{name} is {value!r}: allowed are 1 to 3600 seconds")
    return float(value)


def mapping(name: str, value: Any) -> Mapping[str, Any]:
    """Check a mapping of names to values of any type."""
    if not isinstance(value, Mapping) or not all(isinstance(each, str) for each in value):
        raise ConfigurationError(f"{name} is {value!r}: it must be a mapping of names to values")
    return value


def entity_path(name: str, value: Any) -> str:
    """Check the path of one queue or topic."""
    return _plain(name, value, meaning="the path of a queue or topic")


def entity_paths(name: str, value: Any) -> list[str]:
    """Parse one path, several separated by commas, or a list of at least one, and drop duplicates."""
    values: Sequence[Any] = [each.strip() for each in value.split(",")] if isinstance(value, str) else value
    if not isinstance(values, list | tuple) or not values:
        raise ConfigurationError(f"{name} is {value!r}: it must be the path of a queue or topic, or a list of them")
    return list({each.casefold(): each for each in (entity_path(name, each) for each in values)}.values())


def optional_path_list(name: str, value: Any) -> Sequence[str] | None:
    """Parse a list of paths, which may be empty, or a text with commas; ``None`` and an empty text mean no list."""
    if value is None or value == "":
        return None
    no_secret(name, value, belongs=_BELONGS)
    paths = [each.strip() for each in value.split(",")] if isinstance(value, str) else value
    if not isinstance(paths, list | tuple) or not all(isinstance(each, str) and each for each in paths):
        raise ConfigurationError(
            f"{name} is {value!r}: it must be a list of paths of at least one character, or a text of them with commas"
        )
    return paths
