"""Syntax and evaluation errors of rule SQL."""

from __future__ import annotations


class SqlSyntaxError(ValueError):
    """An expression is not valid SQL.

    :param position: the index of the invalid character.
    :param found: the invalid token.
    :param allowed: what is allowed instead.
    """

    def __init__(self, *, position: int, found: str, allowed: str) -> None:
        super().__init__(f"found {found} at character {position + 1}; allowed: {allowed}")


class SqlEvaluationError(Exception):
    """An expression cannot be evaluated for a message; the service calls this ``FilterException``."""
