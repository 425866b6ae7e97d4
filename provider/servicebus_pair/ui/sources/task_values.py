"""Checks of what tasks stored: results, counters, cost reports. Whoever writes a task's XCom or state writes them too.

A value of another shape is left out, so that no task can take a pair off the page, and none is larger than is shown.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, Final

_MAX_CHARACTERS: Final = 2**20
_COUNTERS: Final = ("syphoned", "unspooled", "per_second", "at")
_COUNTERS_BY_NAME: Final = ("syphoned_by_entity", "dead_lettered", "operations")
# Counts of an entity: to the primary, to the backlog, and, since there is a spool, to that.
_ROUTES: Final = (2, 3)
_EVENT_TEXTS: Final = ("entity", "reason", "by")
_COST_NUMBERS: Final = ("total", "billable")
_MAX_WORD: Final = 20
# Beyond it a browser rounds; a number of hundreds of digits is no float at all.
_LARGEST: Final = 2**53
_MAX_REASON: Final = 500
_MAX_NAMES: Final = 1000


def read_json(text: Any) -> Any:
    """Decode JSON as the database stored it; what is no JSON, or more than 1 MiB of it, becomes ``None``."""
    try:
        return (json.loads(text) if len(text) <= _MAX_CHARACTERS else None) if isinstance(text, str) else text
    except (ValueError, RecursionError):
        return None


def numbers_of(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the numbers of a result, and the numbers in each mapping of it, by name."""
    found: dict[str, Any] = {}
    for name, value in result.items():
        if isinstance(value, Mapping):
            found[name] = {str(key): number for key, number in value.items() if _is_number(number)}
        elif _is_number(value):
            found[name] = value
    return found


def are_counters(value: Any) -> bool:
    """Return whether a value has the shape that ``airflow_runtime.observers.task_activity`` stores."""
    return (
        isinstance(value, dict)
        and value.get("v") == 1
        and all(_is_number(value.get(name, 0)) for name in _COUNTERS)
        and all(_is_mapping(value.get(name, {}), _is_number) for name in _COUNTERS_BY_NAME)
        and _is_mapping(value.get("entities", {}), lambda each: _are_numbers(each, _ROUTES))
        and isinstance(value.get("sends", []), list)
        and all(_are_numbers(each, [1 + count for count in _ROUTES]) for each in value.get("sends", []))
    )


def cost_report(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the page shows of a cost report."""
    shown: dict[str, Any] = {}
    for name in ("planned", "measured"):
        given = report.get(name)
        if isinstance(given, Mapping) and all(_is_number(given.get(each)) for each in _COST_NUMBERS):
            amount = _word(given.get("amount"))
            shown[name] = {**{each: given[each] for each in _COST_NUMBERS}, "amount": amount}
    prices = report.get("prices")
    if isinstance(prices, Mapping):
        shown["prices"] = {each: _word(prices.get(each)) for each in ("as_of", "currency")}
    return shown


def event_extra(extra: Any) -> dict[str, Any]:
    """Return what the page reads of an asset event, whose extra any task may write."""
    given = extra if isinstance(extra, Mapping) else {}
    found: dict[str, Any] = {name: str(given[name])[:_MAX_REASON] for name in _EVENT_TEXTS if name in given}
    if _is_number(given.get("since")):
        found["since"] = given["since"]
    payload, moved = given.get("payload"), given.get("moved")
    entities = payload.get("entities") if isinstance(payload, Mapping) else None
    if isinstance(entities, list):
        texts = [each[:_MAX_REASON] for each in entities[:_MAX_NAMES] if isinstance(each, str)]
        found["payload"] = {"entities": texts}
    if isinstance(moved, Mapping):
        found["moved"] = dict(islice(numbers_of({"moved": moved})["moved"].items(), _MAX_NAMES))
    return found


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and -_LARGEST <= value <= _LARGEST


def _are_numbers(value: Any, counts: Sequence[int]) -> bool:
    return isinstance(value, list | tuple) and len(value) in counts and all(map(_is_number, value))


def _is_mapping(value: Any, check: Any) -> bool:
    return isinstance(value, Mapping) and all(map(check, value.values()))


def _word(value: Any) -> str:
    return str(value)[:_MAX_WORD] if isinstance(value, str | int | float) else ""
