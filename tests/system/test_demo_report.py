from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.system.demo.kill_targets import restart_is_due
from tests.system.demo.ledger import Counts, LedgerReader
from tests.system.demo.reconcile_result import ReconcileResult, read_latest_result
from tests.system.demo.summary import Summary

RECONCILED = ReconcileResult(delivered=36_000, lost=0, duplicates=3, duplicates_predicted=2, report="report.html")
GOOD = Summary(
    sent=36_000,
    primary=20_000,
    diverted=16_000,
    syphoned=16_000,
    delivered=36_000,
    duplicates=3,
    duplicates_predicted=2,
    duplicates_in_doubt=1,
    lost=0,
    seconds=200.0,
    expected=36_000,
    differing_fields=0,
    stranded=0,
    unexpected=0,
    longest_wait=61.5,
    outage_seconds=40.0,
    published_at_restart=0.7,
    delivered_by_entity={},
    reconciled=RECONCILED,
    reconciled_after_recovery=True,
)


def line(kind: str, message_id: str, *, route: str = "primary", at: float = 0.0) -> str:
    record = {"v": 1, "kind": kind, "id": message_id, "entity": "Flights", "route": route, "queue": None, "bytes": 9}
    return json.dumps(record | {"at": at, "run": "r"}) + "\n"


def test_incomplete_last_line_is_read_when_completed(tmp_path: Path):
    reader = LedgerReader(tmp_path)
    file = tmp_path / "driver.jsonl"
    complete, partial = line("sent", "a"), line("sent", "b")
    file.write_text(complete + partial[:20])
    reader.read()
    assert [record.message_id for record in reader.records] == ["a"]
    with file.open("a") as more:
        more.write(partial[20:])
    reader.read()
    reader.read()
    assert [record.message_id for record in reader.records] == ["a", "b"]


def test_counts_by_route_and_longest_wait(tmp_path: Path):
    (tmp_path / "one.jsonl").write_text(
        line("sent", "a", at=10.0)
        + line("sent", "b", route="backlog", at=11.0)
        + line("sent", "c", route="backlog", at=12.0)
        + line("syphoned", "b", at=71.0)
        + line("syphoned", "c", at=70.0)
    )
    reader = LedgerReader(tmp_path)
    reader.read()
    assert reader.tally.counts == Counts(sent=3, primary=1, diverted=2, syphoned=2, repeated=0, longest_wait=60.0)


def test_what_left_the_spool_arrived_once_and_has_waited(tmp_path: Path):
    (tmp_path / "one.jsonl").write_text(
        line("sent", "a", route="spooled", at=10.0)
        + line("sent", "b", route="spooled", at=11.0)
        + line("unspooled", "a", at=31.0)
        + line("unspooled", "b", route="backlog", at=32.0)
        + line("syphoned", "b", at=41.0)
    )
    reader = LedgerReader(tmp_path)
    reader.read()
    counts = reader.tally.counts
    assert counts == Counts(sent=2, primary=0, diverted=0, syphoned=2, repeated=0, longest_wait=30.0, spooled=2)
    assert reader.tally.was_diverted(("flights", "a"))


def test_message_sent_again_by_a_retry_counts_once(tmp_path: Path):
    (tmp_path / "one.jsonl").write_text(line("sent", "a") * 2 + line("sent", "a", route="backlog"))
    reader = LedgerReader(tmp_path)
    reader.read()
    assert reader.tally.counts == Counts(sent=1, primary=1, diverted=1, syphoned=0, repeated=1, longest_wait=0.0)


def test_longest_wait_does_not_depend_on_the_order_of_files(tmp_path: Path):
    (tmp_path / "drain.jsonl").write_text(line("syphoned", "b", at=71.0) * 2)
    (tmp_path / "publish.jsonl").write_text(line("sent", "b", route="backlog", at=11.0))
    reader = LedgerReader(tmp_path)
    reader.read()
    assert reader.tally.counts == Counts(sent=1, primary=0, diverted=1, syphoned=1, repeated=1, longest_wait=60.0)
    assert reader.tally.was_diverted(("flights", "b"))
    assert not reader.tally.was_diverted(("flights", "a"))


def test_explained_duplicates_are_no_failure():
    assert GOOD.failures == []


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ({"lost": 1}, "were lost"),
        ({"stranded": 1}, "did not arrive"),
        ({"unexpected": 1}, "should not have been sent"),
        ({"differing_fields": 1}, "differ from what was sent"),
        ({"sent": 35_999}, "35,999 of 36,000 messages were accepted"),
        ({"diverted": 0}, "failover was not tested"),
        ({"spool_expected": True}, "no message was spooled"),
        ({"duplicates": 4}, "1 duplicates are unexplained"),
    ],
)
def test_single_fault_fails_the_run(fault: dict[str, int], words: str):
    (reason,) = replace(GOOD, **fault).failures  # type: ignore[arg-type]
    assert words in reason


@pytest.mark.parametrize(
    ("lost", "delivered", "after_recovery", "words"),
    [
        (1, 35_999, False, "found 1 lost messages"),
        (0, 35_999, True, "found 35,999 of 36,000 messages delivered"),
        (0, 35_999, False, None),
    ],
)
def test_reconcile_result_can_fail_the_run(lost: int, delivered: int, words: str | None, *, after_recovery: bool):
    found = replace(RECONCILED, lost=lost, delivered=delivered)
    reasons = replace(GOOD, reconciled=found, reconciled_after_recovery=after_recovery).failures
    assert [words in reason for reason in reasons] == [True] if words else not reasons


def test_newest_reconcile_result_is_used(tmp_path: Path):
    for number, run in enumerate(("b", "a")):
        folder = tmp_path / run / "reconcile"
        folder.mkdir(parents=True)
        totals = {"messages": 9, "delivered": 8, "lost": number, "duplicates": 3, "duplicates_predicted": 2}
        (folder / "summary.json").write_text(json.dumps({"totals": totals}))
        os.utime(folder / "summary.json", (number, number))
    report = str(tmp_path / "a" / "reconcile" / "report.html")
    assert read_latest_result(tmp_path) == ReconcileResult(
        delivered=8, lost=1, duplicates=3, duplicates_predicted=2, report=report
    )


@pytest.mark.parametrize(
    ("elapsed", "condition_met", "due"),
    [(29.9, True, False), (30.0, False, False), (30.0, True, True), (59.9, False, False), (60.0, False, True)],
)
def test_outage_ends_when_the_condition_is_met_but_within_a_minute(elapsed: float, condition_met: bool, due: bool):
    assert restart_is_due(elapsed=elapsed, minimum=30.0, condition_met=condition_met) is due
