"""Keeps secrets out of everything that leaves an executor.

Spark copies the text of a Python exception into the driver's error, its logs and the event log, so
every error of a task must pass through :func:`redact_errors`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from servicebus_pair.core.errors import PairError
from servicebus_pair.core.model import scrub

_TASK_ERROR_PATTERN: Final = re.compile(r"SparkTaskError: (.+)")


class SparkTaskError(PairError):
    """A Spark task failed; the message names the cause and contains no secrets."""


class Redaction:
    """Replaces known secrets, and anything that looks like one, with ``***``."""

    def __init__(self) -> None:
        self._secrets: set[str] = set()

    def add_secret(self, secret: str) -> None:
        """Register a text that must be masked."""
        self._secrets.add(secret)

    def clean(self, text: str) -> str:
        """Return ``text`` with secrets masked."""
        return scrub(text, self._secrets)


def task_error_message(error: BaseException) -> str:
    """Extract the message of a :class:`SparkTaskError` from Spark's error, or else return its first line."""
    text = str(error).strip()
    match = _TASK_ERROR_PATTERN.search(text)
    if match is not None:
        return match[1].strip()
    # Py4J names its own call first.
    return text.removeprefix(text.partition("\n: ")[0] + "\n: ").partition("\n")[0]


@contextmanager
def redact_errors(redaction: Redaction) -> Iterator[None]:
    """Replace every exception by a :class:`SparkTaskError` without secrets and without its cause.

    The exception chain is cut because Python prints the text of every exception in it.
    """
    try:
        yield
    except Exception as failure:  # noqa: BLE001  re-raised, reworded
        prefix = "" if isinstance(failure, SparkTaskError) else f"{type(failure).__name__}: "
        raise SparkTaskError(redaction.clean(f"{prefix}{failure}")) from None
