"""Keeping secrets out of what leaves an executor.

Spark copies the text of a Python exception into the driver's error, its logs and the event log, so
every error of a task passes through :func:`secret_free`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from servicebus_pair.core.errors import PairError

__all__ = ["Redaction", "SparkTaskError", "secret_free", "task_error"]

_MASK: Final = "***"
_SHOWN_AS_SECRET: Final = re.compile(
    r"((?:SharedAccessKey|SharedAccessSignature|sig)\s*=\s*)[^;&\s'\"]+", re.IGNORECASE
)


_SAID_BY_TASK: Final = re.compile(r"SparkTaskError: (.+)")


class SparkTaskError(PairError):
    """A Spark task failed; the message names the cause and holds no secret."""


class Redaction:
    """Replaces known secrets, and whatever looks like one, by ``***``."""

    def __init__(self) -> None:
        self._secrets: set[str] = set()

    def learn(self, secret: str) -> None:
        """Remember a text that must not be shown."""
        self._secrets.add(secret)

    def clean(self, text: str) -> str:
        """Answer ``text`` without secrets."""
        for secret in sorted(self._secrets, key=len, reverse=True):
            text = text.replace(secret, _MASK)
        return _SHOWN_AS_SECRET.sub(rf"\1{_MASK}", text)


def task_error(error: BaseException) -> str:
    """Answer what a task said when it failed, out of the error that Spark made of it, or else its first line."""
    text = str(error).strip()
    said = _SAID_BY_TASK.search(text)
    return text.partition("\n")[0] if said is None else said[1].strip()


@contextmanager
def secret_free(redaction: Redaction) -> Iterator[None]:
    """Replace every error by a :class:`SparkTaskError` without secrets and without its chain.

    The chain is cut because Python prints the text of each link of it.
    """
    try:
        yield
    except Exception as failure:  # noqa: BLE001  every error goes on, in other words
        kind = "" if isinstance(failure, SparkTaskError) else f"{type(failure).__name__}: "
        raise SparkTaskError(redaction.clean(f"{kind}{failure}")) from None
