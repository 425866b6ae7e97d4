"""Operations as an XCom carries them: the counts that are not zero, by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

from servicebus_pair.core.errors import ConfigurationError

if TYPE_CHECKING:
    from servicebus_pair.core.costs import Operations

__all__ = ["counted", "read_counts"]


def counted(operations: Operations) -> dict[str, int]:
    """Return the counts that are not zero."""
    return {name: count for name, count in asdict(operations).items() if count}


def read_counts(name: str, value: Any) -> Operations:
    """Read what :func:`counted` returned, or a list of such, as the mapped task's XComs are; lists add up.

    :raises ConfigurationError: naming the parameter, its value and what is allowed.
    """
    from servicebus_pair.core.costs import Operations

    if isinstance(value, list | tuple):
        return sum((read_counts(f"{name}[{index}]", each) for index, each in enumerate(value)), Operations())
    if not isinstance(value, Mapping):
        raise ConfigurationError(f"{name} is {value!r}: it must be a mapping of counts, or a list of them")
    known = [each.name for each in fields(Operations)]
    for key, count in value.items():
        if key not in known:
            raise ConfigurationError(f"{name}: {key!r} is unknown: allowed are {', '.join(known)}")
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise ConfigurationError(f"{name}: {key} is {count!r}: it must be a whole number of at least 0")
    return Operations(**value)
