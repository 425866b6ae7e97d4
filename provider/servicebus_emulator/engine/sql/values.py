"""The values of SQL expressions, compared and calculated as C# does.

None stands for unknown and for null alike; the language tells them apart only by ``EXISTS``.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final, TypeGuard
from uuid import UUID

from servicebus_emulator.engine.sql.errors import SqlEvaluationError
from servicebus_emulator.engine.timespan import TimeSpan

__all__ = ["SqlValue", "calculate", "compare", "equal", "in_utc", "is_number", "negate", "text_of"]

SqlValue = None | bool | int | float | str | datetime | TimeSpan | UUID | bytes
"""What a property or expression can be; a ``datetime`` is aware."""

_INT64: Final = 2**63
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
    """Return a value of a rule as expressions take it: a time without a zone is in UTC."""
    return value.replace(tzinfo=UTC) if isinstance(value, datetime) and value.tzinfo is None else value


def is_number(value: SqlValue) -> TypeGuard[int | float]:
    """Whether a value is a number; a boolean is none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def compare(sign: str, left: SqlValue, right: SqlValue) -> bool | None:
    """Compare two values; unknown when one is unknown, or when C# has no such comparison of their types.

    Numbers of different types are compared as doubles, strings by code point and with their case.

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
    """Whether two values are known and equal."""
    return compare("=", left, right) is True


def calculate(sign: str, left: SqlValue, right: SqlValue) -> SqlValue:
    """Apply ``+ - * / %``; unknown when an operand is. Integers have 64 bits and are divided towards zero.

    :raises SqlEvaluationError: when the types have no such operator, on division by zero and on overflow.
    """
    if left is None or right is None:
        return None
    if is_number(left) and is_number(right):
        if isinstance(left, float) or isinstance(right, float):
            return _of_floats(sign, float(left), float(right))
        return _within_64_bits(_of_integers(sign, left, right))
    if sign == "+" and (isinstance(left, str) or isinstance(right, str)):
        return text_of(left) + text_of(right)
    raise SqlEvaluationError(f"{type(left).__name__} {sign} {type(right).__name__} is not defined; allowed: numbers")


def negate(value: SqlValue) -> SqlValue:
    """Change a number's sign; unknown stays unknown.

    :raises SqlEvaluationError: when the value is no number, or the result has more than 64 bits.
    """
    if value is None:
        return None
    if isinstance(value, float):
        return -value
    if not isinstance(value, int) or isinstance(value, bool):
        raise SqlEvaluationError(f"a sign before {type(value).__name__} is not defined; allowed: numbers")
    return _within_64_bits(-value)


def text_of(value: SqlValue) -> str:
    """Return a value as text, as .NET's invariant culture writes it.

    :raises SqlEvaluationError: when the value has no text.
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
            raise SqlEvaluationError(f"{type(value).__name__} has no text; allowed: a string, number, time or UUID")


def _of_integers(sign: str, left: int, right: int) -> int:
    if sign in {"/", "%"}:
        if right == 0:
            raise SqlEvaluationError("an integer is divided by zero")
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
        raise SqlEvaluationError("the result does not fit into 64 bits")
    return value
