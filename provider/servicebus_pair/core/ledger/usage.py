"""Count operations from a ledger (SPEC sections 8 and 9): a lower bound of the billed operations.

A ledger records acceptances and moves. Failed attempts, pings, empty receives, lock renewals, administration and the
receives of consumers are not in it; the meter counts those of the pair.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from servicebus_pair.core.ledger.reader import read_records
from servicebus_pair.core.model.pricing import Operations, further_increments


@dataclass(frozen=True, slots=True)
class LedgerCount:
    """Operations counted from a ledger.

    :param records: number of counted records.
    :param unreadable: number of unreadable lines, such as the truncated last line of a killed process; what is not
        read of a file counts as one.
    """

    operations: Operations
    records: int
    unreadable: int


def count_ledger(folder: str | os.PathLike[str], *, since: datetime, until: datetime) -> LedgerCount:
    """Count the operations that the records of a period represent.

    A message that was sent, or left the spool, is a send or a divert; a moved one is a receive and a settlement on the
    backlog and a send to the primary; each plus its further 64 KB increments.

    :param folder: folder of the ledger; subfolders are included.
    :param since: start of the period, with time zone.
    :param until: end of the period, exclusive.
    :raises ConfigurationError: the folder does not exist, or a record has an unknown version.
    """
    counts: Counter[str] = Counter()
    records = unreadable = 0
    first, end = since.timestamp(), until.timestamp()
    for record in read_records(folder):
        if record is None:
            unreadable += 1
        elif first <= record.at < end:
            records += 1
            counts.update(operations_for_record(record.kind, record.route, size_bytes=record.size_bytes))
    return LedgerCount(Operations(**counts), records, unreadable)


def operations_for_record(kind: str, route: str, *, size_bytes: int) -> Mapping[str, int]:
    """Return the operations that a record represents, by field of ``Operations``.

    :param kind: ``sent``, ``syphoned`` or ``unspooled``.
    :param route: ``primary``, ``backlog`` or ``spooled``.
    """
    further = further_increments(size_bytes)
    match kind, route:
        case "syphoned", _:
            return {"receives": 1, "settlements": 1, "sends": 1, "further_increments": 2 * further}
        case _, "spooled":
            return {}
        case _, "primary":
            return {"sends": 1, "further_increments": further}
    return {"diverts": 1, "further_increments": further}
