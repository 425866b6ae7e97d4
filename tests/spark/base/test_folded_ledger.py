"""Folded ledger files keep every record once, wherever the fold dies."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from servicebus_pair.core.ledger.folded import folded_twice
from servicebus_pair.core.ledger.reader import read_records
from servicebus_pair.core.ledger.segments import ledger_storage, writer_name
from servicebus_pair.core.spool.storage import SpoolStorage
from servicebus_pair.spark.base import folded_ledger
from servicebus_pair.spark.base.folded_ledger import FOLDED_SCHEMA, check_readable, fold
from tests.spark.support.ledger_files import written_ledger
from tests.spark.support.stores import STORES, new_ledger


def visible(location: str) -> list[tuple[str, int, tuple[Any, ...]]]:
    """Return file, line and fields of each record that a reader takes."""
    storage, twice = ledger_storage(location), folded_twice(location)
    found, lines = [], dict[str, int]()
    for name in (each.name for each in storage.list()):
        content, writer = storage.read(name), writer_name(name.rpartition("/")[2])
        if name.endswith(".jsonl") and name.rpartition("/")[2] not in twice:
            for line in content.splitlines():
                found.append((writer, lines.get(writer, 0), json.loads(line)))
                lines[writer] = lines.get(writer, 0) + 1
        if name.endswith(".parquet"):
            found += [(row["file"], row["line"], row) for row in parquet.read_table(BytesIO(content)).to_pylist()]
    fields = [name for name in FOLDED_SCHEMA.columns if name not in {"file", "block", "line"}]
    return sorted((file, line, tuple(map(repr, map(row.get, fields)))) for file, line, row in found)


class Dying:
    """A storage of a process that is killed at the ``death``-th change, before or after it."""

    def __init__(self, storage: SpoolStorage, death: int, *, before: bool) -> None:
        self._storage, self._left, self._before = storage, death, before

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._storage, name)
        if name not in {"replace", "delete"}:
            return method

        def change(*values: Any) -> None:
            self._left -= 1
            if not self._left and self._before:
                raise OSError("killed")
            method(*values)
            if not self._left:
                raise OSError("killed")

        return change


@pytest.mark.parametrize("store", STORES)
def test_a_fold_that_dies_loses_and_repeats_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: str
) -> None:
    ended = 0
    for death in range(1, 40):
        for before_it in (False, True):
            home = tmp_path / f"{death}-{before_it}"
            location = new_ledger(store, home)
            open_file = written_ledger(location)
            before, storage = visible(location), ledger_storage(location)
            folder = next(each.name for each in storage.list() if "run=monday" in each.name).rpartition("/")[0]
            dying = Dying(storage, death, before=before_it)
            with monkeypatch.context() as patch, suppress(OSError):
                patch.setattr(folded_ledger, "ledger_storage", lambda _, dying=dying: dying)
                fold(location, folder)
            assert visible(location) == before
            fold(location, folder)
            assert visible(location) == before
            left = [each.name.rpartition("/")[2] for each in storage.list(folder)]
            assert [writer_name(each) for each in left if not each.endswith(".parquet")] == [open_file]
            assert len(left) == 2
            ended += dying._left > 0
        if ended:
            return
    pytest.fail("the fold did not end")


def test_a_file_that_is_not_closed_with_its_count_or_is_damaged_is_left(tmp_path: Path) -> None:
    unclosed = written_ledger(tmp_path)
    folder = next(tmp_path.rglob(unclosed)).parent
    short, damaged = sorted(each for each in folder.glob("*.jsonl") if each.name != unclosed)
    lines = short.read_bytes().splitlines(keepends=True)
    short.write_bytes(b"".join(lines[1:]))
    damaged.write_bytes(damaged.read_bytes().replace(b'"bytes":9', b'"bytes":"', 1))
    place = folder.relative_to(tmp_path).as_posix()

    assert fold(str(tmp_path), place) == (0, 0)
    assert {file.name for file in folder.glob("*.jsonl")} == {short.name, damaged.name, unclosed}


def test_the_core_reads_a_folded_ledger_and_each_record_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SPEC section 8: the bill of a ledger needs no Spark."""
    written_ledger(tmp_path)
    before = sorted(map(repr, read_records(tmp_path)))
    for folder in sorted(tmp_path.glob("day=*/run=*")):
        dying = Dying(ledger_storage(tmp_path), 3, before=False)  # after the Parquet file and one deletion
        with monkeypatch.context() as patch, suppress(OSError):
            patch.setattr(folded_ledger, "ledger_storage", lambda _, dying=dying: dying)
            fold(str(tmp_path), folder.relative_to(tmp_path).as_posix())
    assert len(list(tmp_path.rglob("*.folded"))) == 2
    assert sorted(map(repr, read_records(tmp_path))) == before


def test_holes_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "day=1").mkdir()
    (tmp_path / "day=1" / "a.jsonl").touch()
    os.truncate(tmp_path / "day=1" / "a.jsonl", 1 << 20)
    monkeypatch.setattr(folded_ledger, "_parse", lambda block: pytest.fail(f"{len(block)} bytes were read"))
    assert fold(str(tmp_path), "day=1") == (0, 0)


def test_a_file_system_that_knows_no_holes_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written_ledger(tmp_path)
    monkeypatch.setattr(folded_ledger, "_MAX_UNEXAMINED_BYTES", 0)
    monkeypatch.setattr(folded_ledger, "_MAX_HOLE_BYTES", 0)
    monkeypatch.setattr(os, "SEEK_DATA", 99)  # EINVAL
    check_readable(str(tmp_path))
    assert all(fold(str(tmp_path), str(each.relative_to(tmp_path)))[0] for each in tmp_path.glob("day=*/run=*"))
