"""Folds the closed ledger files of one folder into a Parquet file; whatever is interrupted, each record counts once.

``core.ledger.folded`` says how readers pass over files that are in it and still beside it.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Sequence
from io import BytesIO
from itertools import groupby
from typing import Final

import pyarrow as pa
from pyarrow import json as arrow_json
from pyarrow import parquet

from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.core.ledger import CLOSED, FOLD_LIST, FOLDED, ledger_storage, read_fold_list, writer_name
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


def fold(ledger: str, folder: str) -> tuple[int, int]:
    """Fold the closed files of a folder; return how many files and records there were.

    The Parquet file is in memory until it is written.

    :param folder: below the ledger.
    :raises ConfigurationError: a closed file is damaged; nothing was changed.
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
        """Return whether the last line closes a file, or its segments, with the number of all lines before it."""
        count, last = 0, b""
        for block in self._blocks(parts):
            count += block.count(b"\n")
            last = block.rstrip(b"\n").rpartition(b"\n")[2]
        try:
            closing = json.loads(last)
        except (ValueError, RecursionError):
            return False
        return isinstance(closing, dict) and closing.get("kind") == CLOSED and closing.get("records") == count - 1

    def _folded(self, writers: dict[str, tuple[str, ...]]) -> tuple[bytes, int]:
        content, records = BytesIO(), 0
        schema = FOLDED_SCHEMA.table([]).schema
        with parquet.ParquetWriter(content, schema, compression="zstd") as writer:
            for name, parts in writers.items():
                line = 0
                for block in self._blocks(parts):
                    table = _parse(block, name)
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
        """Yield whole lines."""
        for part in parts:
            with self._storage.open(part) as lines:
                while block := lines.read(_BLOCK_BYTES):
                    yield block + lines.readline(_BLOCK_BYTES)


def _is_ledger_file(name: str) -> bool:
    return name.endswith(".jsonl") and not _base(name).startswith((".", "_"))


def _base(name: str) -> str:
    return name.rpartition("/")[2]


def _parse(block: bytes, file: str) -> pa.Table:
    schema = RowSchema(_RECORD).table([]).schema
    options = arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    reading = arrow_json.ReadOptions(use_threads=False, block_size=len(block) + 1)
    try:
        return arrow_json.read_json(BytesIO(block), read_options=reading, parse_options=options)
    except pa.ArrowInvalid as error:
        raise ConfigurationError(f"ledger file {file} is damaged: {error}") from None
