"""Which files of a ledger are still being written: while messages are being sent, there is nothing to prove."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from servicebus_pair.core.ledger.partitions import days_since
from servicebus_pair.core.ledger.writer import CLOSED
from servicebus_pair.core.model.regular_files import IrregularFileError, files_below, open_regular

_BEGAN_WITHIN: Final = 2 * 86_400.0
_LAST_LINE_BYTES: Final = 4096


def open_files(folder: str | os.PathLike[str], *, now: float, silence: float) -> Iterator[Path]:
    """Yield the files that are not closed, and that were written to within ``silence`` seconds.

    A file that has been silent for longer was left by a process that was killed. Files of runs that began more than two
    days ago are not looked at.
    """
    for day in days_since(now - _BEGAN_WITHIN, now=now):
        for file in files_below(Path(folder, day), (".jsonl",)):
            if now - file.lstat().st_mtime < silence and not _is_closed(file):
                yield file


def _is_closed(file: Path) -> bool:
    try:
        opened = open_regular(file)
    except IrregularFileError:
        return True  # nobody writes the ledger there
    except PermissionError:
        return False
    with opened as content:
        content.seek(max(0, content.seek(0, os.SEEK_END) - _LAST_LINE_BYTES))
        _, _, last = content.read(_LAST_LINE_BYTES).rstrip(b"\n").rpartition(b"\n")
    try:
        return bool(json.loads(last)["kind"] == CLOSED)
    except (ValueError, LookupError, TypeError, RecursionError):
        return False
