"""The publish job: CSV, JSON-lines and Parquet tables become the same messages."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from servicebus_pair.spark.jobs import publish as job
from tests.spark.conftest import Pair
from tests.spark.support.job_files import arguments, read_json

CSV = """messageId,body,sessionId,timeToLive,scheduledEnqueueTime,applicationProperties
m-1,hello,7,60,2040-01-02T03:04:05Z,"{""distance"": 5, ""delay"": 2.0}"
m-2,bare,,,,
"""
JSON_LINES = """
{"messageId": "m-1", "body": "hello", "sessionId": 7, "timeToLive": 60, "scheduledEnqueueTime": "2040-01-02T03:04:05Z",
 "applicationProperties": {"distance": 5, "delay": 2.0}}
{"messageId": "m-2", "body": "bare"}
""".replace(",\n ", ", ").lstrip()


def run(pair: Pair, folder: Path, table: Path, *more: str) -> int:
    options = {"--pair": pair.reference, "--table": str(table), "--ledger": str(folder / "ledger"), "--run": "r"}
    options |= {"--manifest": str(folder / "manifest.json")}
    return job.main([*arguments(options), *more])


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(("suffix", "text"), [("csv", CSV), ("jsonl", JSON_LINES)])
def test_csv_and_json_columns_are_cast(suffix: str, text: str, pair: Pair, tmp_path: Path):
    table, queue = tmp_path / f"table.{suffix}", pair.fresh_queue()
    table.write_text(text)
    assert run(pair, tmp_path, table, "--entity", queue) == 0
    full, bare = (found.content for found in sorted(pair.peek(queue), key=lambda found: found.key))
    assert (full.body, full.session_id, full.time_to_live) == (b"hello", "7", timedelta(minutes=1))
    assert full.scheduled_for == datetime(2040, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert full.properties == {"distance": 5, "delay": 2.0}
    assert isinstance(full.properties["delay"], float)
    assert (bare.body, bare.session_id, bare.time_to_live, bare.properties) == (b"bare", None, None, {})
    assert read_json(tmp_path / "manifest.json")["entities"][queue]["primary"] == 2


@pytest.mark.usefixtures("spark")
def test_select_expressions_create_messages(pair: Pair, tmp_path: Path):
    table, queue = tmp_path / "orders.csv", pair.fresh_queue()
    table.write_text("order,city,far\n1,Oslo,5\n2,Rome,\n")
    made = (
        "to_json(struct(*)) AS body",
        "concat('o-', order) AS messageId",
        "map('far', cast(far AS bigint)) AS applicationProperties",
    )
    select = [word for each in made for word in ("--select", each)]
    assert run(pair, tmp_path, table, "--entity", queue, *select) == 0
    found = {each.key[1]: each.content for each in pair.peek(queue)}
    assert {message_id: json.loads(content.body) for message_id, content in found.items()} == {
        "o-1": {"order": "1", "city": "Oslo", "far": "5"},
        "o-2": {"order": "2", "city": "Rome"},
    }
    assert (found["o-1"].properties, found["o-2"].properties) == ({"far": 5}, {})


@pytest.mark.parametrize(
    ("name", "more"), [("table.parquet", ()), ("table", ("--format", "orc")), ("view", ("--format", "table"))]
)
def test_table_with_entities_is_read_by_suffix_format_or_catalog_name(
    name: str, more: tuple[str, ...], spark: SparkSession, pair: Pair, tmp_path: Path
):
    queue, path = pair.fresh_queue(), tmp_path / name
    rows = spark.createDataFrame([(queue, "m-1", b"hello")], "entity string, messageId string, body binary")
    rows.write.format("orc" if name == "table" else "parquet").save(str(path))
    rows.createOrReplaceTempView("view")
    assert run(pair, tmp_path, Path(name) if name == "view" else path, *more) == 0
    assert [found.content.body for found in pair.peek(queue)] == [b"hello"]


@pytest.mark.usefixtures("spark")
def test_failed_task_prints_one_line_and_sets_exit_status_1(
    pair: Pair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "table.csv").write_text(CSV)
    assert run(pair, tmp_path, tmp_path / "table.csv", "--entity", "no-queue-of-this-name") == 1
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("publish: ")]
    assert "failed with 0 messages accepted by the primary and 0 by the backlog: SendError: sending to no-queue" in line
    assert "no-queue-of-this-name does not exist on contoso" in line
    assert not (tmp_path / "manifest.json").exists()


INVALID = {
    "has no known suffix: give --format": ("table.xml", ()),
    "absent.parquet' cannot be read as parquet: [PATH_NOT_FOUND]": ("absent.parquet", ("--entity", "flights")),
    "absent' cannot be read as table: [": ("absent", ("--entity", "flights", "--format", "table")),
    "cannot be read as csv: [UNRESOLVED_COLUMN": ("table.csv", ("--entity", "flights", "--select", "nothing AS body")),
    "no file can be created in /dev/null": ("table.csv", ("--entity", "flights", "--manifest", "/dev/null/m.json")),
    "column entity and option entity are both missing": ("table.csv", ()),
    "health is not a JSON object of health records": ("table.csv", ("--entity", "flights", "--health", "{")),
    "column scheduledEnqueueTime holds 'tomorrow': it must be a timestamp": ("late.csv", ("--entity", "flights")),
    "rate is 0.0: it must be more than 0": ("table.csv", ("--entity", "flights", "--rate", "0")),
}


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("error", INVALID)
def test_invalid_argument_is_named(error: str, pair: Pair, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    name, more = INVALID[error]
    if not name.startswith("absent"):
        (tmp_path / name).write_text(CSV)
    (tmp_path / "late.csv").write_text(CSV.replace("2040-01-02T03:04:05Z", "tomorrow"))
    assert run(pair, tmp_path, tmp_path / name, *more) == 2
    assert error in capsys.readouterr().err
