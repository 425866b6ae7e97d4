"""The page for people: it shows the figures, and only as text."""

from __future__ import annotations

from dataclasses import asdict

from servicebus_pair.core.reconcile import Totals
from servicebus_pair.spark.report import Flow, render


def page(flow: Flow, **changes: object) -> str:
    totals = asdict(Totals(messages=1200, sent=1200, primary=900, diverted=300, delivered=1200, duplicates=4))
    summary = {
        "run": "r<1>",
        "totals": totals,
        "entities": {"flights": totals},
        "examples": {"lost": [], "duplicates": ["flights m-1<script>"]},
        "ledger": {"records": 1500, "torn": 1},
        "pings": 3,
        "absent_backlog_queues": ["contoso/x-servicebus-transfer/9"],
        "unexamined": {"other": 5},
        **changes,
    }
    return render(summary, flow)


def test_the_page_shows_totals_notes_and_flow():
    shown = page(Flow(0.0, 1.0, {"primary": {0: 10, 2: 4}, "diverted": {1: 7}}))
    for text in ("Nothing is lost.", "<td>1,200</td>", "1,500 records", "3 pings", "transfer/9", "not named: other"):
        assert text in shown
    assert shown.count("<polyline") == 2


def test_the_page_is_made_without_a_ledger_too():
    assert "The ledger is empty." in page(Flow(0.0, 1.0, {}))


def test_names_are_shown_as_text():
    shown = page(Flow(0.0, 1.0, {}))
    assert "<script>" not in shown
    assert "r&lt;1&gt;" in shown
