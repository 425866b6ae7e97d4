"""Readers pass over what a Parquet file holds already, and believe only a list that ``compact`` may have written."""

from __future__ import annotations

import json
import os
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from servicebus_pair.core.ledger import folded
from servicebus_pair.core.ledger.folded import folded_problem, folded_twice, footer_problem, read_fold_list
from servicebus_pair.core.ledger.parquet_pages import page_sizes
from servicebus_pair.core.ledger.segments import ledger_storage
from servicebus_pair.core.model.errors import ConfigurationError

LARGEST = 67_108_864
LARGEST_PAGE = 16_777_216


def write_list(folder: Path, name: str, *files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(json.dumps(files))


def test_files_of_a_list_beside_its_parquet_file_are_passed_over(tmp_path: Path) -> None:
    for run, files in (("a", ("1.jsonl", "2.jsonl")), ("b", ("3.jsonl",))):
        write_list(tmp_path / run, "x.folded", *files)
        (tmp_path / run / "x.parquet").touch()
    write_list(tmp_path / "a", "without.folded", "4.jsonl")
    assert sorted(folded_twice(tmp_path)) == ["1.jsonl", "2.jsonl", "3.jsonl"]
    assert folded_twice(tmp_path, ["b", "missing"]) == ["3.jsonl"]
    assert folded_twice(tmp_path, []) == []


@pytest.mark.parametrize(
    "content",
    ["", "{}", "5", '"a.jsonl"', "[1]", '["a"]', '["a/b.jsonl"]', '["a\\u0000.jsonl"]', "[" * 100_000, '["a.jsonl"'],
)
def test_what_is_no_list_of_ledger_files_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "x.folded").write_text(content)
    with pytest.raises(ConfigurationError, match=r"'x\.folded' is not a list of ledger files"):
        read_fold_list(ledger_storage(tmp_path), "x.folded")


def test_a_list_is_read_up_to_its_limit(tmp_path: Path) -> None:
    for more, readable in ((0, True), (1, False)):
        (tmp_path / "x.folded").write_bytes(b'["a.jsonl"' + b" " * (LARGEST - 11 + more) + b"]")
        if readable:
            assert read_fold_list(ledger_storage(tmp_path), "x.folded") == ["a.jsonl"]
            continue
        with pytest.raises(ConfigurationError, match="is not a list"):
            read_fold_list(ledger_storage(tmp_path), "x.folded")


def metadata(rows: int, *groups: int) -> Any:
    """What pyarrow reads of a Parquet file with so many rows, in groups of so many bytes."""
    return SimpleNamespace(
        num_rows=rows,
        num_columns=0,
        num_row_groups=len(groups),
        row_group=[SimpleNamespace(total_byte_size=each, num_columns=0, column=None) for each in groups].__getitem__,
    )


def test_a_parquet_file_has_a_byte_for_each_record_and_parts_of_a_limited_size(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"x" * 100)
    with (tmp_path / "a.parquet").open("rb") as stored:
        for file in (stored, BytesIO(b"x" * 100)):
            assert folded_problem(metadata(100, 5, 2**28), file) is None
            assert folded_problem(metadata(100, 5, 2**28 + 1), file) == "has a larger part than compact writes"
            assert folded_problem(metadata(101, 5), file) == "has 101 records in 100 bytes, more than compact writes"
    with (tmp_path / "sparse.parquet").open("w+b") as sparse:
        sparse.truncate(1 << 40)
        sparse.write(b"x")
        sparse.flush()
        os.fsync(sparse.fileno())
        stored_bytes = os.fstat(sparse.fileno()).st_blocks * 512
        assert 0 < stored_bytes < 1 << 20
        assert folded_problem(metadata(stored_bytes), sparse) is None
        assert folded_problem(metadata(stored_bytes + 1), sparse) is not None


def problem_of(path: Path, table: dict[str, list[Any]], **options: Any) -> str | None:
    parquet.write_table(pa.table(table), path, compression="zstd", **options)
    with path.open("rb") as file:
        return folded_problem(parquet.read_metadata(path), file)


def test_the_pages_of_a_parquet_file_are_as_large_and_as_many_as_compact_writes(tmp_path: Path) -> None:
    """What the metadata says of their sizes is not believed: a page of 30 KB may unpack to a gigabyte."""
    path, refused = tmp_path / "a.parquet", "has larger or more pages than compact writes"
    for large in (11, LARGEST_PAGE, LARGEST_PAGE + 1):
        found = problem_of(
            path, {"id": ["x" * (large - 10)]}, use_dictionary=False
        )  # and ten bytes of lengths and levels
        assert found == (None if large <= LARGEST_PAGE else refused)
    rows: dict[str, list[Any]] = {"id": [f"{number:x}" for number in range(5000)], "kind": ["sent"] * 5000}
    assert problem_of(path, rows) is None
    assert problem_of(path, rows, data_page_size=1, write_batch_size=1) == refused
    content = bytearray(path.read_bytes())
    read = parquet.read_metadata(path)
    content[read.row_group(0).column(0).dictionary_page_offset] = 0x00
    path.write_bytes(content)
    with path.open("rb") as file:
        assert folded_problem(read, file) == "is damaged: the header of a page has no sizes"


def test_the_pages_of_a_parquet_file_unpack_to_a_limited_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, rows = tmp_path / "a.parquet", {"id": [os.urandom(8).hex() for _ in range(5000)]}
    assert problem_of(path, rows) is None
    for more, problem in ((0, None), (1, "has larger or more pages than compact writes")):
        sizes = [LARGEST_PAGE] * 16 + [256 * path.stat().st_size + more]
        monkeypatch.setattr(folded, "page_sizes", lambda *_, sizes=sizes: iter(sizes))
        assert problem_of(path, rows) == problem


@pytest.mark.parametrize(("values", "is_damaged"), [(0, False), (10, False), (11, True), (-1, True)])
def test_a_dictionary_has_no_more_values_than_bytes(values: int, is_damaged: bool) -> None:
    """A reader makes room for all values that the header of the page says."""
    header = bytes([0x15, 4, 0x15, 20, 0x15, 20, 0x4C, 0x15, 2 * values if values >= 0 else 1, 0, 0])
    column = SimpleNamespace(dictionary_page_offset=0, data_page_offset=None, total_compressed_size=len(header) + 10)
    group = SimpleNamespace(num_columns=1, column=lambda _: column)
    sizes = page_sizes(BytesIO(header + b"x" * 10), SimpleNamespace(num_row_groups=1, row_group=lambda _: group))
    if is_damaged:
        with pytest.raises(ValueError, match="a dictionary has more values than bytes"):
            list(sizes)
    else:
        assert list(sizes) == [10]


def test_the_metadata_of_a_parquet_file_is_of_a_limited_size() -> None:
    for size, problem in ((2**26, None), (2**26 + 1, f"is damaged: it has {2**26 + 1} bytes of metadata")):
        file = BytesIO(b"x" * 20 + size.to_bytes(4, "little") + b"PAR1")
        assert footer_problem(file) == problem
        assert file.tell() == 0
    assert footer_problem(BytesIO(b"PAR1")) is None
