"""What a ledger says of operations (SPEC sections 8 and 9): a lower bound of what was billed.

A ledger knows what was accepted and moved. It does not know attempts that failed, pings, empty receives,
lock renewals and administration, nor what consumers receive: those are in a meter, or planned.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from servicebus_pair.core.costs import BILLED_BYTES, Operations
from servicebus_pair.core.errors import ConfigurationError

__all__ = ["LedgerCount", "count_ledger", "operations_of"]


@dataclass(frozen=True, slots=True)
class LedgerCount:
    """The operations of a ledger.

    :param records: lines that were counted.
    :param unreadable: lines that are no records, such as the last one of a writer that was killed.
    """

    operations: Operations
    records: int
    unreadable: int


def count_ledger(folder: str | os.PathLike[str], *, since: datetime, until: datetime) -> LedgerCount:
    """Count the operations that the records of a time stand for, line by line.

    A message sent is a send or a divert; one moved is a receive and a settlement in the backlog, and a
    send to the primary; each with its further 64 KB.

    :param folder: the ledger's folder.
    :param since: from when, with a time zone.
    :param until: up to when, not included.
    :raises ConfigurationError: there is no such folder.
    """
    directory = Path(folder)
    if not directory.is_dir():
        raise ConfigurationError(f"ledger {os.fspath(folder)!r} is no folder: it must be where ledgers were written")
    counts: Counter[str] = Counter()
    records = unreadable = 0
    first, end = since.timestamp(), until.timestamp()
    for record in _records(directory):
        if record is None:
            unreadable += 1
        elif first <= record["at"] < end:
            records += 1
            counts.update(operations_of(record["kind"], record["route"], size_bytes=record["bytes"]))
    return LedgerCount(Operations(**counts), records, unreadable)


def _records(directory: Path) -> Iterator[Mapping[str, Any] | None]:
    for file in sorted(directory.glob("*.jsonl")):
        with file.open("rb") as lines:
            yield from map(_record, lines)


def _record(line: bytes) -> Mapping[str, Any] | None:
    try:
        record = json.loads(line)
    except ValueError:
        return None
    if not isinstance(record, dict) or record.get("kind") not in ("sent", "syphoned"):
        return None
    numbers = (
        record.get("route") in ("primary", "backlog")
        and isinstance(record.get("at"), int | float)
        and isinstance(record.get("bytes"), int)
    )
    return record if numbers else None


def operations_of(kind: str, route: str, *, size_bytes: int) -> Iterable[str]:
    """Answer what one record stands for: names of ``Operations``, one for each operation.

    :param kind: ``sent`` or ``syphoned``.
    :param route: ``primary`` or ``backlog``.
    """
    further = max(0, size_bytes - 1) // BILLED_BYTES
    if kind == "syphoned":
        return ("receives", "settlements", "sends", *("further_increments",) * (2 * further))
    return ("sends" if route == "primary" else "diverts", *("further_increments",) * further)
