"""Runs groups of benchmarks; prints a table and writes the figures to ``.bench/GROUP.json``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from time import perf_counter
from typing import Final

from tests.benchmarks import GROUPS
from tests.benchmarks.measure import Measure

_FOLDER: Final = Path(__file__).parents[2] / ".bench"
_MIN_MESSAGES: Final = 1000
_RESULTS: Final = {None: "", True: "holds", False: "MISSED"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the given groups, or all; return 1 if a goal was missed."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("group", nargs="*", help=f"one of {', '.join(GROUPS)} (default: all)")
    parser.add_argument("--messages", type=int, help="messages that the group spark sends through the outage")
    options = parser.parse_args(arguments)
    groups = options.group or GROUPS
    for group in groups:
        if group not in GROUPS:
            parser.error(f"group is {group!r}; allowed: {', '.join(GROUPS)}")
    messages = options.messages
    if messages is not None and ("spark" not in groups or messages < _MIN_MESSAGES):
        parser.error(f"messages is {messages}; allowed: {_MIN_MESSAGES} or more, with the group spark")
    sizes = {} if messages is None else {"spark": {"messages": messages}}
    return max(_run(group, sizes.get(group, {})) for group in groups)


def _run(group: str, arguments: Mapping[str, int]) -> int:
    print(f"{group}\n  {'measure':<64} {'value':>12} {'unit':<22} goal")  # noqa: T201 - the result
    measures: list[Measure] = []
    started = perf_counter()
    for measure in import_module(f"tests.benchmarks.{group}").measures(**arguments):
        measures.append(measure)
        print(_row(measure), flush=True)  # noqa: T201
    print(f"  {group} took {perf_counter() - started:.0f} s")  # noqa: T201
    _FOLDER.mkdir(exist_ok=True)
    file = _FOLDER / f"{group}.json"
    file.write_text(json.dumps([measure.as_json() for measure in measures], indent=2) + "\n", encoding="utf-8")
    return 1 if any(measure.holds is False for measure in measures) else 0


def _row(measure: Measure) -> str:
    goal = "" if measure.goal is None else measure.goal
    figure = f"{measure.name:<64} {measure.value:>12,.4g} {measure.unit:<22}"
    return f"  {figure} {goal:<10} {_RESULTS[measure.holds]}".rstrip()


if __name__ == "__main__":
    sys.exit(main())
