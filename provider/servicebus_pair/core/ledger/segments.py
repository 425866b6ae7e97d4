"""A ledger in any store that fsspec knows: each process writes segments, which are complete and never change.

An object store takes no appends. The segments of a writer are ``WRITER-00000000.jsonl`` and so on, and together what
is one file in a folder: the last line of the last segment counts the records of all.
"""

from __future__ import annotations

import os
import re
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from servicebus_pair.core.ledger.partitions import partition_path
from servicebus_pair.core.ledger.writer import Ledger, LedgerWriter
from servicebus_pair.core.model.errors import ConfigurationError, ObserverError
from servicebus_pair.core.spool.folder_storage import SHARED_MODE
from servicebus_pair.core.spool.location import open_storage
from servicebus_pair.core.spool.object_storage import ObjectStorage
from servicebus_pair.core.spool.storage import SpoolStorage, StreamedStorage

SEGMENT: Final = r"-([0-9]{8})\.jsonl$"
"""The end of a segment's name, with its number."""
_SEGMENT: Final = re.compile(SEGMENT)
_FLUSH_SECONDS: Final = 10.0


class SegmentedLedger(LedgerWriter):
    """Writes the ledger of one process as segments.

    A move is in the store before ``observe`` returns, so before its message leaves the backlog. Records of sends are
    written by :meth:`flush`, when the ledger is closed, and with the first record after ten seconds: a process that is
    killed before may have sent messages without a record.

    :raises ObserverError: from each method: the store does not take a segment.
    """

    def __init__(self, storage: SpoolStorage, *, run: str) -> None:
        super().__init__(run=run)
        self._storage = storage
        self._writer = uuid.uuid4().hex
        self.name = f"{self._writer}.jsonl"
        self._folder = partition_path(run, at=time.time())
        self._pending: list[str] = []
        self._segments = 0
        self._flushed_at = time.monotonic()
        self._closed = False

    def flush(self) -> None:
        """Write a segment with all records since the last one."""
        self._flushed_at = time.monotonic()
        if not self._pending:
            return
        name = f"{self._folder}/{self._writer}-{self._segments:08d}.jsonl"
        try:
            self._storage.replace(name, "".join(self._pending).encode())
        except Exception as error:
            raise ObserverError(
                f"the ledger {self._storage.place} cannot be written, {type(error).__name__}: {error}"
            ) from error
        self._segments += 1
        self._pending.clear()

    def close(self) -> None:
        """Write the rest and the line that closes the file; a ledger without records leaves nothing."""
        if not self._closed and self.records:
            self._pending.append(self._closing_line())
            self._closed = True
            self.flush()
        self._closed = True

    def _append(self, kind: str, lines: Sequence[str]) -> None:
        if self._closed:
            raise ValueError("the ledger is closed")
        self._pending += lines
        self.records += len(lines)
        if kind != "sent" or time.monotonic() - self._flushed_at >= _FLUSH_SECONDS:
            self.flush()


def open_ledger(location: str | os.PathLike[str], *, run: str, files: Any = None) -> LedgerWriter:
    """Open a ledger for writing: a file in a folder, or segments below a URL, also one of ``file:``.

    :param files: fsspec's file system of the URL, if it has credentials of its own.

    :raises ConfigurationError: the library of the URL is not installed.
    :raises OSError: the folder cannot be written.
    """
    if "://" in str(location):
        return SegmentedLedger(ledger_storage(location, files=files), run=run)
    return Ledger(location, run=run)


def ledger_storage(location: str | os.PathLike[str], *, files: Any = None) -> StreamedStorage:
    """Return the storage of a ledger; see :func:`open_ledger`."""
    text = str(location)
    if files is not None:
        return ObjectStorage(text, what="ledger", files=files)
    return open_storage(text if "://" in text else str(Path(text).absolute()), what="ledger", mode=SHARED_MODE)


def check_ledger(location: str | os.PathLike[str]) -> None:
    """Check that a ledger can be written; its folder is created. :raises ConfigurationError: it cannot be written."""
    if "://" not in str(location):
        try:
            Path(location).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigurationError(f"ledger folder {str(location)!r} cannot be created: {error.strerror}") from None
        return
    storage, name = ledger_storage(location), f".check-{uuid.uuid4().hex}"
    try:
        storage.replace(name, b"")
        with suppress(Exception):  # it may be forbidden, and is not needed to write
            storage.delete(name)
    except Exception as error:
        raise ConfigurationError(
            f"ledger {str(location)!r} cannot be written, {type(error).__name__}: {error}"
        ) from error


def writer_name(name: str) -> str:
    """Return the name under which a manifest has a file, which for a segment is that of all segments."""
    return _SEGMENT.sub(".jsonl", name)
