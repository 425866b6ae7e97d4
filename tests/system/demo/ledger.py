"""Reads the ledger while it grows.

Each line is a JSON object: ``kind`` is ``sent`` (accepted, by ``route`` primary, backlog or spooled), ``syphoned`` (the
primary accepted a message of the backlog) or ``unspooled`` (``route`` accepted a message of the spool), for message
``id`` of ``entity``, ``at`` seconds since the epoch.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tests.system.demo.comparison import Key

PRIMARY = "primary"
DIVERTED = "diverted"
SPOOLED = "spooled"
SYPHONED = "syphoned"


@dataclass(frozen=True, slots=True)
class Record:
    route: str  # PRIMARY, DIVERTED, SPOOLED or SYPHONED
    entity: str
    message_id: str
    at: float  # seconds since the epoch


@dataclass(frozen=True, slots=True)
class Counts:
    """Distinct messages in the ledger, by route.

    A message that a retried task sent again counts once per route, and once in ``sent``.
    """

    sent: int
    primary: int
    diverted: int
    syphoned: int
    repeated: int  # copies at the entity beyond the first
    longest_wait: float  # longest time from diverted or spooled to syphoned, seconds
    spooled: int = 0


class Tally:
    """Incremental counts: recounting a year of flights twice a second would be too slow."""

    def __init__(self) -> None:
        self._times: dict[str, dict[Key, float]] = {PRIMARY: {}, DIVERTED: {}, SPOOLED: {}, SYPHONED: {}}
        self._sent: set[Key] = set()
        self._arrived: set[Key] = set()
        self._arrivals = 0
        self._longest_wait = 0.0

    def add(self, record: Record) -> None:
        key = record.entity, record.message_id
        self._times[record.route].setdefault(key, record.at)
        if record.route != SYPHONED:
            self._sent.add(key)
        if record.route not in {DIVERTED, SPOOLED}:
            self._arrived.add(key)
            self._arrivals += 1
        accepted = self._times[DIVERTED].get(key, self._times[SPOOLED].get(key))
        arrived = self._times[SYPHONED].get(key)
        if record.route != PRIMARY and accepted is not None and arrived is not None:
            self._longest_wait = max(self._longest_wait, arrived - accepted)

    def was_diverted(self, key: Key) -> bool:
        return key in self._times[DIVERTED] or key in self._times[SPOOLED]

    @property
    def counts(self) -> Counts:
        return Counts(
            sent=len(self._sent),
            primary=len(self._times[PRIMARY]),
            diverted=len(self._times[DIVERTED]),
            syphoned=len(self._times[SYPHONED]),
            repeated=self._arrivals - len(self._arrived),
            longest_wait=self._longest_wait,
            spooled=len(self._times[SPOOLED]),
        )


class LedgerReader:
    """Reads a folder of ledger files repeatedly, each line once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._offsets: Counter[Path] = Counter()
        self.records: list[Record] = []
        self.tally = Tally()

    def read(self) -> None:
        """Add the records of all lines completed since the last call."""
        for path in sorted(self._folder.glob("**/*.jsonl")):
            with path.open("rb") as file:
                file.seek(self._offsets[path])
                data = file.read()
            complete = data[: data.rfind(b"\n") + 1]
            self._offsets[path] += len(complete)
            for record in filter(None, map(record_of, complete.splitlines())):
                self.records.append(record)
                self.tally.add(record)


def record_of(line: bytes) -> Record | None:
    item = json.loads(line)
    if item["kind"] == "closed":
        return None
    if item["kind"] == "unspooled" and item["route"] == "backlog":
        return None  # on its way: a syphon moves it from there
    routes = {"primary": PRIMARY, "backlog": DIVERTED, "spooled": SPOOLED}
    route = routes[item["route"]] if item["kind"] == "sent" else SYPHONED
    return Record(route, sys.intern(item["entity"].lower()), item["id"], item["at"])
