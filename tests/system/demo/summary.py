"""Summary of a run: a table for the terminal, and JSON."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.system.demo.comparison import Comparison
from tests.system.demo.reconcile_result import ReconcileResult

MAX_EXAMPLES = 5


@dataclass(frozen=True, slots=True)
class Summary:
    """Results of a run. Counts are messages, times are seconds."""

    sent: int
    primary: int
    diverted: int
    syphoned: int
    delivered: int
    duplicates: int
    duplicates_predicted: int  # of these, by the ledger
    duplicates_in_doubt: int  # stored by the primary, which died before it confirmed them, and then diverted
    lost: int
    seconds: float
    expected: int
    differing_fields: int
    stranded: int
    unexpected: int
    longest_wait: float
    outage_seconds: float
    published_at_restart: float  # fraction of the messages accepted before the primary restarted
    delivered_by_entity: dict[str, int]
    reconciled: ReconcileResult
    reconciled_after_recovery: bool  # Spark reconciled after everything was published and drained
    spooled: int = 0
    spool_expected: bool = False  # the secondary was down, too

    @property
    def duplicates_unexplained(self) -> int:
        """Duplicates explained neither by the ledger nor by the kill."""
        return self.duplicates - self.duplicates_predicted - self.duplicates_in_doubt

    @property
    def failures(self) -> list[str]:
        reasons = {
            f"{self.lost:,} messages were lost": self.lost > 0,
            f"{self.stranded:,} messages did not arrive (dead-lettered or left in the backlog)": self.stranded > 0,
            f"{self.unexpected:,} messages arrived that should not have been sent": self.unexpected > 0,
            f"{self.differing_fields:,} fields differ from what was sent": self.differing_fields > 0,
            f"{self.sent:,} of {self.expected:,} messages were accepted": self.sent != self.expected,
            "no message was diverted, so failover was not tested": self.diverted == 0,
            "no message was spooled, although both namespaces were down": self.spool_expected and not self.spooled,
            f"{self.duplicates_unexplained:,} duplicates are unexplained": self.duplicates_unexplained > 0,
            f"Spark's reconcile job found {self.reconciled.lost:,} lost messages": self.reconciled.lost > 0,
            f"Spark's reconcile job found {self.reconciled.delivered:,} of {self.expected:,} messages delivered": (
                self.reconciled_after_recovery and self.reconciled.delivered != self.expected
            ),
        }
        return [text for text, applies in reasons.items() if applies]


def table(summary: Summary) -> str:
    rows = [
        ("sent", f"{summary.sent:,}"),
        ("sent to the primary", f"{summary.primary:,}"),
        ("diverted to the backlog", f"{summary.diverted:,}"),
        ("kept in the spool", f"{summary.spooled:,}"),
        ("drained to the primary", f"{summary.syphoned:,}"),
        ("delivered", f"{summary.delivered:,}"),
        ("duplicates", f"{summary.duplicates:,}"),
        ("  predicted by the ledger", f"{summary.duplicates_predicted:,}"),
        ("  in doubt at the kill", f"{summary.duplicates_in_doubt:,}"),
        ("lost", f"{summary.lost:,}"),
        ("longest time in the backlog", f"{summary.longest_wait:.1f} s"),
    ]
    name_width = max(len(name) for name, _ in rows)
    value_width = max(len(value) for _, value in rows)
    rule = "-" * (name_width + value_width + 3)
    return "\n".join([rule, *(f"{name:<{name_width}}   {value:>{value_width}}" for name, value in rows), rule])


def findings(comparison: Comparison) -> list[str]:
    lines = [f"lost: {entity} {identity}" for entity, identity in comparison.lost[:MAX_EXAMPLES]]
    lines += [f"in {place}: {key[0]} {key[1]}" for key, place in list(comparison.stranded.items())[:MAX_EXAMPLES]]
    lines += [f"unexpected: {entity} {identity}" for entity, identity in comparison.unexpected[:MAX_EXAMPLES]]
    for field, count in Counter(item.field for item in comparison.differences).items():
        first = next(item for item in comparison.differences if item.field == field)
        what = f"sent {first.expected!r}, arrived {first.actual!r}"
        lines.append(f"{field} differs in {count:,} messages, for example {first.key[0]} {first.key[1]}: {what}")
    lines += [
        f"{count} extra cop{'y' if count == 1 else 'ies'}: {key[0]} {key[1]}"
        for key, count in list(comparison.duplicates.items())[:MAX_EXAMPLES]
    ]
    return lines


def write(summary: Summary, path: Path) -> None:
    path.write_text(json.dumps(asdict(summary), indent=2) + "\n")
