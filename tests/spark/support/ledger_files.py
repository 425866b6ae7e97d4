"""Reads ledger files while other processes write them."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from servicebus_pair.core.events import MessageRef, MessagesAccepted, MessagesSyphoned, Route
from servicebus_pair.core.ledger.segments import open_ledger

SECONDS = 240.0  # generous: a cluster starts slowly under load


def written_ledger(location: str | Path) -> str:
    """Write three files of 40 records with two runs; return the name of a fourth one that is not closed."""
    for number, run in enumerate(("monday", "monday", "tuesday: again")):
        refs = tuple(MessageRef(f"{number}-{each}", 9, digest="d") for each in range(30))
        with open_ledger(location, run=run) as ledger:
            ledger.observe(MessagesAccepted("flights", Route.BACKLOG, "q", refs, time.time()))
            ledger.observe(MessagesSyphoned("flights", "q", refs[:10], time.time()))
    unclosed = open_ledger(location, run="monday")
    unclosed.observe(MessagesAccepted("flights", Route.PRIMARY, None, (MessageRef("open", 9),), time.time()))
    unclosed.flush()
    return unclosed.name


def recorded(folder: Path) -> Counter[str]:
    """Return how many messages were sent by each route, in complete lines."""
    return Counter(record["route"] for record in records(folder))


def syphoned(folder: Path) -> int:
    """Return how many messages were moved out of the backlog, in complete lines."""
    return sum(record["kind"] == "syphoned" for record in records(folder))


def records(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the records in complete lines."""
    for file in folder.rglob("*.jsonl"):
        lines = map(json.loads, file.read_bytes().split(b"\n")[:-1])
        yield from (line for line in lines if line["kind"] != "closed")


def wait_until(
    done: Callable[[], bool], *, ended: Callable[[], bool], progress: Callable[[], str] = lambda: ""
) -> None:
    """Wait for other processes.

    :param ended: returns whether they have ended.
    :param progress: describes what has happened so far, for the error.
    """
    deadline = time.monotonic() + SECONDS
    while not done():
        assert not ended(), f"the process ended before {progress()}"
        assert time.monotonic() < deadline, f"timeout after {SECONDS:.0f} s {progress()}"
        time.sleep(0.1)


def wait_for_records(folder: Path, count: int, route: str, *, ended: Callable[[], bool]) -> None:
    wait_until(
        lambda: recorded(folder)[route] >= count,
        ended=ended,
        progress=lambda: f"{recorded(folder)[route]} of {count} messages by {route}",
    )
