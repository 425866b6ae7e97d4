"""Folds the closed ledger files of one folder into a Parquet file; whatever is interrupted, each record counts once.

``core.ledger.folded`` says how readers pass over files that are in it and still beside it.
"""

from __future__ import annotations

import errno
import json
import os
import uuid
from collections.abc import Iterator, Sequence
from io import BytesIO
from itertools import groupby
from typing import BinaryIO, Final

import pyarrow as pa
from pyarrow import compute, parquet
from pyarrow import json as arrow_json

from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.core.ledger import (
    CLOSED,
    FOLD_LIST,
    FOLDED,
    MAX_TEXT_BYTES,
    folded_problem,
    footer_problem,
    ledger_storage,
    read_fold_list,
    writer_name,
)
from servicebus_pair.core.spool import FolderStorage
from servicebus_pair.spark.base.arrow_schema import RowSchema

_RECORD: Final = {
    "v": "int",
    **dict.fromkeys(("kind", "id", "digest", "entity", "route", "queue"), "string"),
    "bytes": "bigint",
    "at": "double",
    **dict.fromkeys(("run", "spool"), "string"),
    "records": "bigint",
}
FOLDED_SCHEMA: Final = RowSchema(_RECORD | {"file": "string", "block": "bigint", "line": "bigint"})
"""The fields of a record, and the file and line in which it was."""
FOLDED_BLOCK: Final = -1
"""The block of each folded record: they are in the order of their lines."""
_BLOCK_BYTES: Final = 32_000_000
_MAX_CLOSING_BYTES: Final = 65_536
# On average: a record has twice as many, and "{}" takes memory fifty times its size.
_MIN_LINE_BYTES: Final = 32
_MAX_UNEXAMINED_BYTES: Final = 16 << 20
# A crash of a machine may leave one at the end of each file that was being written.
_MAX_HOLE_BYTES: Final = 1 << 30


def check_readable(ledger: str, folders: Sequence[str] = ("",)) -> None:
    """Check what Spark would not: it follows links, also in circles, and believes what a Parquet file says of itself.

    :param folders: below the ledger, to be checked.
    :raises ConfigurationError: there is a link, or a file that ``compact`` did not write so.
    """
    storage = ledger_storage(ledger)
    try:
        passed_over = [
            name
            for folder in folders
            for name in (storage.passed_over(folder) if isinstance(storage, FolderStorage) else ())
        ]
        files = [each for folder in folders for each in storage.list(folder)]
        names = [each.name for each in files]
        # Hadoop takes what is before the colon for the scheme of a URL.
        passed_over += [each for each in names if ":" in _base(each) and each.endswith((".jsonl", FOLDED))]
        for name in (each for each in names if each.endswith(FOLDED)):
            with storage.open(name) as file:
                _check_folded(file, name)
        if isinstance(storage, FolderStorage):
            large = [each.name for each in files if each.size_bytes > _MAX_UNEXAMINED_BYTES]
            _check_holes(storage, [each for each in large if each.endswith(".jsonl")])
    except OSError as error:
        raise ConfigurationError(f"ledger {ledger!r} cannot be read: {error}") from None
    if passed_over:
        raise ConfigurationError(
            f"ledger {ledger!r} cannot be read: {passed_over[0]!r} is a link, has a colon, or is a folder that is "
            "closed to this user or too deep; remove it"
        )


def _check_holes(storage: FolderStorage, names: Sequence[str]) -> None:
    # They take nothing of a disk, and hours to read.
    in_all = 0
    for name in names:
        with storage.open(name) as file:
            in_all += _hole_bytes(file)
        if in_all > _MAX_HOLE_BYTES:
            raise ConfigurationError(f"ledger file {name} has holes, which no writer leaves: delete it")


def _hole_bytes(file: BinaryIO) -> int:
    descriptor, end, size_bytes = file.fileno(), 0, file.seek(0, os.SEEK_END)
    holes = size_bytes
    try:
        while end < size_bytes:
            begin = os.lseek(descriptor, end, os.SEEK_DATA)
            end = os.lseek(descriptor, begin, os.SEEK_HOLE)
            holes -= end - begin
    except OSError as error:
        if error.errno != errno.ENXIO:  # which says that the rest is a hole; other file systems do not know
            holes = 0
    file.seek(0)
    return holes


def _check_folded(file: BinaryIO, name: str) -> None:
    problem = footer_problem(file)
    if problem is not None:
        raise ConfigurationError(f"ledger file {name} {problem}: delete it")
    try:
        metadata = parquet.ParquetFile(file).metadata
        schema, written = metadata.schema.to_arrow_schema(), FOLDED_SCHEMA.table([]).schema
        problem = folded_problem(metadata, file)
    except (pa.ArrowException, OSError) as error:
        raise ConfigurationError(f"ledger file {name} is damaged: {error}") from None
    for field in schema:
        if field.name in written.names and field.type != written.field(field.name).type:
            problem = f"has the column {field.name} as {field.type}, unlike compact"
    if problem is not None:
        raise ConfigurationError(f"ledger file {name} {problem}: delete it")


def fold(ledger: str, folder: str) -> tuple[int, int]:
    """Fold the closed files of a folder; return how many files and records there were.

    The Parquet file is in memory until it is written.

    :param folder: below the ledger.
    :raises ConfigurationError: a list of folded files is none that this function writes; nothing was changed.
    """
    folding = _Folding(ledger, folder)
    folding.finish_earlier()
    return folding.fold()


class _Folding:
    def __init__(self, ledger: str, folder: str) -> None:
        self._storage = ledger_storage(ledger)
        self._folder = folder

    def finish_earlier(self) -> None:
        """Complete or undo what an interrupted fold has left."""
        names = self._names()
        for each in names:
            if each.endswith(FOLD_LIST):
                if each.removesuffix(FOLD_LIST) + FOLDED in names:
                    self._delete_files(each, read_fold_list(self._storage, each))
                self._storage.delete(each)

    def fold(self) -> tuple[int, int]:
        files = [each for each in self._names() if _is_ledger_file(each)]
        writers = {name: tuple(parts) for name, parts in groupby(files, writer_name)}
        closed = {name: parts for name, parts in writers.items() if self._is_closed(parts)}
        if not closed:
            return 0, 0
        content, records = self._folded(closed)
        folded = [each for parts in closed.values() for each in parts]
        names = f"{self._folder}/{uuid.uuid4().hex}{FOLD_LIST}"
        # The list before the Parquet file, or records would count twice.
        self._storage.replace(names, json.dumps([_base(each) for each in folded]).encode())
        self._storage.replace(names.removesuffix(FOLD_LIST) + FOLDED, content)
        self._delete_files(names, [_base(each) for each in folded])
        self._storage.delete(names)
        return len(folded), records

    def _names(self) -> list[str]:
        found = (each.name for each in self._storage.list(self._folder))
        return [each for each in found if each == f"{self._folder}/{_base(each)}"]

    def _delete_files(self, names: str, files: Sequence[str]) -> None:
        for each in files:
            self._storage.delete(f"{self._folder}/{each}")
        # Written again, so that in a folder the deletions are on the disk before the list is deleted.
        self._storage.replace(names, json.dumps(files).encode())

    def _is_closed(self, parts: Sequence[str]) -> bool:
        """Return whether a file, or its segments, can be folded: the last line has the number of all before it.

        What no writer has written is not folded: it would make what is folded with it unreadable.
        """
        count, last = 0, b""
        try:
            for block in self._blocks(parts):
                lines = block.count(b"\n")
                if lines * _MIN_LINE_BYTES > len(block) or _longest_text(_parse(block)) > MAX_TEXT_BYTES:
                    return False
                count += lines
                last = block.rstrip(b"\n").rpartition(b"\n")[2]
            closing = json.loads(last) if len(last) <= _MAX_CLOSING_BYTES else None
        except (ValueError, RecursionError):  # of pyarrow, too
            return False
        return isinstance(closing, dict) and closing.get("kind") == CLOSED and closing.get("records") == count - 1

    def _folded(self, writers: dict[str, tuple[str, ...]]) -> tuple[bytes, int]:
        content, records = BytesIO(), 0
        schema = FOLDED_SCHEMA.table([]).schema
        with parquet.ParquetWriter(content, schema, compression="zstd") as writer:
            for name, parts in writers.items():
                line = 0
                for block in self._blocks(parts):
                    table = _parse(block)
                    added = {
                        "file": [_base(name)] * table.num_rows,
                        "block": [FOLDED_BLOCK] * table.num_rows,
                        "line": range(line, line + table.num_rows),
                    }
                    for column, values in added.items():
                        table = table.append_column(schema.field(column), pa.array(values, schema.field(column).type))
                    writer.write_table(table.select(schema.names))
                    line += table.num_rows
                records += line - 1
        return content.getvalue(), records

    def _blocks(self, parts: Sequence[str]) -> Iterator[bytes]:
        """Yield whole lines. :raises ValueError: there are holes, which take nothing of a disk but long to read."""
        for part in parts:
            with self._storage.open(part) as lines:
                if isinstance(self._storage, FolderStorage) and _hole_bytes(lines):
                    raise ValueError(f"{part} has holes")
                while block := lines.read(_BLOCK_BYTES):
                    yield block + lines.readline(_BLOCK_BYTES)


def _is_ledger_file(name: str) -> bool:
    return name.endswith(".jsonl") and not _base(name).startswith((".", "_"))


def _base(name: str) -> str:
    return name.rpartition("/")[2]


def _longest_text(table: pa.Table) -> int:
    texts = [each for each in table.columns if pa.types.is_string(each.type)]
    return max((compute.max(compute.binary_length(each)).as_py() or 0 for each in texts), default=0)


def _parse(block: bytes) -> pa.Table:
    schema = RowSchema(_RECORD).table([]).schema
    options = arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    reading = arrow_json.ReadOptions(use_threads=False, block_size=len(block) + 1)
    return arrow_json.read_json(BytesIO(block), read_options=reading, parse_options=options)
