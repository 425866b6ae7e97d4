"""The reconcile report shows the verdict first, and its size is bounded."""

from __future__ import annotations

import pytest

from servicebus_pair.core.ledger.judgement import Judgement
from servicebus_pair.core.ledger.totals import Totals
from servicebus_pair.core.pricing import STANDARD_PRICES, Operations
from servicebus_pair.spark.report.reconcile_report import render
from servicebus_pair.spark.report.reconcile_result import LedgerCost, SessionOrder
from servicebus_pair.spark.report.time_series import TimeSeries
from tests.spark.support.report_pages import NO_FLOW, NOON, SENT, WAITED, found, incident


def test_report_starts_with_verdict_and_totals():
    flow = TimeSeries(NOON + 598, 1.0, {"primary": {0: 10, 2: 4}, "diverted": {1: 7}, "syphoned": {2: 7}})
    page = render(found(WAITED, incidents=[incident(1)]), flow, {"5 s to 10 s": 299, "30 d and more": 1})
    assert page.index("Nothing is lost.") < page.index("<dt>sent</dt><dd>1,200</dd>") < page.index("<svg")
    for text in (
        *("1,500 records", "3 pings", "transfer/9", "not selected: other", "also holds messages for unknown"),
        "2 messages in the backlog without a destination entity",
        "1 message in contoso/x-servicebus-transfer/1 cannot be decoded",
        *("messages per second", "time (UTC), 2026-10-17", "sent to the primary: 14", "diverted to the backlog: 7"),
        *("2026-10-17 12:10:00", "2026-10-17 12:10:45", "99.7 %", "462 d 23 h", "10.0 s on average", "12.5 s"),
        *(
            "3 arrived after a later message of their session, in 1 session",
            "1,500 operations by the ledger",
            "0.00 USD",
        ),
    ):
        assert text in page, text
    assert page.count("<polygon") == 3
    assert page.count('fill="var(--shade)"') == 1


def test_report_names_a_loss_first():
    page = render(found(Totals(messages=3, sent=3, primary=3, delivered=2, lost=1)), NO_FLOW, {})
    assert '<p class="verdict bad"><b>1 message is lost.</b> Of 3 messages sent: 2 delivered.</p>' in page


@pytest.mark.parametrize(
    ("totals", "sentence"),
    [
        (SENT, "Not proven: the messages that were judged are not lost, but others were not judged."),
        (Totals(unrecorded=5, messages=5), "Not proven: no message was judged."),
    ],
)
def test_report_says_what_is_not_proven_in_a_color_of_its_own(totals: Totals, sentence: str):
    page = render(
        found(totals, judgement=Judgement.NOT_PROVEN, reasons=("ledger file a.jsonl is missing",)), NO_FLOW, {}
    )
    assert f'<p class="verdict open"><b>{sentence}</b>' in page
    assert "<p>ledger file a.jsonl is missing</p>" in page
    assert "Nothing is lost" not in page


def test_report_of_consumed_messages_says_so_and_is_no_loss():
    page = render(found(Totals(messages=3, sent=3, primary=3, delivered=1, consumed=2)), NO_FLOW, {})
    assert (
        '<p class="verdict good"><b>Nothing is lost.</b> Of 3 messages sent: 1 delivered, 2 accepted by the primary, '
        "and consumed or expired since.</p>" in page
    )


def test_report_names_changed_bodies_first():
    page = render(found(Totals(messages=3, sent=3, primary=3, delivered=3, altered=2)), NO_FLOW, {})
    assert '<p class="verdict bad"><b>2 messages are altered.</b>' in page


def test_report_without_ledger_records():
    page = render(
        found(
            Totals(),
            order={"flights": SessionOrder()},
            cost=LedgerCost(Operations(), "0.00", STANDARD_PRICES),
            judgement=Judgement.NOT_PROVEN,
        ),
        NO_FLOW,
        {},
    )
    assert "Not proven: no message was judged." in page
    assert "The ledger has no records of these entities." in page


def test_report_size_is_bounded():
    steps = dict.fromkeys(range(241), 5000)
    flow = TimeSeries(NOON, 60.0, {"primary": steps, "diverted": steps, "syphoned": steps})
    page = render(found(WAITED, incidents=[incident(number) for number in range(20_000)]), flow, {"under 1 s": 10**6})
    assert len(page) < 400_000
    assert "19,800 more are in the tables of this folder" in page
