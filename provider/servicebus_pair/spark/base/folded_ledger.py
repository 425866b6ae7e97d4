"""Folds the closed ledger files of one folder into a Parquet file; whatever is interrupted, each record counts once.

While a list ``NAME.folded`` lies beside ``NAME.parquet``, the files in it may still be there, and readers pass over
them: the list is written before the Parquet file gets its name, and deleted after the files.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyarrow import json as arrow_json
from pyarrow import parquet

from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.core.ledger import CLOSED
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
_LIST: Final = ".folded"
_BLOCK_BYTES: Final = 32_000_000
_TAIL_BYTES: Final = 65_536


def fold(folder: Path) -> tuple[int, int]:
    """Fold the closed files of a folder; return how many files and records there were.

    :raises ConfigurationError: a closed file is damaged; nothing was changed.
    """
    _finish(folder)
    files = [
        file for file in sorted(folder.glob("*.jsonl")) if not file.name.startswith((".", "_")) and _is_closed(file)
    ]
    if not files:
        return 0, 0
    target = folder / f"{uuid.uuid4().hex}.parquet"
    temporary, names = folder / f".{target.name}", target.with_suffix(_LIST)
    records = _write(temporary, files)
    with names.open("x", encoding="utf-8") as file:
        json.dump([each.name for each in files], file)
        file.flush()
        os.fsync(file.fileno())
    _sync(folder)  # the list before the Parquet file, or a power failure would count records twice
    temporary.replace(target)
    _sync(folder)
    for each in files:
        each.unlink()
    _sync(folder)
    names.unlink()
    return len(files), records


def folded_twice(folder: Path) -> list[str]:
    """Return the names of files that are in a Parquet file already, after an interrupted :func:`fold`."""
    lists = (each for each in folder.rglob(f"*{_LIST}") if each.with_suffix(".parquet").exists())
    return [name for each in lists for name in json.loads(each.read_text(encoding="utf-8"))]


def _finish(folder: Path) -> None:
    """Complete or undo what an earlier fold has left."""
    for temporary in folder.glob(".*.parquet"):
        temporary.unlink()
    for names in folder.glob(f"*{_LIST}"):
        if names.with_suffix(".parquet").exists():
            for name in json.loads(names.read_text(encoding="utf-8")):
                (folder / name).unlink(missing_ok=True)
            _sync(folder)
        names.unlink()


def _is_closed(file: Path) -> bool:
    """Return whether the last line closes the file with the number of all lines before it."""
    with file.open("rb") as lines:
        lines.seek(max(0, file.stat().st_size - _TAIL_BYTES))
        last = lines.read().rstrip(b"\n").rpartition(b"\n")[2]
        try:
            closing = json.loads(last)
        except ValueError:
            return False
        if not isinstance(closing, dict) or closing.get("kind") != CLOSED:
            return False
        lines.seek(0)
        count = sum(block.count(b"\n") for block in iter(lambda: lines.read(_BLOCK_BYTES), b""))
    return closing.get("records") == count - 1


def _write(path: Path, files: Sequence[Path]) -> int:
    records = 0
    schema = FOLDED_SCHEMA.table([]).schema
    with parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        for file in files:
            line = 0
            for block in _blocks(file):
                table = _parse(block, file)
                added = {
                    "file": [file.name] * table.num_rows,
                    "block": [FOLDED_BLOCK] * table.num_rows,
                    "line": range(line, line + table.num_rows),
                }
                for name, values in added.items():
                    table = table.append_column(schema.field(name), pa.array(values, schema.field(name).type))
                writer.write_table(table.select(schema.names))
                line += table.num_rows
            records += line - 1
    with path.open("rb") as written:
        os.fsync(written.fileno())
    return records


def _blocks(file: Path) -> Iterator[bytes]:
    """Yield whole lines."""
    with file.open("rb") as lines:
        while block := lines.read(_BLOCK_BYTES):
            yield block + lines.readline()


def _parse(block: bytes, file: Path) -> pa.Table:
    schema = RowSchema(_RECORD).table([]).schema
    options = arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    reading = arrow_json.ReadOptions(use_threads=False, block_size=len(block) + 1)
    try:
        return arrow_json.read_json(BytesIO(block), read_options=reading, parse_options=options)
    except pa.ArrowInvalid as error:
        raise ConfigurationError(f"ledger file {file} is damaged: {error}") from None


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
