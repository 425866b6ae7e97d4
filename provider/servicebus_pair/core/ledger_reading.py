"""Which files are a ledger, and which of their lines are records: one rule for all who read one.

Spark reads the same files: those named ``*.jsonl`` in the folder and in folders below it, without what begins with
``.`` or ``_``. A line is a record when it is a JSON object with all that :class:`Record` needs, of the right type;
others were torn by the end of a process or a disk.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.core.ledger import LEDGER_VERSION

__all__ = ["KINDS", "ROUTES", "Record", "check_version", "read_records"]

KINDS: Final = ("sent", "syphoned")
ROUTES: Final = ("primary", "backlog")


@dataclass(frozen=True, slots=True)
class Record:
    """One line of a ledger.

    :param kind: one of :data:`KINDS`.
    :param route: one of :data:`ROUTES`.
    :param at: seconds since the Unix epoch.
    """

    kind: str
    message_id: str
    entity: str
    route: str
    queue: str | None
    size_bytes: int
    at: float
    run: str


def read_records(folder: str | os.PathLike[str]) -> Iterator[Record | None]:
    """Yield the records of a ledger in the order of each file; ``None`` for a line that is none.

    :raises ConfigurationError: there is no such folder, or a record is of a version that this does not know.
    """
    directory = Path(folder)
    if not directory.is_dir():
        raise ConfigurationError(f"ledger {os.fspath(folder)!r} is no folder: it must be where ledgers were written")
    for file in _files(directory):
        with file.open("rb") as lines:
            yield from (_record(line) for line in lines if line.strip())


def check_version(version: int) -> None:
    """Refuse what a newer Ledger wrote. :raises ConfigurationError: naming the version."""
    if version > LEDGER_VERSION:
        raise ConfigurationError(f"the ledger holds records of version {version}: known is {LEDGER_VERSION}")


def _files(directory: Path) -> Iterator[Path]:
    for parent, folders, files in os.walk(directory):
        folders[:] = sorted(folder for folder in folders if not _hidden(folder))
        yield from (Path(parent, file) for file in sorted(files) if file.endswith(".jsonl") and not _hidden(file))


def _hidden(name: str) -> bool:
    return name.startswith((".", "_"))


def _record(line: bytes) -> Record | None:
    try:
        value = json.loads(line)
    except ValueError:
        return None
    if not isinstance(value, dict) or not _is_whole(value):
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
    )


def _is_whole(value: Mapping[str, Any]) -> bool:
    return (
        value.get("kind") in KINDS
        and value.get("route") in ROUTES
        and all(isinstance(value.get(name), str) for name in ("id", "entity"))
        and all(_is_number(value.get(name), int) for name in ("v", "bytes"))
        and _is_number(value.get("at"), int | float)
    )


def _is_number(value: Any, kind: Any) -> bool:
    # To Python, true is a number.
    return isinstance(value, kind) and not isinstance(value, bool)
