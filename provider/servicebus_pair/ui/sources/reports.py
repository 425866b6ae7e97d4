"""Reconcile reports, which a run's id finds below one configured folder or store; nothing that a task wrote names them.

``[servicebus_pair] reports`` is that folder, or the URL of an object store as ``ObjectStoragePath`` takes it. The
report of a run is ``{dag_id}/{run_id}/reconcile/report.html`` there, with ``summary.json`` next to it, with a run id
as :func:`run_folder` writes it.

A file is opened without following links and read only if it is a regular file of limited size, in threads of their own:
a file system that hangs holds up nothing else. Each piece of a report is read when it is sent, so none is held open or
in memory for a client that does not read.
"""

from __future__ import annotations

import json
import os
import re
import stat
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any, Final, TypeAlias

from servicebus_pair.airflow_runtime.run_folder import run_folder
from servicebus_pair.core.model import DaemonThread, get_logger

_log = get_logger(__name__)
_PART: Final = re.compile(r"[\w.~-]{1,250}", re.ASCII)
_FOLDER: Final = "reconcile"
_PIECE_BYTES: Final = 2**17
_REPORT: Final = "report.html"
_SUMMARY: Final = "summary.json"
_LIMITS: Final = {_REPORT: 20 * 2**20, _SUMMARY: 2**20}
# A missing summary is looked for again after this time; one that was found is final.
_RETRY_SECONDS: Final = 30.0
_MAX_SUMMARIES: Final = 5000
_QUEUED: Final = (inf, None)
_LOCAL_SCHEMES: Final = ("file", "local")
# Beyond it a browser rounds.
_LARGEST: Final = 2**53
_VERDICTS: Final = ("proven", "lost", "not proven")
# The size of a file first, and what else tells it from another of this name.
_Version: TypeAlias = tuple[int, ...]


def report_path(dag_id: str, run_id: str) -> tuple[str, str] | None:
    """Return the folders of a run below the root, or ``None`` for ids that cannot be names of folders."""
    parts = dag_id, run_folder(run_id)
    return parts if all(_PART.fullmatch(part) and part.strip(".") for part in parts) else None


@dataclass(frozen=True, slots=True)
class ReportSummary:
    """What a reconcile job found.

    :param verdict: one of SPEC section 9; ``None`` if an older version wrote the summary.
    """

    lost: int
    verdict: str | None


class ReportStore:
    """The reports below one root.

    :param root: folder or URL; without one there are no reports.
    """

    def __init__(self, root: str | None) -> None:
        self._root = root or None
        self._pages = DaemonThread("reconcile reports")
        self._summaries = DaemonThread("reconcile summaries")
        # By DAG and run id: when to look again, and what was found.
        self._found: dict[tuple[str, str], tuple[float, ReportSummary | None]] = {}

    async def page(self, dag_id: str, run_id: str) -> tuple[int, AsyncGenerator[bytes]] | None:
        """Return the size of a run's report and its pieces, or ``None`` if there is none.

        :raises TimeoutError: the file system hangs, here or when a piece is read.
        """
        found = await self._piece(dag_id, run_id, 0)
        return None if found is None else (found[0][0], self._pieces(dag_id, run_id, *found))

    async def _pieces(self, dag_id: str, run_id: str, version: _Version, first: bytes) -> AsyncGenerator[bytes]:
        yield first
        for start in range(_PIECE_BYTES, version[0], _PIECE_BYTES):
            found = await self._piece(dag_id, run_id, start)
            if found is None or found[0] != version:
                raise OSError(f"the report of {run_id!r} of {dag_id!r} was replaced while it was sent")
            yield found[1]

    async def _piece(self, dag_id: str, run_id: str, start: int) -> tuple[_Version, bytes] | None:
        return await self._pages.call(self._read, dag_id, run_id, _REPORT, start, start + _PIECE_BYTES)

    def summary(self, dag_id: str, run_id: str) -> ReportSummary | None:
        """Return a run's summary, or ``None`` if it has none or was not read yet.

        Never blocks: the summary is read in the background.
        """
        if self._root is None:
            return None
        key, now = (dag_id, run_id), time.monotonic()
        look_again, found = self._found.get(key, (0.0, None))
        if found is None and now >= look_again:
            if len(self._found) >= _MAX_SUMMARIES:
                for known in [each for each in list(self._found) if self._found[each] != _QUEUED]:
                    del self._found[known]
            # Queued once: behind a store that is slow, or hangs, lookups would pile up without limit.
            if len(self._found) < _MAX_SUMMARIES:
                self._found[key] = _QUEUED
                self._summaries.submit(self._look_up, key)
        return found

    def _look_up(self, key: tuple[str, str]) -> None:
        found = self._read(*key, _SUMMARY, 0, _LIMITS[_SUMMARY])
        summary = _parse_summary(None if found is None else found[1])
        self._found[key] = (time.monotonic() + _RETRY_SECONDS if summary is None else inf), summary

    def _read(self, dag_id: str, run_id: str, name: str, start: int, end: int) -> tuple[_Version, bytes] | None:
        """Return the bytes from ``start`` to ``end`` of a file of limited size."""
        folders = report_path(dag_id, run_id)
        if self._root is None or folders is None:
            return None
        parts = (*folders, _FOLDER, name)
        read = _read_object if "://" in self._root else _read_file
        try:
            version, content = read(self._root, parts, start, end)
        except FileNotFoundError:
            return None
        except Exception as error:  # noqa: BLE001  an object store raises what it likes
            _log.warning("dag_id=%r run_id=%r: its %s cannot be read: %s", dag_id, run_id, name, type(error).__name__)
            return None
        return (version, content) if version[0] <= _LIMITS[name] else None


def _parse_summary(content: bytes | None) -> ReportSummary | None:
    try:
        summary = {} if content is None else json.loads(content)
        lost, verdict = summary["totals"]["lost"], summary.get("judgement")
    except (ValueError, TypeError, LookupError, RecursionError, AttributeError):
        return None
    if not isinstance(lost, int) or isinstance(lost, bool) or not 0 <= lost <= _LARGEST:
        return None
    return ReportSummary(lost, verdict if verdict in _VERDICTS else None)


def _read_file(root: str, parts: Sequence[str], start: int, end: int) -> tuple[_Version, bytes]:
    """Read a part of a regular file. :raises OSError: a link or not a regular file."""
    flags = os.O_RDONLY | os.O_CLOEXEC
    with ExitStack() as opened:
        folder = os.open(root, flags | os.O_DIRECTORY)
        opened.callback(os.close, folder)
        for part in parts[:-1]:
            folder = os.open(part, flags | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
            opened.callback(os.close, folder)
        # Non-blocking: opening a pipe would wait for its writer.
        file = os.open(parts[-1], flags | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
        opened.callback(os.close, file)
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode):
            raise OSError("not a regular file")
        version = found.st_size, found.st_ino, found.st_mtime_ns
        return version, os.pread(file, min(end, found.st_size) - start, start) if start < found.st_size else b""


def _read_object(root: str, parts: Sequence[str], start: int, end: int) -> tuple[_Version, bytes]:
    scheme, _, path = root.partition("://")
    if scheme.lower() in _LOCAL_SCHEMES:
        return _read_file(str(Path(path)), parts, start, end)
    from airflow.sdk import ObjectStoragePath

    found: Any = ObjectStoragePath(root).joinpath(*parts)
    size = int(found.fs.size(found.path))
    # Of an empty object, stores refuse to read a part.
    return (size,), found.fs.cat_file(found.path, start=start, end=min(end, size)) if start < size else b""
