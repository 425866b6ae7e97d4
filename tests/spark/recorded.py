"""The ledger as a test watches it while other processes write it."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

__all__ = ["recorded", "records", "syphoned", "wait_for_records", "wait_until"]

SECONDS = 240.0  # a bound of what hangs: a cluster takes its time to start where much else runs


def recorded(folder: Path) -> Counter[str]:
    """Return how many messages were sent by each route, of the lines that are complete by now."""
    return Counter(record["route"] for record in records(folder))


def syphoned(folder: Path) -> int:
    """Return how many messages were moved out of the backlog, of the lines that are complete by now."""
    return sum(record["kind"] == "syphoned" for record in records(folder))


def records(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the records of the lines that are complete by now."""
    for file in folder.glob("*.jsonl"):
        yield from map(json.loads, file.read_bytes().split(b"\n")[:-1])


def wait_until(done: Callable[[], bool], *, ended: Callable[[], bool]) -> None:
    """Wait for what other processes do.

    :param ended: tells that they do nothing any more.
    """
    deadline = time.monotonic() + SECONDS
    while not done():
        assert not ended(), "it ended before"
        assert time.monotonic() < deadline, f"it did not happen within {SECONDS:.0f} s"
        time.sleep(0.1)


def wait_for_records(folder: Path, count: int, route: str, *, ended: Callable[[], bool]) -> None:
    """Wait until so many messages went by a route; those who send are other processes.

    :param ended: tells that nobody sends any more.
    """
    deadline = time.monotonic() + SECONDS
    while recorded(folder)[route] < count:
        assert not ended(), f"sending ended with {recorded(folder)[route]} of {count} by {route}"
        assert time.monotonic() < deadline, f"{recorded(folder)[route]} of {count} by {route} after {SECONDS:.0f} s"
        time.sleep(0.1)
