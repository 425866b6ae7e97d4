"""The demo's ledger figures, its verdict, its picture and the moment when the outage ends."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from matplotlib import image

from tests.system.demo.killing import VICTIMS, is_due
from tests.system.demo.ledger import DIVERTED, PRIMARY, SYPHONED, Figures, LedgerReader, Record
from tests.system.demo.outage import restart_is_due
from tests.system.demo.picture import Outage, draw
from tests.system.demo.proof import Proof, last_proof
from tests.system.demo.summary import Summary, table

if TYPE_CHECKING:
    from pathlib import Path

PROOF = Proof(delivered=36_000, lost=0, duplicates=3, duplicates_predicted=2, report="report.html")
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
    strangers=0,
    longest_wait=61.5,
    outage_seconds=40.0,
    published_at_restart=0.7,
    delivered_by_entity={},
    reconciled=PROOF,
    reconciled_at_the_end=True,
)


def line(kind: str, message_id: str, *, route: str = "primary", at: float = 0.0) -> str:
    """Return one line of a ledger."""
    record = {"v": 1, "kind": kind, "id": message_id, "entity": "Flights", "route": route, "queue": None, "bytes": 9}
    return json.dumps(record | {"at": at, "run": "r"}) + "\n"


def test_a_growing_ledger_is_read_line_by_line_and_a_half_written_line_waits(tmp_path: Path):
    reader = LedgerReader(tmp_path)
    file = tmp_path / "driver.jsonl"
    whole, rest = line("sent", "a"), line("sent", "b")
    file.write_text(whole + rest[:20])
    reader.read()
    assert [record.message_id for record in reader.records] == ["a"]
    with file.open("a") as more:
        more.write(rest[20:])
    reader.read()
    reader.read()
    assert [record.message_id for record in reader.records] == ["a", "b"]


def test_figures_count_messages_by_way_and_find_the_longest_wait(tmp_path: Path):
    (tmp_path / "one.jsonl").write_text(
        line("sent", "a", at=10.0)
        + line("sent", "b", route="backlog", at=11.0)
        + line("sent", "c", route="backlog", at=12.0)
        + line("syphoned", "b", at=71.0)
        + line("syphoned", "c", at=70.0)
    )
    reader = LedgerReader(tmp_path)
    reader.read()
    assert reader.tally.figures == Figures(sent=3, primary=1, diverted=2, syphoned=2, repeated=0, longest_wait=60.0)


def test_a_message_that_a_retried_task_sent_again_is_one_message(tmp_path: Path):
    (tmp_path / "one.jsonl").write_text(line("sent", "a") * 2 + line("sent", "a", route="backlog"))
    reader = LedgerReader(tmp_path)
    reader.read()
    assert reader.tally.figures == Figures(sent=1, primary=1, diverted=1, syphoned=0, repeated=1, longest_wait=0.0)


def test_a_syphoned_message_that_is_read_of_before_its_sending_has_waited_as_long(tmp_path: Path):
    (tmp_path / "drain.jsonl").write_text(line("syphoned", "b", at=71.0) * 2)
    (tmp_path / "publish.jsonl").write_text(line("sent", "b", route="backlog", at=11.0))
    reader = LedgerReader(tmp_path)
    reader.read()
    assert reader.tally.figures == Figures(sent=1, primary=0, diverted=1, syphoned=1, repeated=1, longest_wait=60.0)
    assert reader.tally.was_diverted(("flights", "b"))
    assert not reader.tally.was_diverted(("flights", "a"))


def test_a_run_succeeds_with_duplicates_because_delivery_is_at_least_once():
    assert GOOD.failures == []


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ({"lost": 1}, "lost"),
        ({"stranded": 1}, "have not arrived"),
        ({"strangers": 1}, "never to be sent"),
        ({"differing_fields": 1}, "not as they were sent"),
        ({"sent": 35_999}, "35,999 messages were accepted of 36,000"),
        ({"diverted": 0}, "nothing was proven"),
        ({"duplicates": 4}, "1 duplicates were not to be expected"),
    ],
)
def test_a_run_fails_by_a_single_fault(fault: dict[str, int], words: str):
    (reason,) = replace(GOOD, **fault).failures  # type: ignore[arg-type]
    assert words in reason


@pytest.mark.parametrize(
    ("lost", "delivered", "at_the_end", "words"),
    [
        (1, 35_999, False, "found 1 messages lost"),
        (0, 35_999, True, "found 35,999 messages delivered of 36,000"),
        (0, 35_999, False, None),
    ],
)
def test_what_spark_found_is_part_of_the_proof(lost: int, delivered: int, words: str | None, *, at_the_end: bool):
    found = replace(PROOF, lost=lost, delivered=delivered)
    reasons = replace(GOOD, reconciled=found, reconciled_at_the_end=at_the_end).failures
    assert [words in reason for reason in reasons] == [True] if words else not reasons


def test_the_newest_of_sparks_proofs_counts(tmp_path: Path):
    for number, run in enumerate(("b", "a")):
        folder = tmp_path / run / "reconcile"
        folder.mkdir(parents=True)
        totals = {"messages": 9, "delivered": 8, "lost": number, "duplicates": 3, "duplicates_predicted": 2}
        (folder / "summary.json").write_text(json.dumps({"totals": totals}))
        os.utime(folder / "summary.json", (number, number))
    report = str(tmp_path / "a" / "reconcile" / "report.html")
    assert last_proof(tmp_path) == Proof(delivered=8, lost=1, duplicates=3, duplicates_predicted=2, report=report)


def test_the_table_shows_the_ten_figures():
    rows = [row.rsplit("   ", 1) for row in table(GOOD).splitlines()[1:-1]]
    assert {name.strip(): value.strip() for name, value in rows} == {
        "sent": "36,000",
        "straight to the primary": "20,000",
        "diverted": "16,000",
        "syphoned": "16,000",
        "delivered": "36,000",
        "duplicates": "3",
        "of these predicted by the ledger": "2",
        "of these in doubt at the kill": "1",
        "lost": "0",
        "longest wait": "61.5 s",
    }


@pytest.mark.parametrize(
    ("dead_for", "awaited", "due"),
    [(29.9, True, False), (30.0, False, False), (30.0, True, True), (59.9, False, False), (60.0, False, True)],
)
def test_the_outage_lasts_until_what_is_awaited_has_happened_but_no_longer_than_a_minute(
    dead_for: float, awaited: bool, due: bool
):
    assert restart_is_due(dead_for=dead_for, shortest=30.0, awaited=awaited) is due


def test_the_picture_shows_every_way_and_the_outage_in_its_colour(tmp_path: Path):
    ways = [(PRIMARY, 0), (DIVERTED, 10), (SYPHONED, 20)]
    records = [
        Record(way, "flights", f"{way}-{second}-{number}", 1_700_000_000.0 + start + second)
        for way, start in ways
        for second in range(8)
        for number in range(50)
    ]
    path = tmp_path / "flow.png"
    draw(records, Outage(1_700_000_010.0, 1_700_000_018.0), title="A title", subtitle="A subtitle", path=path)
    pixels = (image.imread(path)[:, :, :3].reshape(-1, 3) * 255).round().astype("uint8")
    colours = set(map(bytes, pixels))
    assert {bytes.fromhex(colour) for colour in ("2f6db5", "e08a1e", "3aa07c", "f3dfdc")} <= colours


@pytest.mark.parametrize("victim", VICTIMS)
def test_the_syphon_dies_after_a_thousand_messages_came_home_and_the_others_after_a_thousand_diverts(victim: str):
    diverted = Figures(sent=1_000, primary=0, diverted=1_000, syphoned=999, repeated=0, longest_wait=0.0)
    assert is_due(victim, diverted) is (victim != "syphon")
    assert is_due(victim, replace(diverted, syphoned=1_000))
    assert not is_due(victim, replace(diverted, diverted=999))
