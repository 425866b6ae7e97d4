"""Read the records of a ledger.

A ledger consists of the files ``*.jsonl`` in a folder and its subfolders, except names that begin with ``.`` or ``_``,
as Spark reads them, and of the Parquet files that ``compact`` has folded such files into. A line is a record if it is a
JSON object with every field of :class:`Record`, the right types and possible values; the line that closes a file is
none, and other lines were truncated when a process was killed or a disk was full.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any, Final

from servicebus_pair.core.ledger.folded import FOLDED, folded_problem, folded_twice, footer_problem
from servicebus_pair.core.ledger.writer import CLOSED, LEDGER_VERSION
from servicebus_pair.core.model.errors import ConfigurationError
from servicebus_pair.core.model.events import Route
from servicebus_pair.core.model.logs import get_logger
from servicebus_pair.core.model.regular_files import IrregularFileError, files_below, open_regular

KINDS: Final = ("sent", "syphoned", "unspooled")
ROUTES: Final = tuple(map(str, Route))
MAX_BYTES: Final = 2**53
"""Largest size in a record: whoever writes a record must not be able to make its reader count for ever."""
MAX_AT: Final = 4_102_444_799
"""Latest time in a record, the last second of the year 2099: reports count days up to it."""
MAX_TEXT_BYTES: Final = 4096
"""Longest text in a record; message ids have at most 128 characters."""
_TEXTS: Final = ("id", "entity", "queue", "run", "digest", "spool")
_MAX_LINE_BYTES: Final = 65_536
# More than records take in a file. A crash leaves one line of some hundred bytes, or zeros at the end.
_MAX_UNREADABLE_BYTES: Final = 1 << 18
_FOLDED_BYTES: Final = 256  # of a record, as a line
_NO_LINE: Final = object()
_FIELDS: Final = (*_TEXTS, "v", "kind", "route", "bytes", "at", "records")
_log: Final = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Record:
    """A record of a ledger.

    :param kind: one of :data:`KINDS`.
    :param route: one of :data:`ROUTES`.
    :param at: seconds since the Unix epoch.
    :param spool: name of the spool that the message went to or came from.
    """

    kind: str
    message_id: str
    entity: str
    route: str
    queue: str | None
    size_bytes: int
    at: float
    run: str
    spool: str | None = None


def read_records(folder: str | os.PathLike[str]) -> Iterator[Record | None]:
    """Yield the records of a ledger in file order, and ``None`` for each unreadable line.

    A file of which much more is unreadable than records take is not read to its end, and a warning names it.

    :raises ConfigurationError: the folder does not exist, or was compacted and there is no pyarrow to read it, or a
        record has an unknown version.
    """
    directory = Path(folder)
    if not directory.is_dir():
        raise ConfigurationError(
            f"ledger {os.fspath(folder)!r} is not a folder: it must be the folder that ledgers are written to"
        )
    twice = set(folded_twice(directory))
    for file in files_below(directory, (".jsonl", FOLDED), hidden=(".", "_")):
        if file.name not in twice:
            yield from _records(file)


def check_version(version: int) -> None:
    """Reject records of a newer version. :raises ConfigurationError: ``version`` is unknown."""
    if version > LEDGER_VERSION:
        raise ConfigurationError(
            f"the ledger contains records of version {version}: this version reads up to {LEDGER_VERSION}"
        )


def _records(file: Path) -> Iterator[Record | None]:
    # Whoever plants a terabyte of holes, which take nothing of a disk, must not have it read.
    unreadable_bytes = 0
    for value, size_bytes in _folded(file) if file.suffix == FOLDED else _lines(file):
        record = None
        if value is not _NO_LINE and not _is_closing(value):
            record = _parse(value)
            yield record
        unreadable_bytes += size_bytes if record is None else -size_bytes
        if unreadable_bytes > _MAX_UNREADABLE_BYTES:
            _log.warning("ledger file %r is not read to its end: too much of it is unreadable", str(file))
            yield None
            return


def _lines(file: Path) -> Iterator[tuple[Any, int]]:
    """Yield what each line holds, and its size; of a blank one, and for each part of one that is too long, nothing."""
    try:
        opened = open_regular(file)
    except (IrregularFileError, PermissionError):
        yield None, 0
        return
    with opened:
        while line := opened.readline(_MAX_LINE_BYTES):
            if len(line) < _MAX_LINE_BYTES or line.endswith(b"\n"):
                yield _load(line) if line.strip() else _NO_LINE, len(line)
                continue
            while (rest := opened.readline(_MAX_LINE_BYTES)) and not rest.endswith(b"\n"):
                yield _NO_LINE, len(rest)
            yield None, _MAX_LINE_BYTES


def _folded(file: Path) -> Iterator[tuple[Any, int]]:
    try:
        import pyarrow as pa
        from pyarrow import compute, parquet
    except ImportError:
        raise ConfigurationError(f"ledger file {file} was compacted: install pyarrow to read it") from None
    try:
        with open_regular(file) as opened:
            _refuse(file, footer_problem(opened))
            folded = parquet.ParquetFile(opened)
            _refuse(file, folded_problem(folded.metadata, opened))
            columns = [each.name for each in folded.schema_arrow if each.name in _FIELDS and _is_value(each.type)]
            # As dictionaries, or a text that is written once and repeated by number would be terabytes.
            folded = parquet.ParquetFile(opened, metadata=folded.metadata, read_dictionary=columns)
            for batch in folded.iter_batches(columns=columns):
                texts = [each.dictionary for each in batch.columns if pa.types.is_dictionary(each.type)]
                lengths = [compute.max(compute.binary_length(each)).as_py() for each in texts]
                too_long = any(each is not None and each > MAX_TEXT_BYTES for each in lengths)
                rows = repeat(None, batch.num_rows) if too_long else _rows(batch)
                yield from zip(rows, repeat(_FOLDED_BYTES))
    except IrregularFileError:
        yield None, 0
    except (pa.ArrowException, OSError, LookupError, UnicodeError) as error:
        raise ConfigurationError(f"ledger file {file} is damaged: {error}") from None


def _is_value(kind: Any) -> bool:
    """Return whether ``compact`` writes such a column; others would be read as they are."""
    from pyarrow import types

    value = kind.value_type if types.is_dictionary(kind) else kind
    return any(each(value) for each in (types.is_string, types.is_integer, types.is_floating))


def _rows(batch: Any) -> Iterator[dict[str, Any]]:
    # A text that is repeated by number is decoded once.
    columns = [_values(each) if hasattr(each, "dictionary") else each.to_pylist() for each in batch.columns]
    return (dict(zip(batch.schema.names, row, strict=True)) for row in zip(*columns, strict=True))


def _values(column: Any) -> list[str | None]:
    texts = column.dictionary.to_pylist()
    return [None if index is None else texts[index] for index in column.indices.to_pylist()]


def _refuse(file: Path, problem: str | None) -> None:
    if problem is not None:
        raise ConfigurationError(f"ledger file {file} {problem}: delete it")


def _load(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _is_closing(value: Any) -> bool:
    return isinstance(value, dict) and value.get("kind") == CLOSED and _is_number(value.get("records"), int)


def _parse(value: Any) -> Record | None:
    if not isinstance(value, dict) or not _is_complete(value):
        return None
    check_version(value["v"])
    return Record(
        kind=value["kind"],
        message_id=value["id"],
        entity=value["entity"],
        route=value["route"],
        queue=value.get("queue"),
        size_bytes=value["bytes"],
        at=float(value["at"]),
        run=value.get("run") or "",
        spool=value.get("spool"),
    )


def _is_complete(value: Mapping[str, Any]) -> bool:
    return (
        value.get("kind") in KINDS
        and value.get("route") in ROUTES
        and all(isinstance(value.get(name), str) for name in ("id", "entity"))
        and all(_is_number(value.get(name), int) for name in ("v", "bytes"))
        and _is_number(value.get("at"), int | float)
        and value["bytes"] <= MAX_BYTES
        and value["at"] <= MAX_AT
        and all(len(str(value.get(name)).encode(errors="replace")) <= MAX_TEXT_BYTES for name in _TEXTS)
    )


def _is_number(value: Any, kind: Any) -> bool:
    # bool is a subclass of int, and NaN is in no order.
    return isinstance(value, kind) and not isinstance(value, bool) and value >= 0
