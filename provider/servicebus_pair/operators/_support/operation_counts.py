"""Operation counts as XComs carry them: a mapping of names to the counts that are not zero."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

from servicebus_pair.core.errors import ConfigurationError

if TYPE_CHECKING:
    from servicebus_pair.core import Operations

__all__ = ["nonzero_counts", "parse_operation_counts"]


def nonzero_counts(operations: Operations) -> dict[str, int]:
    """Return the counts that are not zero."""
    return {name: count for name, count in asdict(operations).items() if count}


def parse_operation_counts(name: str, value: Any) -> Operations:
    """Parse a result of :func:`nonzero_counts`, or sum a list of them, such as the XComs of a mapped task.

    :raises ConfigurationError: naming the parameter, its value and what is allowed.
    """
    from servicebus_pair.core import Operations

    if isinstance(value, list | tuple):
        parsed = (parse_operation_counts(f"{name}[{index}]", each) for index, each in enumerate(value))
        return sum(parsed, Operations())
    if not isinstance(value, Mapping):
        raise ConfigurationError(f"{name} is {value!r}: it must be a mapping of counts, or a list of them")
    known = [each.name for each in fields(Operations)]
    for key, count in value.items():
        if key not in known:
            raise ConfigurationError(f"{name}: {key!r} is unknown: allowed are {', '.join(known)}")
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise ConfigurationError(f"{name}: {key} is {count!r}: it must be a whole number of at least 0")
    return Operations(**value)
