"""What a query's filters save a batch read: sequence numbers outside a range, and rows that are not wanted.

Filters are hints: Spark applies all of them again, so one that is not understood is no error.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from servicebus_pair.core.sdk import ReceivedMessage
from servicebus_pair.spark.base.offsets import FIRST_SEQUENCE_NUMBER, MAX_SEQUENCE_NUMBER

_SEQUENCE_NUMBER: Final = "sequenceNumber"
_COMPARISONS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "EqualTo": operator.eq,
    "GreaterThan": operator.gt,
    "GreaterThanOrEqual": operator.ge,
    "LessThan": operator.lt,
    "LessThanOrEqual": operator.le,
    "In": lambda value, allowed: value in allowed,
}
_COLUMNS: Final[Mapping[str, Callable[[ReceivedMessage], Any]]] = {
    "enqueuedTime": lambda message: message.enqueued_time,
    "sessionId": lambda message: message.session_id,
    "state": lambda message: str(message.state),
}


@dataclass(frozen=True, slots=True)
class RowFilter:
    """Conditions that a row must meet to be of use.

    :param start: smallest sequence number.
    :param end: sequence number to stop before.
    :param conditions: column, name of the comparison and value.
    """

    start: int = FIRST_SEQUENCE_NUMBER
    end: int = MAX_SEQUENCE_NUMBER
    conditions: tuple[tuple[str, str, Any], ...] = ()

    def with_filters(self, filters: Iterable[Any]) -> RowFilter:
        """Return the filter with those of a query's filters that it knows."""
        result = self
        for each in filters:
            name, column = type(each).__name__, ".".join(getattr(each, "attribute", ()))
            if name not in _COMPARISONS:
                continue
            if column == _SEQUENCE_NUMBER:
                result = result._narrowed(name, each.value)
            elif column in _COLUMNS:
                result = replace(result, conditions=(*result.conditions, (column, name, each.value)))
        return result

    def matches(self, message: ReceivedMessage) -> bool:
        """Return whether a message can be in the result; its sequence number is not compared."""
        for column, name, value in self.conditions:
            given = _COLUMNS[column](message)
            if given is None or not _COMPARISONS[name](given, value):
                return False
        return True

    def _narrowed(self, name: str, value: Any) -> RowFilter:
        first, last = self.start, self.end - 1
        match name:
            case "EqualTo":
                first, last = max(first, value), min(last, value)
            case "In":
                first, last = max(first, min(value)), min(last, max(value))
            case "GreaterThan":
                first = max(first, value + 1)
            case "GreaterThanOrEqual":
                first = max(first, value)
            case "LessThan":
                last = min(last, value - 1)
            case "LessThanOrEqual":
                last = min(last, value)
        return replace(self, start=first, end=max(first, last + 1))
