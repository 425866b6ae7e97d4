"""Judge whether a reconciliation proves that nothing was lost (SPEC section 9). Pure.

==============  =====================================================================================
judgement
==============  =====================================================================================
``LOST``        a message is lost, or a copy has another body than its sender recorded
``NOT_PROVEN``  something that could hide a loss was not examined, or nothing was judged
``PROVEN``      every message of the ledger was judged, and none is lost
==============  =====================================================================================
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from servicebus_pair.core.ledger.totals import Totals


class Judgement(StrEnum):
    """What a reconciliation found; see the table in this module."""

    PROVEN = "proven"
    LOST = "lost"
    NOT_PROVEN = "not proven"


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a reconciliation could examine of what it was to judge.

    :param run: the run to judge; ``None`` for all.
    :param recorded: the ledger records a send of it to an examined entity.
    :param similar_runs: runs of the ledger with a similar name.
    :param unexamined: number of recorded messages by entity, for entities that were not examined.
    :param unclosed: by ledger file that no writer closed, the number of messages that no closed file records.
    :param damaged: by ledger file, the records it holds and the number it was closed with.
    :param missing: by ledger file that the manifest names and the ledger lacks, its records.
    :param short: by entity, the messages of the manifest and the fewer records of the ledger.
    :param unseen_spools: by name of a spool that was not examined, the number of messages that wait in it.
    :param without_receipt: consumed messages without a receipt, of entities for which receipts exist.
    """

    run: str | None = None
    recorded: bool = True
    similar_runs: tuple[str, ...] = ()
    unexamined: Mapping[str, int] = field(default_factory=dict)
    unclosed: Mapping[str, int] = field(default_factory=dict)
    damaged: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    missing: Mapping[str, int] = field(default_factory=dict)
    short: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    unseen_spools: Mapping[str, int] = field(default_factory=dict)
    without_receipt: int = 0


def judge(totals: Totals, evidence: Evidence) -> tuple[Judgement, tuple[str, ...]]:
    """Return the judgement, and why: what is lost first, then what keeps the rest from being proven."""
    losses, gaps = tuple(_losses(totals)), tuple(_gaps(totals, evidence))
    if losses:
        return Judgement.LOST, (*losses, *gaps)
    return (Judgement.NOT_PROVEN, gaps) if gaps else (Judgement.PROVEN, ())


def _losses(totals: Totals) -> Iterator[str]:
    if totals.lost:
        yield f"{totals.lost} {_messages_are(totals.lost)} lost: diverted, in no backlog queue, and never moved"
    if totals.altered:
        altered = f"{totals.altered} {_messages_are(totals.altered)} altered"
        yield f"{altered}: a copy has another body, or another message its id"


def _gaps(totals: Totals, evidence: Evidence) -> Iterator[str]:
    if not totals.sent or (evidence.run is not None and not evidence.recorded):
        yield _nothing_judged(evidence)
    for entity, count in evidence.unexamined.items():
        yield f"entity {entity} was not examined, to which {count} recorded messages were sent: name it"
    for file, count in evidence.unclosed.items():
        yield (
            f"ledger file {file} is not closed: its writer was killed or still runs, and no closed file records "
            f"{count} of its messages"
        )
    for file, (held, closed) in evidence.damaged.items():
        yield f"ledger file {file} holds {held} of the {closed} records that it was closed with"
    for file, count in evidence.missing.items():
        yield f"ledger file {file} is missing, with {count} records according to the manifest"
    for entity, (manifest, ledger) in evidence.short.items():
        yield f"the manifest counts {manifest} messages to {entity}, the ledger has {ledger} records of them"
    for spool, count in evidence.unseen_spools.items():
        where = f"spool {spool}" if spool else "a spool that their records do not name"
        yield f"{count} {_messages_are(count)} in {where}, which cannot be seen from here: empty it where it is"
    seen = totals.spooled - sum(evidence.unseen_spools.values())
    if seen > 0:
        yield f"{seen} {_messages_are(seen)} in the spool: empty it first"
    if evidence.without_receipt:
        yield f"{evidence.without_receipt} consumed or expired messages have no receipt"


def _nothing_judged(evidence: Evidence) -> str:
    if evidence.run is None:
        return "the ledger records no message that was sent to these entities"
    hint = f": did you mean {' or '.join(map(repr, evidence.similar_runs))}?" if evidence.similar_runs else ""
    return f"the ledger has no records of run {evidence.run!r} for these entities{hint}"


def _messages_are(count: int) -> str:
    return "message is" if count == 1 else "messages are"
