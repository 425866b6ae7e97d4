"""The cost job: operations first, money second (SPEC section 8), from ledger and meters, compared with quiet days."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from servicebus_pair.core.ledger.usage import count_ledger
from servicebus_pair.core.ledger.writer import Ledger
from servicebus_pair.core.model.events import MessageRef, MessagesAccepted, MessagesSyphoned, Route
from servicebus_pair.spark.jobs import cost as job
from tests.spark.conftest import CANARY, Pair, Session
from tests.spark.support.job_files import read_summary

# Two backlog queues, polled every fifteen minutes, day and night.
QUIET_DAY = 2 * 24 * 4
LARGE = 65_536 + 1


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """A ledger: 100 sent on the last day of January, of which 30 were diverted, and moved on the second of February."""
    folder = tmp_path / "ledger"
    with Ledger(folder, run="publish") as records:
        sent = timestamp("2026-01-31T23:00:00")
        records.observe(MessagesAccepted("flights", Route.PRIMARY, None, refs(70), sent))
        records.observe(MessagesAccepted("flights", Route.BACKLOG, "contoso/x-servicebus-transfer/0", refs(29), sent))
        one = (MessageRef("large", LARGE),)
        records.observe(MessagesAccepted("flights", Route.BACKLOG, "contoso/x-servicebus-transfer/0", one, sent))
    with Ledger(folder, run="drain") as records:
        moved = timestamp("2026-02-02T01:00:00")
        records.observe(MessagesSyphoned("flights", "contoso/x-servicebus-transfer/0", (*refs(29), *one), moved))
    with (folder / "killed.jsonl").open("w") as torn:
        torn.write('{"v":1,"kind":"sent","id":"m-0","ent')
    return folder


def refs(count: int) -> tuple[MessageRef, ...]:
    return tuple(MessageRef(f"m-{number}", 300 + number) for number in range(count))


def timestamp(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def run(pair: Pair, ledger: Path, *more: str) -> int:
    output = str(ledger.parent / "cost")
    return job.main(["--pair", pair.reference, "--ledger", str(ledger), "--output", output, *more])


def test_ledger_is_billed_by_month_and_compared_with_quiet_days(
    session: Session, pair: Pair, ledger: Path, capsys: pytest.CaptureFixture[str]
):
    assert run(pair, ledger) == 0
    found = read_summary(ledger.parent / "cost")
    expected = {"sends": 70 + 30, "diverts": 30, "receives": 30, "settlements": 30, "further_increments": 1 + 2}
    assert found["operations"] == expected
    whole = count_ledger(ledger, since=datetime(2026, 1, 1, tzinfo=UTC), until=datetime(2026, 3, 1, tzinfo=UTC))
    assert whole.operations.total == found["total"], "Spark counts as the pure rules do"
    assert (found["first"], found["last"], found["by_day"]) == (
        *("2026-01-31", "2026-02-02"),
        {"2026-01-31": 101, "2026-02-02": 92},
    )
    january, february = found["months"]
    assert (january["month"], january["days"], january["measured"]["total"]) == ("2026-01", 1, 101)
    assert (february["month"], february["days"], february["measured"]["total"]) == ("2026-02", 2, 92)
    assert (january["quiet"]["total"], february["quiet"]["total"]) == (QUIET_DAY, 2 * QUIET_DAY)
    assert january["measured"]["amount"] == "0.00", "the first operations of a month are included"
    assert found["ledger"]["torn"] == 1
    out = capsys.readouterr().out
    assert f"193 operations in 3 days cost 0.00 USD; 3 quiet days take {3 * QUIET_DAY} operations" in out
    rows = session.spark.read.parquet(str(ledger.parent / "cost" / "operations")).collect()
    assert {(row["day"], row["run"], row["operation"], row["count"]) for row in rows} >= {
        ("2026-01-31", "publish", "sends", 70),
        ("2026-02-02", "drain", "sends", 30),
    }
    assert {row["source"] for row in rows} == {"ledger"}
    page = (ledger.parent / "cost" / "report.html").read_text()
    assert "193 operations from 2026-01-31 to 2026-02-02" in page
    assert "<svg" in page
    assert CANARY not in session.event_log() + page


def test_meters_add_only_operations_missing_from_the_ledger(spark: SparkSession, pair: Pair, ledger: Path):
    report = ledger.parent / "drain.json"
    metered = {"sends": 30, "receives": 30, "empty_receives": 12, "settlements": 31}
    report.write_text(json.dumps({"run": "drain", "began": timestamp("2026-02-02T00:59:00"), "operations": metered}))
    prices = ledger.parent / "prices.json"
    tiers = [{"beyond": 0, "per_million": "1000000"}]
    prices.write_text(json.dumps({"as_of": "2026-11-20", "currency": "EUR", "tiers": tiers}))
    assert run(pair, ledger, "--metered", str(report), "--prices", str(prices), "--since", "2026-02-01") == 0
    (february,) = read_summary(ledger.parent / "cost")["months"]
    assert (february["days"], february["measured"]) == (2, {"total": 105, "billable": 105, "amount": "105.00"})
    rows = spark.read.parquet(str(ledger.parent / "cost" / "operations")).where("source = 'meter'").collect()
    assert {row["operation"]: row["count"] for row in rows} == {"settlements": 1, "empty_receives": 12}
    bills = spark.read.parquet(str(ledger.parent / "cost" / "bills")).orderBy("kind").collect()
    assert [(row["kind"], row["amount"], row["currency"]) for row in bills] == [
        ("measured", "105.00", "EUR"),
        ("quiet", f"{2 * QUIET_DAY}.00", "EUR"),
    ]


@pytest.mark.usefixtures("spark")
def test_empty_ledger_yields_no_operations(pair: Pair, ledger: Path):
    assert run(pair, ledger, "--since", "2027-01-01", "--until", "2027-01-02") == 0
    found = read_summary(ledger.parent / "cost")
    assert (found["total"], [month["quiet"]["total"] for month in found["months"]]) == (0, [2 * QUIET_DAY])


INVALID = {
    "before is -1: allowed is 0 or more": ("--before", "-1"),
    "since is 2026-02-02: it must not be after until": ("--since", "2026-02-02", "--until", "2026-02-01"),
    "cannot be read as JSON": ("--prices", "/nowhere.json"),
    "has run None and began None": ("--metered", "invalid.json"),
}


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("error", INVALID)
def test_invalid_argument_is_named(
    error: str, pair: Pair, ledger: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(ledger.parent)
    Path("invalid.json").write_text("[]")
    assert run(pair, ledger, *INVALID[error]) == 2
    assert error in capsys.readouterr().err
    assert not (ledger.parent / "cost").exists()
