"""Reads numbers from environment variables; an invalid one is an import error of the DAG file."""

from __future__ import annotations

import os

from servicebus_pair.core.errors import ConfigurationError

__all__ = ["number"]


def number(name: str, default: float, *, low: float, high: float) -> float:
    """Return the number in the environment variable ``name``, or ``default`` where it is not set or empty.

    :param low: the smallest allowed value.
    :param high: the largest.
    :raises ConfigurationError: naming the variable, its value and what is allowed.
    """
    text = os.environ.get(name, "").strip()
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not low <= value <= high:
        raise ConfigurationError(
            f"environment variable {name} is {text!r}: it must be a number from {low:g} to {high:g}; the default "
            f"is {default:g}"
        )
    return value
