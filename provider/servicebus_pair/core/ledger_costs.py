"""What a ledger says of operations (SPEC sections 8 and 9): a lower bound of what was billed.

A ledger knows what was accepted and moved. It does not know attempts that failed, pings, empty receives,
lock renewals and administration, nor what consumers receive: those are in a meter, or planned.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from servicebus_pair.core.costs import BILLED_BYTES, Operations
from servicebus_pair.core.ledger_reading import read_records

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

    :param folder: the ledger's folder; files in folders below it count too.
    :param since: from when, with a time zone.
    :param until: up to when, not included.
    :raises ConfigurationError: there is no such folder, or a record is of a version that this does not know.
    """
    counts: Counter[str] = Counter()
    records = unreadable = 0
    first, end = since.timestamp(), until.timestamp()
    for record in read_records(folder):
        if record is None:
            unreadable += 1
        elif first <= record.at < end:
            records += 1
            counts.update(operations_of(record.kind, record.route, size_bytes=record.size_bytes))
    return LedgerCount(Operations(**counts), records, unreadable)


def operations_of(kind: str, route: str, *, size_bytes: int) -> Iterable[str]:
    """Answer what one record stands for: names of ``Operations``, one for each operation.

    :param kind: ``sent`` or ``syphoned``.
    :param route: ``primary`` or ``backlog``.
    """
    further = max(0, size_bytes - 1) // BILLED_BYTES
    if kind == "syphoned":
        return ("receives", "settlements", "sends", *("further_increments",) * (2 * further))
    return ("sends" if route == "primary" else "diverts", *("further_increments",) * further)
