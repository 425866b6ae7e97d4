"""The figures of a run: a table for the terminal, and the same and more as JSON."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from tests.system.demo.compare import Comparison
    from tests.system.demo.ledger import Figures
    from tests.system.demo.proof import Proof

__all__ = ["Summary", "summarize", "table", "write"]

EXAMPLES = 5


@dataclass(frozen=True, slots=True)
class Summary:
    """What a run came to. Counts are messages, times are seconds."""

    sent: int
    primary: int
    diverted: int
    syphoned: int
    delivered: int
    duplicates: int
    duplicates_predicted: int  # of these, by the ledger
    duplicates_in_doubt: int  # stored by the primary as it was killed, which could no longer say so, and diverted then
    lost: int
    seconds: float
    expected: int
    differing_fields: int
    stranded: int
    strangers: int
    longest_wait: float
    outage_seconds: float
    published_at_restart: float  # the part of the messages that had been accepted when the primary came back
    delivered_by_entity: dict[str, int]
    reconciled: Proof
    reconciled_at_the_end: bool  # when all had been published and brought home

    @property
    def duplicates_unexplained(self) -> int:
        """Copies beyond the first that neither the ledger nor the kill accounts for."""
        return self.duplicates - self.duplicates_predicted - self.duplicates_in_doubt

    @property
    def failures(self) -> list[str]:
        """What keeps the run from being a success, in words; nothing when it is one."""
        reasons = {
            f"{self.lost:,} messages are lost": self.lost > 0,
            f"{self.stranded:,} messages have not arrived (dead-lettered or left in the backlog)": self.stranded > 0,
            f"{self.strangers:,} messages arrived that were never to be sent": self.strangers > 0,
            f"{self.differing_fields:,} fields are not as they were sent": self.differing_fields > 0,
            f"{self.sent:,} messages were accepted of {self.expected:,} to be sent": self.sent != self.expected,
            "no message was diverted, so nothing was proven": self.diverted == 0,
            f"{self.duplicates_unexplained:,} duplicates were not to be expected": self.duplicates_unexplained > 0,
            f"Spark's reconcile found {self.reconciled.lost:,} messages lost": self.reconciled.lost > 0,
            f"Spark's reconcile found {self.reconciled.delivered:,} messages delivered of {self.expected:,}": (
                self.reconciled_at_the_end and self.reconciled.delivered != self.expected
            ),
        }
        return [text for text, applies in reasons.items() if applies]


def summarize(
    figures: Figures,
    comparison: Comparison,
    *,
    seconds: float,
    outage_seconds: float,
    published_at_restart: float,
    delivered_by_entity: dict[str, int],
    duplicates_in_doubt: int,
    reconciled: Proof,
    reconciled_at_the_end: bool,
) -> Summary:
    """Bring together what the ledger says and what the queues hold."""
    return Summary(
        sent=figures.sent,
        primary=figures.primary,
        diverted=figures.diverted,
        syphoned=figures.syphoned,
        delivered=comparison.delivered,
        duplicates=sum(comparison.duplicates.values()),
        duplicates_predicted=figures.repeated,
        duplicates_in_doubt=duplicates_in_doubt,
        lost=len(comparison.lost),
        seconds=round(seconds, 1),
        expected=comparison.expected,
        differing_fields=len(comparison.differences),
        stranded=len(comparison.stranded),
        strangers=len(comparison.strangers),
        longest_wait=round(figures.longest_wait, 1),
        outage_seconds=round(outage_seconds, 1),
        published_at_restart=round(published_at_restart, 2),
        delivered_by_entity=delivered_by_entity,
        reconciled=reconciled,
        reconciled_at_the_end=reconciled_at_the_end,
    )


def table(summary: Summary) -> str:
    """Return the figures that matter as lines of equal width."""
    rows = [
        ("sent", f"{summary.sent:,}"),
        ("straight to the primary", f"{summary.primary:,}"),
        ("diverted", f"{summary.diverted:,}"),
        ("syphoned", f"{summary.syphoned:,}"),
        ("delivered", f"{summary.delivered:,}"),
        ("duplicates", f"{summary.duplicates:,}"),
        ("of these predicted by the ledger", f"{summary.duplicates_predicted:,}"),
        ("of these in doubt at the kill", f"{summary.duplicates_in_doubt:,}"),
        ("lost", f"{summary.lost:,}"),
        ("longest wait", f"{summary.longest_wait:.1f} s"),
    ]
    wide = max(len(name) for name, _ in rows)
    right = max(len(value) for _, value in rows)
    rule = "-" * (wide + right + 3)
    return "\n".join([rule, *(f"{name:<{wide}}   {value:>{right}}" for name, value in rows), rule])


def findings(comparison: Comparison) -> list[str]:
    """Return what is wrong, message by message, the first few of each kind."""
    lines = [f"lost: {entity} {identity}" for entity, identity in comparison.lost[:EXAMPLES]]
    lines += [f"in {place}: {key[0]} {key[1]}" for key, place in list(comparison.stranded.items())[:EXAMPLES]]
    lines += [f"never to be sent: {entity} {identity}" for entity, identity in comparison.strangers[:EXAMPLES]]
    for field, count in Counter(item.field for item in comparison.differences).items():
        first = next(item for item in comparison.differences if item.field == field)
        what = f"sent {first.expected!r}, arrived {first.actual!r}"
        lines.append(f"{field} differs in {count:,} messages, such as {first.key[0]} {first.key[1]}: {what}")
    lines += [
        f"{count} extra cop{'y' if count == 1 else 'ies'}: {key[0]} {key[1]}"
        for key, count in list(comparison.duplicates.items())[:EXAMPLES]
    ]
    return lines


def write(summary: Summary, path: Path) -> None:
    """Write the figures as JSON."""
    path.write_text(json.dumps(asdict(summary), indent=2) + "\n")
