"""The ledger as the demo reads it, while it grows and at the end.

Each line is one JSON object: ``kind`` is ``sent`` (a send was accepted, by ``route`` primary or backlog) or
``syphoned`` (the primary has confirmed a message of the backlog), for message ``id`` of ``entity``, ``at`` seconds
since the epoch.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from tests.system.demo.compare import Key

__all__ = ["DIVERTED", "PRIMARY", "SYPHONED", "Figures", "LedgerReader", "Record", "Tally"]

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
    """What a ledger says: distinct messages, by the way they went.

    A message that a retried task sent again counts once for each way that it went, and once in ``sent``.
    """

    sent: int
    primary: int
    diverted: int
    syphoned: int
    repeated: int  # copies at their entity beyond the first, which records tell of
    longest_wait: float  # seconds from accepted to confirmed by the primary, of the message that waited longest


class Tally:
    """Figures that grow with each record: a year of flights is too much to be counted anew twice a second."""

    def __init__(self) -> None:
        self._moments: dict[str, dict[Key, float]] = {PRIMARY: {}, DIVERTED: {}, SYPHONED: {}}
        self._sent: set[Key] = set()
        self._arrived: set[Key] = set()
        self._arrivals = 0
        self._longest_wait = 0.0

    def add(self, record: Record) -> None:
        """Count a record."""
        key = record.entity, record.message_id
        self._moments[record.way].setdefault(key, record.at)
        if record.way != SYPHONED:
            self._sent.add(key)
        if record.way != DIVERTED:
            self._arrived.add(key)
            self._arrivals += 1
        accepted, arrived = self._moments[DIVERTED].get(key), self._moments[SYPHONED].get(key)
        if record.way != PRIMARY and accepted is not None and arrived is not None:
            self._longest_wait = max(self._longest_wait, arrived - accepted)

    def was_diverted(self, key: Key) -> bool:
        """Tell whether a message went to the backlog."""
        return key in self._moments[DIVERTED]

    @property
    def figures(self) -> Figures:
        """What has been counted so far."""
        return Figures(
            sent=len(self._sent),
            primary=len(self._moments[PRIMARY]),
            diverted=len(self._moments[DIVERTED]),
            syphoned=len(self._moments[SYPHONED]),
            repeated=self._arrivals - len(self._arrived),
            longest_wait=self._longest_wait,
        )


class LedgerReader:
    """Reads a folder of ledger files again and again, each line once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._offsets: Counter[Path] = Counter()
        self.records: list[Record] = []
        self.tally = Tally()

    def read(self) -> None:
        """Add the records of all lines that have been completed since the last call."""
        for path in sorted(self._folder.glob("**/*.jsonl")):
            with path.open("rb") as file:
                file.seek(self._offsets[path])
                data = file.read()
            complete = data[: data.rfind(b"\n") + 1]
            self._offsets[path] += len(complete)
            for line in complete.splitlines():
                self._add(record_of(line))

    def _add(self, record: Record) -> None:
        self.records.append(record)
        self.tally.add(record)


def record_of(line: bytes) -> Record:
    """Return what a line of the ledger says."""
    item = json.loads(line)
    way = SYPHONED if item["kind"] == "syphoned" else DIVERTED if item["route"] == "backlog" else PRIMARY
    return Record(way, sys.intern(item["entity"].lower()), item["id"], item["at"])
