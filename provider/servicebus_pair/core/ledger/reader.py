"""Read the records of a ledger.

A ledger consists of the files ``*.jsonl`` in a folder and its subfolders, except names that begin with ``.`` or ``_``,
as Spark reads them, and of the Parquet files that ``compact`` has folded such files into. A line is a record if it is a
JSON object with every field of :class:`Record` and the right types; the line that closes a file is none, and other
lines were truncated when a process was killed or a disk was full.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from servicebus_pair.core.ledger.folded import FOLDED, folded_twice
from servicebus_pair.core.ledger.writer import CLOSED, LEDGER_VERSION
from servicebus_pair.core.model.errors import ConfigurationError
from servicebus_pair.core.model.events import Route

KINDS: Final = ("sent", "syphoned", "unspooled")
ROUTES: Final = tuple(map(str, Route))


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

    :raises ConfigurationError: the folder does not exist, or was compacted and there is no pyarrow to read it, or a
        record has an unknown version.
    """
    directory = Path(folder)
    if not directory.is_dir():
        raise ConfigurationError(
            f"ledger {os.fspath(folder)!r} is not a folder: it must be the folder that ledgers are written to"
        )
    twice = set(folded_twice(directory))
    for file in _files(directory):
        if file.name not in twice:
            values = _folded(file) if file.suffix == FOLDED else _lines(file)
            yield from (_parse(value) for value in values if not _is_closing(value))


def check_version(version: int) -> None:
    """Reject records of a newer version. :raises ConfigurationError: ``version`` is unknown."""
    if version > LEDGER_VERSION:
        raise ConfigurationError(
            f"the ledger contains records of version {version}: this version reads up to {LEDGER_VERSION}"
        )


def _files(directory: Path) -> Iterator[Path]:
    for parent, folders, files in os.walk(directory):
        folders[:] = sorted(folder for folder in folders if not _hidden(folder))
        yield from (
            Path(parent, file) for file in sorted(files) if file.endswith((".jsonl", FOLDED)) and not _hidden(file)
        )


def _hidden(name: str) -> bool:
    return name.startswith((".", "_"))


def _lines(file: Path) -> Iterator[Any]:
    with file.open("rb") as lines:
        yield from (_load(line) for line in lines if line.strip())


def _folded(file: Path) -> Iterator[Any]:
    try:
        from pyarrow.parquet import ParquetFile
    except ImportError:
        raise ConfigurationError(f"ledger file {file} was compacted: install pyarrow to read it") from None
    with ParquetFile(file) as folded:
        for batch in folded.iter_batches():
            yield from batch.to_pylist()


def _load(line: bytes) -> Any:
    try:
        return json.loads(line)
    except ValueError:
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
    )


def _is_number(value: Any, kind: Any) -> bool:
    # bool is a subclass of int.
    return isinstance(value, kind) and not isinstance(value, bool)
