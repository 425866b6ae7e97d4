"""Folded ledger files keep every record once, wherever the fold dies."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.spark.base.folded_ledger import FOLDED_SCHEMA, fold, folded_twice
from tests.spark.support.ledger_files import written_ledger


def visible(folder: Path) -> list[tuple[str, int, tuple[Any, ...]]]:
    """Return file, line and fields of each record that a reader takes."""
    twice = folded_twice(folder)
    found = []
    for file in folder.rglob("*.jsonl"):
        lines = [] if file.name in twice else file.read_text().splitlines()
        found += [(file.name, number, json.loads(line)) for number, line in enumerate(lines)]
    for file in folder.rglob("*.parquet"):
        rows = [] if file.name.startswith(".") else parquet.read_table(file).to_pylist()
        found += [(row["file"], row["line"], row) for row in rows]
    fields = [name for name in FOLDED_SCHEMA.columns if name not in {"file", "block", "line"}]
    return sorted((file, line, tuple(map(repr, map(row.get, fields)))) for file, line, row in found)


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("name", ["replace", "unlink"])  # before and after the Parquet file has its name
def test_a_fold_that_dies_loses_and_repeats_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, count: int
) -> None:
    unclosed = written_ledger(tmp_path)
    before, calls, real = visible(tmp_path), 0, getattr(Path, name)

    def dying(path: Path, *values: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == count:
            raise OSError("killed")
        return real(path, *values, **options)

    folder = unclosed.path.parent
    with monkeypatch.context() as patch:
        patch.setattr(Path, name, dying)
        with suppress(OSError):
            fold(folder)
    assert visible(tmp_path) == before
    fold(folder)
    assert visible(tmp_path) == before
    assert {file.name for file in folder.iterdir()} == {
        unclosed.path.name,
        *(each.name for each in folder.glob("*.parquet")),
    }
    assert len(list(folder.glob("*.parquet"))) == 1


def test_a_file_that_is_not_closed_with_its_count_is_left_and_a_damaged_one_changes_nothing(tmp_path: Path) -> None:
    unclosed = written_ledger(tmp_path)
    folder = unclosed.path.parent
    short, damaged = sorted(each for each in folder.glob("*.jsonl") if each != unclosed.path)
    lines = short.read_bytes().splitlines(keepends=True)
    short.write_bytes(b"".join(lines[1:]))
    damaged.write_bytes(damaged.read_bytes().replace(b'"bytes":9', b'"bytes":"', 1))
    with pytest.raises(ConfigurationError, match=f"ledger file {damaged} is damaged"):
        fold(folder)
    damaged.unlink()
    assert fold(folder) == (0, 0)
    assert {file.name for file in folder.glob("*.jsonl")} == {short.name, unclosed.path.name}
