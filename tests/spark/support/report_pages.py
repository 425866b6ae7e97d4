"""Sample results of the Spark jobs, and their HTML reports."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from servicebus_pair.core.ledger.incidents import Incident
from servicebus_pair.core.ledger.judgement import Judgement
from servicebus_pair.core.ledger.totals import Totals
from servicebus_pair.core.pricing import STANDARD_PRICES, Operations
from servicebus_pair.spark.report import cost_report as cost_page
from servicebus_pair.spark.report import profile_report as profile_page
from servicebus_pair.spark.report.reconcile_report import render
from servicebus_pair.spark.report.reconcile_result import (
    IncidentResult,
    LedgerCost,
    LedgerCounts,
    Reconciliation,
    SessionOrder,
    WaitPercentiles,
)
from servicebus_pair.spark.report.time_series import TimeSeries

EVIL = "\u202e\x00<script>alert('1')</script>\" onload=alert(1) x=\""
NOON = 1_792_238_400.0  # 2026-10-17 12:00:00 UTC
NO_FLOW = TimeSeries(0.0, 1.0, {})
SENT = Totals(messages=1200, sent=1200, primary=900, diverted=300, delivered=1200, duplicates=4)
WAITED = Totals(**{**asdict(SENT), "waited": 300, "wait_seconds": 3000.0, "longest_wait_seconds": 40_000_000.0})


def found(totals: Totals = SENT, **changes: Any) -> dict[str, Any]:
    given: dict[str, Any] = {
        "run": "r<1>",
        "judgement": Judgement.LOST if totals.lost or totals.altered else Judgement.PROVEN,
        "reasons": (),
        "entities": {"flights": totals},
        "waits": {"flights": WaitPercentiles(10.0, 12.5)},
        "order": {"flights": SessionOrder(7, 900, 1, 3)},
        "incidents": [],
        "cost": LedgerCost(Operations(sends=1200, diverts=300), "0.00", STANDARD_PRICES),
        "ledger": LedgerCounts(1500, 1),
        "absent": ("contoso/x-servicebus-transfer/9",),
        "unreadable": {"contoso/x-servicebus-transfer/1": 1},
        "pings": 3,
        "unexamined": {"other": 5},
        "strangers": {"unknown": 2},
        "unaddressed": 2,
        "examples": {"lost": (), "duplicates": (f"flights m-1{EVIL}",)},
        "seconds": 1.5,
    }
    return Reconciliation(**{**given, **changes}).to_json()


def incident(number: int) -> IncidentResult:
    began = NOON + 600 * number
    return IncidentResult(EVIL, Incident(number, began, began + 30), WAITED, WaitPercentiles(10.0, 12.5), began + 45, 3)


def pages() -> dict[str, str]:
    """Return a page of each kind, with names that contain HTML."""
    row = {"destination": EVIL, "messages": 1, "bytes": 3, "largest_bytes": 3, "subQueue": "deadLetter"}
    row |= {"oldest_seconds": 1.0, "median_seconds": 1.0, "newest_seconds": 1.0}
    classes = [{"subQueue": "deadLetter", "class": "under 1 KB", "messages": 1}]
    backlog = {"at": NOON, "queues": [EVIL], "messages": 0, "dead_letters": 1, "destinations": [row]}
    backlog |= {"ages": classes, "sizes": classes}
    backlog |= {"reasons": [{"destination": EVIL, "reason": EVIL, "messages": 1, "example": EVIL}]}
    billed = {"total": 3, "billable": 0, "amount": "0.00"}
    costs = {"first": "2026-01-31", "last": "2026-02-01", "operations": {"sends": 3}, "total": 3}
    costs |= {"by_day": {"2026-01-31": 3}, "quiet_day": {"empty_receives": 192}, "quiet_day_total": 192}
    costs |= {"months": [{"month": "2026-01", "days": 2, "measured": billed, "quiet": billed}]}
    costs |= {"prices": {"as_of": "2026-11-20", "currency": EVIL}, "ledger": {"records": 3, "torn": 0}}
    evil: dict[str, Any] = {
        "run": EVIL,
        "entities": {EVIL: WAITED},
        "waits": {EVIL: WaitPercentiles()},
        "order": {EVIL: SessionOrder()},
    }
    steps = {number: 7 * number for number in range(60)}
    return {
        "reconcile": render(
            found(**evil, incidents=[incident(1)], unexamined={EVIL: 1}, strangers={EVIL: 1}, reasons=(EVIL,)),
            TimeSeries(NOON + 590, 1.0, {"primary": steps}),
            {"20 min to 30 min": 5, "30 d and more": 1},
        ),
        "profile": profile_page.render(backlog, TimeSeries(NOON, 1.0, {EVIL: {0: 1}})),
        "cost": cost_page.render(costs),
        "nothing": cost_page.render({"first": None}),
    }
