"""The values of SQL expressions, with the comparison and arithmetic semantics of C#.

None represents both unknown and null; only ``EXISTS`` distinguishes them.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final, TypeGuard
from uuid import UUID

from servicebus_emulator.engine.model.timespan import TimeSpan
from servicebus_emulator.engine.sql.errors import SqlEvaluationError

SqlValue = None | bool | int | float | str | datetime | TimeSpan | UUID | bytes
"""A value of a property or expression. Datetimes are aware."""

_INT64: Final = 2**63
# A property has at most 32 KB; without a limit an action that doubles a text takes all memory.
_MAX_CHARACTERS: Final = 32 * 1024
_ORDERED: Final = (str, datetime, TimeSpan)
_COMPARISONS: Final[Mapping[str, Callable[..., bool]]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_EQUALITY: Final = frozenset({"=", "<>"})


def in_utc(value: SqlValue) -> SqlValue:
    """Return the value, with UTC as the time zone of naive datetimes."""
    return value.replace(tzinfo=UTC) if isinstance(value, datetime) and value.tzinfo is None else value


def is_number(value: SqlValue) -> TypeGuard[int | float]:
    """Return whether a value is a number and not a boolean."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def compare(sign: str, left: SqlValue, right: SqlValue) -> bool | None:
    """Compare two values. The result is None when one is None, or when C# cannot compare their types.

    Numbers of different types are compared as doubles; strings by code point, case-sensitively.

    :param sign: one of ``= <> < <= > >=``.
    """
    if left is None or right is None:
        return None
    if is_number(left) and is_number(right):
        if isinstance(left, float) or isinstance(right, float):
            left, right = float(left), float(right)
        return _COMPARISONS[sign](left, right)
    if type(left) is not type(right) or not (sign in _EQUALITY or isinstance(left, _ORDERED)):
        return None
    return _COMPARISONS[sign](left, right)


def equal(left: SqlValue, right: SqlValue) -> bool:
    """Return whether two values are known and equal."""
    return compare("=", left, right) is True


def calculate(sign: str, left: SqlValue, right: SqlValue) -> SqlValue:
    """Apply ``+ - * / %``; None when an operand is None. Integers have 64 bits; division truncates towards zero.

    :raises SqlEvaluationError: when the operator is not defined for the types, on division by zero, on overflow, and
        when a text becomes longer than a property may be.
    """
    if left is None or right is None:
        return None
    if is_number(left) and is_number(right):
        if isinstance(left, float) or isinstance(right, float):
            return _of_floats(sign, float(left), float(right))
        return _within_64_bits(_of_integers(sign, left, right))
    if sign == "+" and (isinstance(left, str) or isinstance(right, str)):
        text = to_text(left) + to_text(right)
        if len(text) > _MAX_CHARACTERS:
            raise SqlEvaluationError(f"a text has {len(text)} characters; allowed: {_MAX_CHARACTERS}")
        return text
    raise SqlEvaluationError(f"{type(left).__name__} {sign} {type(right).__name__} is not defined; allowed: numbers")


def negate(value: SqlValue) -> SqlValue:
    """Negate a number; None stays None.

    :raises SqlEvaluationError: when the value is not a number, or the result exceeds 64 bits.
    """
    if value is None:
        return None
    if isinstance(value, float):
        return -value
    if not isinstance(value, int) or isinstance(value, bool):
        raise SqlEvaluationError(f"a sign before {type(value).__name__} is not defined; allowed: numbers")
    return _within_64_bits(-value)


def to_text(value: SqlValue) -> str:
    """Convert a value to a string, as .NET's invariant culture formats it.

    :raises SqlEvaluationError: when the type has no string representation.
    """
    match value:
        case str():
            return value
        case bool():
            return "True" if value else "False"
        case float():
            return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)  # noqa: PLR2004 - .NET's "R"
        case int() | UUID() | TimeSpan():
            return str(value)
        case datetime():
            return value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
        case _:
            raise SqlEvaluationError(f"{type(value).__name__} cannot be a string; allowed: string, number, time, UUID")


def _of_integers(sign: str, left: int, right: int) -> int:
    if sign in {"/", "%"}:
        if right == 0:
            raise SqlEvaluationError("integer division by zero")
        quotient = abs(left) // abs(right)
        quotient = quotient if (left < 0) == (right < 0) else -quotient
        return quotient if sign == "/" else left - quotient * right
    return left + right if sign == "+" else left - right if sign == "-" else left * right


def _of_floats(sign: str, left: float, right: float) -> float:
    if sign == "%":
        return math.nan if right == 0 or math.isinf(left) or math.isnan(right) else math.fmod(left, right)
    if sign == "/" and right == 0:
        return math.nan if left == 0 or math.isnan(left) else math.copysign(math.inf, left) * math.copysign(1.0, right)
    return (
        left + right if sign == "+" else left - right if sign == "-" else left * right if sign == "*" else left / right
    )


def _within_64_bits(value: int) -> int:
    if not -_INT64 <= value < _INT64:
        raise SqlEvaluationError("the result exceeds 64 bits")
    return value
