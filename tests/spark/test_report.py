"""The pages for people: they show the figures, only as text, and need nothing else (issue: one self-contained file)."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from servicebus_pair.core.costs import STANDARD_PRICES, Operations
from servicebus_pair.core.reconcile import Totals
from servicebus_pair.spark.plotting import timeline
from servicebus_pair.spark.quantities import count_of, duration, size
from servicebus_pair.spark.reconciliation import LedgerCost, Order
from servicebus_pair.spark.report import render
from servicebus_pair.spark.timing import Flow
from tests.spark.reports import NO_FLOW, NOON, WAITED, found, incident, pages


class Tags(HTMLParser):
    """All elements of a page, and whether each one that was opened was closed."""

    VOID = frozenset({"meta", "line", "polygon"})

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_begins_with_a_verdict_and_the_totals_and_shows_all_else():
    flow = Flow(NOON + 598, 1.0, {"primary": {0: 10, 2: 4}, "diverted": {1: 7}, "syphoned": {2: 7}})
    shown = render(found(WAITED, incidents=[incident(1)]), flow, {"5 s to 10 s": 299, "30 d and more": 1})
    assert shown.index("Nothing is lost.") < shown.index("<dt>sent</dt><dd>1,200</dd>") < shown.index("<svg")
    for text in (
        *("1,500 records", "3 pings", "transfer/9", "not named: other"),
        "2 messages in the backlog can be of no entity",
        "1 message in contoso/x-servicebus-transfer/1 cannot be decoded",
        *("messages per second", "time (UTC), 2026-10-17", "straight to the primary: 14", "diverted to the backlog: 7"),
        *("2026-10-17 12:10:00", "2026-10-17 12:10:45", "99.7 %", "462 d 23 h", "10.0 s on average", "12.5 s"),
        *("3, in 1 session", "1,500 operations by the ledger", "0.00 USD"),
    ):
        assert text in shown, text
    assert shown.count("<polygon") == 3
    assert shown.count('fill="var(--shade)"') == 1


def test_a_loss_is_the_first_thing_that_is_said():
    shown = render(found(Totals(messages=3, sent=3, primary=3, delivered=2, lost=1)), NO_FLOW, {})
    assert '<p class="verdict bad"><b>1 message is lost.</b> Of 3 messages sent: 2 delivered.</p>' in shown


def test_the_page_is_made_without_a_ledger_too():
    shown = render(
        found(Totals(), order={"flights": Order()}, cost=LedgerCost(Operations(), "0.00", STANDARD_PRICES)), NO_FLOW, {}
    )
    assert "There is nothing to judge" in shown
    assert "The ledger tells of no message of these entities." in shown


@pytest.mark.parametrize("name", pages())
def test_names_are_shown_as_text_and_a_page_loads_and_runs_nothing(name: str):
    page = pages()[name]
    tags = Tags(page)
    assert not {"script", "link", "img", "iframe", "object"} & {tag for tag, _ in tags.seen}
    assert not [
        name for _, attributes in tags.seen for name in attributes if name in ("src", "href") or name[:2] == "on"
    ]
    assert not re.search(r"url\(|@import|https?:", page)
    assert "default-src &#x27;none&#x27;" in page or "default-src 'none'" in page


@pytest.mark.parametrize("name", pages())
def test_a_page_is_made_for_light_and_dark_wide_and_narrow(name: str):
    page = pages()[name]
    assert "@media(prefers-color-scheme:dark)" in page
    assert 'content="width=device-width,initial-scale=1"' in page
    assert page.count("<table>") == page.count('<div class="wide"><table>'), "wide tables scroll by themselves"


def test_a_million_incidents_and_messages_make_no_large_page():
    steps = dict.fromkeys(range(241), 5000)
    flow = Flow(NOON, 60.0, {"primary": steps, "diverted": steps, "syphoned": steps})
    shown = render(found(WAITED, incidents=[incident(number) for number in range(20_000)]), flow, {"under 1 s": 10**6})
    assert len(shown) < 400_000
    assert "19,800 more are in the tables of this folder" in shown


@pytest.mark.parametrize(
    ("step", "unit", "label"),
    [(1.0, "second", "12:00:30"), (60.0, "minute", "12:30"), (3600.0, "hour", "18 Oct"), (86_400.0, "day", "03 Dec")],
)
def test_axes_say_their_units_and_have_sensible_ticks(step: float, unit: str, label: str):
    plot = timeline({"primary": {0: 3, 59: 7}}, start=NOON, step=step)
    assert f"messages per {unit}" in plot
    assert f">{label}</span>" in plot
    assert re.findall(r'%">([\d.,]+)</span>', plot) == ["0", "2", "4", "6"]


def test_one_message_alone_has_a_plot_too():
    plot = timeline({"primary": {0: 1}}, start=NOON, step=1.0)
    assert 'points="0.0,' in plot
    assert "1000.0" in plot


def test_quantities_are_said_as_people_say_them():
    assert [duration(each) for each in (None, 0.04, 9.26, 60, 3725, 90_000, 1e9)] == [
        *("", "40 ms", "9.3 s", "1 min", "1 h 2 min", "1 d 1 h", "11,574 d 1 h"),
    ]
    assert [size(each) for each in (None, 12, 1536, 5 * 2**40)] == ["", "12 B", "1.5 KB", "5.0 TB"]
    assert (count_of(1, "ping"), count_of(2000, "ping")) == ("1 ping", "2,000 pings")
