"""The profile job peeks the backlog without receiving (SPEC section 6: dry run by peek)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from servicebus_pair.spark.jobs import drain as drain_job
from servicebus_pair.spark.jobs import profile_backlog as job
from tests.spark.conftest import CANARY, Pair, Session
from tests.spark.support.job_files import arguments, read_summary
from tests.spark.support.own_backlog import OwnBacklog, own_backlog


@pytest.fixture
def own(pair: Pair, tmp_path: Path) -> OwnBacklog:
    return own_backlog(pair, tmp_path)


def run(own: OwnBacklog, folder: Path, *more: str) -> int:
    return job.main(["--pair", own.reference, "--output", str(folder / "profile"), *more])


def table(spark: SparkSession, folder: Path, name: str) -> list[dict[str, Any]]:
    return [row.asDict() for row in spark.read.parquet(str(folder / "profile" / name)).collect()]


def test_profile_reports_destinations_ages_sizes_and_reasons(
    session: Session, own: OwnBacklog, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    queue, big, ledger = own.fresh_queue(), own.fresh_queue(), tmp_path / "ledger"
    own.divert(ledger, "gone", 3)
    options = {"--pair": own.reference, "--ledger": str(ledger), "--run": "r", "--report": str(tmp_path / "r.json")}
    assert drain_job.main(arguments(options)) == 0, "messages without a destination are dead-lettered"
    own.divert(ledger, queue, 40)
    own.divert(ledger, big, 6, body=b"x" * 5000)

    assert run(own, tmp_path) == 0

    assert "46 messages wait in 2 backlog queues, 3 are dead letters" in capsys.readouterr().out
    summary = read_summary(tmp_path / "profile")
    assert (summary["messages"], summary["dead_letters"], summary["queues"]) == (46, 3, list(own.queues))
    rows = {row["destination"]: row for row in table(session.spark, tmp_path, "destinations")}
    assert {name: row["messages"] for name, row in rows.items()} == {queue: 40, big: 6, "gone": 3}
    assert 5000 <= rows[big]["largest_bytes"] < 5200
    assert rows[big]["bytes"] == 6 * rows[big]["largest_bytes"]
    assert 0 <= rows[queue]["newest_seconds"] <= rows[queue]["median_seconds"] <= rows[queue]["oldest_seconds"] < 120
    waiting = [row for row in table(session.spark, tmp_path, "sizes") if row["subQueue"] == "main"]
    assert {row["class"]: row["messages"] for row in waiting} == {"under 1 KB": 40, "4 KB to 16 KB": 6}
    assert sum(row["messages"] for row in table(session.spark, tmp_path, "ages")) == 49
    (reason,) = table(session.spark, tmp_path, "reasons")
    assert (reason["destination"], reason["reason"], reason["messages"]) == ("gone", "EntityNotFound", 3)
    messages = table(session.spark, tmp_path, "messages")
    assert len(messages) == 49
    assert "body" not in messages[0]
    page = (tmp_path / "profile" / "report.html").read_text()
    assert f'<td class="text">{queue}</td><td>40</td>' in page
    assert "EntityNotFound" in page
    assert page.count("<svg") == 1
    assert page.count('class="bars"') == 4
    assert len(own.peek_backlog()) == 49, "nothing was consumed"
    assert CANARY not in session.event_log()

    assert run(own, tmp_path, "--queues", own.queues[0]) == 0, "the output is replaced"
    again = read_summary(tmp_path / "profile")
    assert again["queues"] == [own.queues[0]]
    assert again["messages"] == sum(row["queue"] == own.queues[0] and row["subQueue"] == "main" for row in messages)


@pytest.mark.usefixtures("spark")
def test_empty_backlog_has_a_report(own: OwnBacklog, tmp_path: Path):
    assert run(own, tmp_path) == 0
    assert "0 messages wait in 2 backlog queues" in (tmp_path / "profile" / "report.html").read_text()
    assert read_summary(tmp_path / "profile")["destinations"] == []


def test_section_6_messages_of_sessions_are_profiled_with_the_others(
    session: Session, pair: Pair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    own = own_backlog(pair, tmp_path, ordering="session")
    queue = own.fresh_queue()
    ids = {each for name in ("a", "b", "c") for each in own.divert_session(queue, 4, session=name)}

    assert run(own, tmp_path) == 0

    assert "12 messages wait in 4 backlog queues, 0 are dead letters" in capsys.readouterr().out
    (row,) = table(session.spark, tmp_path, "destinations")
    assert (row["destination"], row["messages"]) == (queue, 12)
    assert {each["messageId"] for each in table(session.spark, tmp_path, "messages")} == ids
    assert run(own, tmp_path) == 0, "no session stays locked"
