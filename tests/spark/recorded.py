"""The ledger as a test watches it while other processes write it."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

__all__ = ["recorded", "wait_for_records"]

SECONDS = 90.0


def recorded(folder: Path) -> Counter[str]:
    """Return how many messages were sent by each route, of the lines that are complete by now."""
    lines = [line for file in folder.glob("*.jsonl") for line in file.read_bytes().split(b"\n")[:-1]]
    return Counter(json.loads(line)["route"] for line in lines)


def wait_for_records(folder: Path, count: int, route: str, *, ended: Callable[[], bool]) -> None:
    """Wait until so many messages went by a route; those who send are other processes.

    :param ended: tells that nobody sends any more.
    """
    deadline = time.monotonic() + SECONDS
    while recorded(folder)[route] < count:
        assert not ended(), f"sending ended with {recorded(folder)[route]} of {count} by {route}"
        assert time.monotonic() < deadline, f"{recorded(folder)[route]} of {count} by {route} after {SECONDS:.0f} s"
        time.sleep(0.1)
