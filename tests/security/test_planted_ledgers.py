"""Whoever may write to a folder of ledgers stops no reader, and reaches no other file."""

from __future__ import annotations

import json
import os
import resource
import struct
import time
from contextlib import nullcontext, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from servicebus_pair.core import Ledger
from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.core.events import MessageRef, MessagesAccepted, Route
from servicebus_pair.core.ledger import count_ledger, folded_twice, open_files
from servicebus_pair.core.ledger.partitions import partition_path
from servicebus_pair.core.ledger.reader import read_records
from servicebus_pair.spark.analysis.evidence import read_manifests
from servicebus_pair.spark.base.folded_ledger import FOLDED_SCHEMA, check_readable, fold
from tests.security.planting import MANIFEST, NESTED, NO_FILES, Plant, endless, holding, sparse

RECORD: dict[str, Any] = {"v": 1, "kind": "syphoned", "id": "m", "entity": "q", "route": "primary", "bytes": 9}
RECORD |= {"at": time.time(), "run": "r"}
NO_RECORDS = NO_FILES | {
    "nested": NESTED,
    "long": holding(b"x" * (1 << 20)),
    "endless": endless,
    "blank": holding("\n" * 300_000),
    **{
        f"{name} {str(value)[:9]}": holding(json.dumps({**RECORD, name: value}))
        for name, value in [
            *(("bytes", value) for value in (10**17, 10**400, -1)),
            *(("at", value) for value in (10**400, 1e300, -1, float("nan"))),
            *((name, "x" * 5000) for name in ("id", "run")),
        ]
    },
}


@pytest.mark.parametrize("plant", NO_RECORDS.values(), ids=NO_RECORDS)
def test_what_is_planted_in_a_ledger_is_no_record(tmp_path: Path, plant: Plant):
    with Ledger(tmp_path, run="r") as ledger:
        ledger.observe(MessagesAccepted("q", Route.PRIMARY, None, (MessageRef("m", 9),), time.time()))
    planted = ledger.path.with_name("0.jsonl")
    plant(planted)
    now = datetime.now(UTC) + timedelta(seconds=9)

    count = count_ledger(tmp_path, since=now - timedelta(days=1), until=now)

    assert (count.records, count.operations.total) == (1, 1)
    assert count.unreadable == (0 if planted.is_dir() else 1)
    waited_for = list(open_files(tmp_path, now=time.time(), silence=60))
    assert waited_for == ([planted] if planted.is_file() and not planted.is_symlink() else [])
    assert fold(str(tmp_path), str(ledger.path.parent.relative_to(tmp_path))) == (1, 1)
    assert os.path.lexists(planted)


@pytest.mark.parametrize(
    "line", [json.dumps({**RECORD, "id": "x" * 5000}), json.dumps({**RECORD, "run": "é" * 2049}), "{}"]
)
def test_what_no_writer_writes_is_not_folded_with_records(tmp_path: Path, line: str):
    """Readers would refuse all that is folded with it, or pass over it."""
    with Ledger(tmp_path, run="r") as ledger:
        ledger.observe(MessagesAccepted("q", Route.PRIMARY, None, (MessageRef("m", 9),), time.time()))
    planted, closing = ledger.path.with_name("0.jsonl"), json.dumps({"kind": "closed", "records": 9})
    holding(f"{line}\n" * 9 + f"{closing}\n")(planted)

    assert fold(str(tmp_path), str(ledger.path.parent.relative_to(tmp_path))) == (1, 1)
    assert planted.exists()
    assert len([each for each in read_records(tmp_path) if each is not None]) == 1


@pytest.mark.parametrize("depth", [0, 1])
def test_no_ledger_is_written_where_a_link_leads(tmp_path: Path, depth: int):
    run = Path(partition_path("r", at=time.time()))
    link = tmp_path / "ledger" / (run.parent, run)[depth]
    link.parent.mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    link.symlink_to(tmp_path / "elsewhere")

    with pytest.raises(OSError, match="is a link"):
        Ledger(tmp_path / "ledger", run="r")
    assert not list((tmp_path / "elsewhere").iterdir())


def parquet_of(**columns: Any) -> Plant:
    """What a program that knows the records writes, in a few bytes for terabytes of text."""
    record = {name: RECORD.get(name) for name in FOLDED_SCHEMA.columns} | columns
    values = [each if isinstance(each, pa.Array) else pa.array([each] * ROWS) for each in record.values()]
    table = pa.table(dict(zip(record, values, strict=True)))
    return lambda path: parquet.write_table(table, path, compression="zstd", store_schema=False)


ROWS = 20_000
REPEATED = pa.DictionaryArray.from_arrays(pa.array([0] * ROWS, pa.int32()), pa.array(["x" * (8 << 20)]))
RANDOM = pa.array([os.urandom(4) for _ in range(ROWS)])  # so that there are no more records than bytes
NOT_UTF_8 = pa.StringArray.from_buffers(1, pa.py_buffer(struct.pack("<ii", 0, 1)), pa.py_buffer(b"\xff"))
PARQUET = {
    "records that are one": parquet_of(),
    "repeated": parquet_of(id=REPEATED),
    "repeated kind": parquet_of(kind=REPEATED, other=RANDOM),
    "repeated number": parquet_of(at=REPEATED, other=RANDOM),
    "not text": parquet_of(id=pa.concat_arrays([NOT_UTF_8] * ROWS), other=RANDOM),
    "nested": parquet_of(id=pa.array([["x"]] * ROWS)),
    "other types": parquet_of(bytes="9", at=True, v=2.5),
    "impossible": parquet_of(bytes=2**60),
    "large": parquet_of(id=pa.array(["x" * (1 << 28)] + [""] * (ROWS - 1))),
    "cut": holding(b"PAR1PAR1"),
    "metadata": lambda path: sparse(path, 2 << 30, (1 << 30).to_bytes(4, "little") + b"PAR1"),
    "pipe": os.mkfifo,
}


@pytest.mark.parametrize("plant", PARQUET.values(), ids=PARQUET)
def test_parquet_that_compact_did_not_write_takes_little_memory(tmp_path: Path, plant: Plant):
    plant(tmp_path / "a.parquet")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    with suppress(ConfigurationError):
        count = count_ledger(tmp_path, since=datetime(2020, 1, 1, tzinfo=UTC), until=datetime(2100, 1, 1, tzinfo=UTC))
        assert count.records == 0
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000  # KB


def circle(path: Path) -> None:
    """Two links make two to the power of forty paths."""
    for name in ("a", "b"):
        path.with_name(name).symlink_to(path.parent)


def deep(path: Path) -> None:
    path.parent.joinpath(*["d"] * 20).mkdir(parents=True)


def test_what_lies_too_deep_is_passed_over_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    """Readers would exceed the depth of their calls."""
    day = partition_path("r", at=time.time()).partition("/")[0]
    for depth in (16, 17, 18):
        caplog.clear()
        folder = tmp_path / str(depth)
        planted = folder.joinpath(day, *["d"] * (depth - 1))
        planted.mkdir(parents=True)
        (planted / "a.jsonl").write_text(json.dumps(RECORD))
        MANIFEST.write(planted / "0.json")

        assert len(list(read_records(folder))) == (depth == 16)
        assert ("it lies too deep" in caplog.text) == (depth > 16)
        with nullcontext() if depth == 16 else pytest.raises(ConfigurationError, match="of the runs none"):
            read_manifests(str(folder), run=None)
        assert len(list(open_files(folder, now=time.time(), silence=60))) == (depth <= 17)  # counted from the day


FOR_SPARK = {
    **{name: PARQUET[name] for name in ("records that are one", "nested", "other types", "large", "cut", "metadata")},
    "circle": circle,
    "deep": deep,
    "colon": lambda path: path.with_name("a:b.jsonl").touch(),
    "endless": lambda path: endless(path.with_name("a.jsonl")),
    "link to Parquet": lambda path: path.symlink_to("/dev/zero"),
}


@pytest.mark.parametrize("plant", FOR_SPARK.values(), ids=FOR_SPARK)
@pytest.mark.parametrize("scheme", ["", "file://"])
def test_what_spark_would_follow_or_believe_is_found_before(tmp_path: Path, plant: Plant, scheme: str):
    run = tmp_path / "day=1" / "run=r"
    run.mkdir(parents=True)
    check_readable(f"{scheme}{tmp_path}")
    plant(run / "a.parquet")

    for folders in ([""], ["day=0/run=r", "day=1/run=r"]):
        with pytest.raises(ConfigurationError, match=r"ledger .*(cannot be read|is damaged|delete it)"):
            check_readable(f"{scheme}{tmp_path}", folders)


@pytest.mark.parametrize(
    "listed",
    [
        '["../../victim.jsonl"]',
        '["../../../{name}.jsonl"]',
        '["{root}/victim.jsonl"]',
        '["victim"]',
        "5",
        "[[1]]",
        "{}",
        '["a\\u0000.jsonl"]',
        "[" * 100_000,
        *NO_FILES,
    ],
)
def test_a_planted_list_of_folded_files_deletes_nothing(tmp_path: Path, listed: str):
    folder = tmp_path / "day=1" / "run=r"
    folder.mkdir(parents=True)
    victims = [tmp_path.with_name(f"{tmp_path.name}.jsonl"), tmp_path / "victim.jsonl", folder / "victim"]
    for each in victims:
        each.write_text("precious")
    (folder / "a.parquet").touch()
    NO_FILES.get(listed, holding(listed.replace("{root}", str(tmp_path)).replace("{name}", tmp_path.name)))(
        folder / "a.folded"
    )

    for read in (lambda: fold(str(tmp_path), "day=1/run=r"), lambda: folded_twice(tmp_path)):
        if listed in NO_FILES:
            assert not read() or read() == (0, 0)
            continue
        with pytest.raises(ConfigurationError, match="is not a list of ledger files, as compact writes them"):
            read()
    assert [each.read_text() for each in victims] == ["precious"] * 3
