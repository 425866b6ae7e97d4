"""The ledger as the demo reads it, while it grows and at the end.

Each line is one JSON object: ``kind`` is ``sent`` (a send was accepted, by ``route`` primary or backlog) or
``syphoned`` (the primary has confirmed a message of the backlog), for message ``id`` of ``entity``, ``at`` seconds
since the epoch.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

__all__ = ["DIVERTED", "PRIMARY", "SYPHONED", "Figures", "LedgerReader", "Record", "figures"]

PRIMARY = "primary"
DIVERTED = "diverted"
SYPHONED = "syphoned"


@dataclass(frozen=True, slots=True)
class Record:
    """One accepted or syphoned message."""

    way: str  # PRIMARY, DIVERTED or SYPHONED
    entity: str
    message_id: str
    at: float  # seconds since the epoch


@dataclass(frozen=True, slots=True)
class Figures:
    """What a ledger says: distinct messages, by the way they went."""

    sent: int
    primary: int
    diverted: int
    syphoned: int
    longest_wait: float  # seconds from accepted to confirmed by the primary, of the message that waited longest


class LedgerReader:
    """Reads a folder of ledger files again and again, each line once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._offsets: Counter[Path] = Counter()
        self.records: list[Record] = []

    def read(self) -> None:
        """Add the records of all lines that have been completed since the last call."""
        for path in sorted(self._folder.glob("**/*.jsonl")):
            with path.open("rb") as file:
                file.seek(self._offsets[path])
                data = file.read()
            complete = data[: data.rfind(b"\n") + 1]
            self._offsets[path] += len(complete)
            self.records.extend(record_of(line) for line in complete.splitlines())


def record_of(line: bytes) -> Record:
    """Return what a line of the ledger says."""
    item = json.loads(line)
    way = SYPHONED if item["kind"] == "syphoned" else DIVERTED if item["route"] == "backlog" else PRIMARY
    return Record(way, item["entity"].lower(), item["id"], item["at"])


def figures(records: Iterable[Record]) -> Figures:
    """Return the figures of a whole ledger.

    A message that a retried task sent again counts once for each way that it went, and once in ``sent``.
    """
    moments: dict[str, dict[tuple[str, str], float]] = {PRIMARY: {}, DIVERTED: {}, SYPHONED: {}}
    for record in records:
        moments[record.way].setdefault((record.entity, record.message_id), record.at)
    accepted, arrived = moments[DIVERTED], moments[SYPHONED]
    waits = [at - accepted[key] for key, at in arrived.items() if key in accepted]
    return Figures(
        sent=len(moments[PRIMARY].keys() | accepted.keys()),
        primary=len(moments[PRIMARY]),
        diverted=len(accepted),
        syphoned=len(arrived),
        longest_wait=max(waits, default=0.0),
    )
