"""Checks of what tasks stored: results, counters, cost reports. Whoever writes a task's XCom or state writes them too.

A value of another shape is left out, so that no task can take a pair off the page, and none is larger than is shown.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement

MAX_CHARACTERS: Final = 2**20
# So that many small values are as limited as a few large ones.
_ROW_CHARACTERS: Final = 100
_COUNTERS: Final = ("syphoned", "unspooled", "per_second", "at")
_COUNTERS_BY_NAME: Final = ("syphoned_by_entity", "dead_lettered", "operations")
# Counts of an entity: to the primary, to the backlog, and, since there is a spool, to that.
_ROUTES: Final = (2, 3)
_EVENT_TEXTS: Final = ("entity", "reason", "by")
_COST_NUMBERS: Final = ("total", "billable")
_MAX_WORD: Final = 20
# Beyond it a browser rounds; a number of hundreds of digits is no float at all.
_LARGEST: Final = 2**53
# The end of the year 9999: a browser knows no time long after it.
_LATEST: Final = 253_402_300_799
_MAX_REASON: Final = 500
_MAX_NAMES: Final = 1000
# A namespace has no more queues and topics.
_MAX_ENTITIES: Final = 10_000


def stored_text(value: Any) -> ColumnElement[str]:
    """Return a column of JSON as text: the database driver would decode it whatever its size and depth."""
    from sqlalchemy import Text, cast

    return cast(value, Text)


def total_characters(*columns: Any, of_each: Any, newest: Any) -> ColumnElement[int]:
    """Return how much a row and all newer ones take of the room that each has.

    :param of_each: what has room of its own.
    :param newest: order of the rows.
    """
    from sqlalchemy import func

    characters: Any = sum((func.length(column) for column in columns), _ROW_CHARACTERS)
    total: ColumnElement[int] = func.sum(characters).over(partition_by=of_each, order_by=newest, rows=(None, 0))
    return total


def read_json(text: Any) -> Any:
    """Decode JSON as the database stored it; what is no JSON, or more than 1 MiB of it, becomes ``None``."""
    try:
        return (json.loads(text) if len(text) <= MAX_CHARACTERS else None) if isinstance(text, str) else text
    except (ValueError, RecursionError):
        return None


def numbers_of(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the numbers of a result, and the numbers in each mapping of it, by name."""
    found: dict[str, Any] = {}
    for name, value in result.items():
        if isinstance(value, Mapping):
            numbers = ((str(key), number) for key, number in value.items() if _is_number(number))
            found[name] = dict(islice((each for each in numbers if len(each[0]) <= _MAX_REASON), _MAX_ENTITIES))
        elif _is_number(value):
            found[name] = value
    return found


def are_counters(value: Any) -> bool:
    """Return whether a value has the shape that ``airflow_runtime.observers.task_activity`` stores."""
    return (
        isinstance(value, dict)
        and value.get("v") == 1
        and all(_is_number(value.get(name, 0)) for name in _COUNTERS)
        and value.get("at", 0) <= _LATEST
        and all(_is_mapping(value.get(name, {}), _is_number) for name in _COUNTERS_BY_NAME)
        and _is_mapping(value.get("entities", {}), lambda each: _are_numbers(each, _ROUTES))
        and isinstance(value.get("sends", []), list)
        and all(_are_numbers(each, [1 + count for count in _ROUTES]) for each in value.get("sends", []))
        and all(isinstance(slot, int) for slot, *_ in value.get("sends", []))
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
    texts_given = ((name, given.get(name)) for name in _EVENT_TEXTS)
    # Twice what is shown: a part of a secret has no shape, so it is masked before it is cut.
    found: dict[str, Any] = {name: text[: 2 * _MAX_REASON] for name, text in texts_given if isinstance(text, str)}
    if _is_number(given.get("since")) and given["since"] <= _LATEST:
        found["since"] = given["since"]
    payload, moved = given.get("payload"), given.get("moved")
    entities = payload.get("entities") if isinstance(payload, Mapping) else None
    if isinstance(entities, list):
        texts = [each for each in entities[:_MAX_NAMES] if isinstance(each, str) and len(each) <= _MAX_REASON]
        found["payload"] = {"entities": texts}
    if isinstance(moved, Mapping):
        found["moved"] = dict(islice(numbers_of({"moved": moved})["moved"].items(), _MAX_NAMES))
    return found


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _LARGEST


def _are_numbers(value: Any, counts: Sequence[int]) -> bool:
    return isinstance(value, list | tuple) and len(value) in counts and all(map(_is_number, value))


def _is_mapping(value: Any, check: Any) -> bool:
    return isinstance(value, Mapping) and all(len(name) <= _MAX_REASON and check(each) for name, each in value.items())


def _word(value: Any) -> str:
    return str(value)[:_MAX_WORD] if isinstance(value, str | int | float) else ""
