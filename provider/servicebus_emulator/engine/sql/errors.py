"""What can be wrong with a rule's SQL: its text, or the message it meets."""

from __future__ import annotations

__all__ = ["SqlEvaluationError", "SqlSyntaxError"]


class SqlSyntaxError(ValueError):
    """An expression that does not follow the language.

    :ivar position: the index of the character at fault.
    :ivar found: what stands there.
    :ivar allowed: what may stand there instead.
    """

    def __init__(self, *, position: int, found: str, allowed: str) -> None:
        super().__init__(f"found {found} at character {position + 1}; allowed: {allowed}")
        self.position = position
        self.found = found
        self.allowed = allowed


class SqlEvaluationError(Exception):
    """An expression that has no value for a message; the service's name for it is ``FilterException``."""
