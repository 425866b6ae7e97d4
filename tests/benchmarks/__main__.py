"""Runs groups of benchmarks: a table on standard output, and the figures in ``.bench/GROUP.json``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from tests.benchmarks import GROUPS
from tests.benchmarks.measure import Measure

_FOLDER: Final = Path(__file__).parents[2] / ".bench"
_SIZED: Final = "spark"
_FEWEST: Final = 1000
_VERDICTS: Final = {None: "", True: "holds", False: "MISSED"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the groups that are named, or all there are; return 1 when a goal was missed."""
    present = [group for group in GROUPS if find_spec(f"tests.benchmarks.{group}") is not None]
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("group", nargs="*", help=f"one of {', '.join(present)} (default: all)")
    parser.add_argument("--messages", type=int, help=f"how many the group {_SIZED} sends through the outage")
    given = parser.parse_args(arguments)
    wanted = given.group or present
    for group in wanted:
        if group not in present:
            parser.error(f"group is {group!r}; allowed: {', '.join(present)}")
    if given.messages is not None and (_SIZED not in wanted or given.messages < _FEWEST):
        parser.error(f"messages is {given.messages}; allowed: from {_FEWEST} on, with the group {_SIZED}")
    sized = {} if given.messages is None else {_SIZED: {"messages": given.messages}}
    return max(_run(group, sized.get(group, {})) for group in wanted)


def _run(group: str, options: Mapping[str, int]) -> int:
    print(f"{group}\n  {'measure':<64} {'value':>12} {'unit':<22} goal")  # noqa: T201 - the table is the point
    taken: list[Measure] = []
    for measure in import_module(f"tests.benchmarks.{group}").measures(**options):
        taken.append(measure)
        print(_row(measure), flush=True)  # noqa: T201
    _FOLDER.mkdir(exist_ok=True)
    file = _FOLDER / f"{group}.json"
    file.write_text(json.dumps([measure.as_json() for measure in taken], indent=2) + "\n", encoding="utf-8")
    return 1 if any(measure.holds is False for measure in taken) else 0


def _row(measure: Measure) -> str:
    goal = "" if measure.goal is None else measure.goal
    figure = f"{measure.name:<64} {measure.value:>12,.4g} {measure.unit:<22}"
    return f"  {figure} {goal:<10} {_VERDICTS[measure.holds]}".rstrip()


if __name__ == "__main__":
    sys.exit(main())
