"""Syntax and evaluation errors of rule SQL."""

from __future__ import annotations

__all__ = ["SqlEvaluationError", "SqlSyntaxError"]


class SqlSyntaxError(ValueError):
    """An expression is not valid SQL.

    :ivar position: the index of the invalid character.
    :ivar found: the invalid token.
    :ivar allowed: what is allowed instead.
    """

    def __init__(self, *, position: int, found: str, allowed: str) -> None:
        super().__init__(f"found {found} at character {position + 1}; allowed: {allowed}")
        self.position = position
        self.found = found
        self.allowed = allowed


class SqlEvaluationError(Exception):
    """An expression cannot be evaluated for a message; the service calls this ``FilterException``."""
