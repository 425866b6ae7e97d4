"""The ledger of a task (SPEC section 9): in a folder, or in any object store that Airflow knows.

An object cannot be appended to. So the records of a task are written to a file on the worker first, as in a folder, and
that file becomes an object every ten seconds and when the task ends. A worker that is killed loses the records since.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Self, TypeAlias

from servicebus_pair.core import Ledger
from servicebus_pair.core.errors import ConfigurationError, ObserverError
from servicebus_pair.core.events import Event, Observer

StoragePath: TypeAlias = "str | os.PathLike[str]"
_OBJECT_SECONDS: Final = 10.0


def open_ledger(folder: StoragePath, *, run: str) -> AbstractContextManager[Observer]:
    """Open a ledger in a folder or in an object store.

    :param folder: a path, the URL of a folder in an object store, or Airflow's ``ObjectStoragePath``.
    :param run: name of the run in the records.
    :raises ConfigurationError: it cannot be written.
    """
    try:
        remote = _remote(folder)
        return Ledger(folder, run=run) if remote is None else ObjectLedger(remote, run=run)
    except (OSError, ValueError, ImportError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigurationError(
            f"ledger {str(folder)!r} cannot be written, {type(error).__name__}: {reason}: it must be a folder or an "
            "object store that the worker may write to"
        ) from error


@contextmanager
def local_copy(folder: StoragePath) -> Iterator[StoragePath]:
    """Return a folder with the files of a ledger: the folder itself, or for an object store a copy for this block.

    :raises ConfigurationError: the object store cannot be read.
    """
    remote = _remote(folder)
    if remote is None:
        yield folder
        return
    with TemporaryDirectory(prefix="servicebus-pair-ledger-") as copy:
        try:
            for number, each in enumerate(remote.rglob("*.jsonl")):
                Path(copy, f"{number}.jsonl").write_bytes(each.read_bytes())
        except Exception as error:
            raise ConfigurationError(
                f"ledger {str(folder)!r} cannot be read, {type(error).__name__}: {error}"
            ) from error
        yield copy


class ObjectLedger:
    """Observer that writes the ledger of one process to an object store; a context manager.

    :param folder: an ``ObjectStoragePath``.
    :param run: name of the run in the records.
    """

    def __init__(self, folder: Any, *, run: str) -> None:
        self._folder = folder
        self._run = run
        self._scratch = TemporaryDirectory(prefix="servicebus-pair-ledger-")
        self._uploads = ThreadPoolExecutor(1, thread_name_prefix="ledger")
        self._last: Future[None] | None = None
        self._file = self._new_file()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def observe(self, event: Event) -> None:
        """Record accepted and moved messages; ignore other events.

        :raises ObserverError: an earlier part could not be written.
        """
        self._file.observe(event)
        if time.monotonic() - self._began >= _OBJECT_SECONDS and (self._last is None or self._last.done()):
            self._check_last()
            self._upload()
            self._file = self._new_file()

    def close(self) -> None:
        """Write the rest. :raises ObserverError: it, or an earlier part, could not be written."""
        self._upload()
        self._uploads.shutdown()
        self._scratch.cleanup()
        self._check_last()

    def _new_file(self) -> Ledger:
        self._began = time.monotonic()
        file = Ledger(self._scratch.name, run=self._run)
        # Here, because the thread could not read Airflow's connection.
        self._place(file).parent.mkdir(parents=True, exist_ok=True)
        return file

    def _place(self, file: Ledger) -> Any:
        return self._folder.joinpath(*file.path.relative_to(self._scratch.name).parts)

    def _upload(self) -> None:
        file, before = self._file, self._last
        file.close()
        self._last = self._uploads.submit(self._write, file, before)

    def _write(self, file: Ledger, before: Future[None] | None) -> None:
        if before is not None:
            before.result()
        content = file.path.read_bytes()
        file.path.unlink()
        if file.records:
            self._place(file).write_bytes(content)

    def _check_last(self) -> None:
        error = None if self._last is None else self._last.exception()
        if error is not None:
            raise ObserverError(
                f"ledger {str(self._folder)!r} cannot be written, {type(error).__name__}: {error}"
            ) from error


def _remote(folder: StoragePath) -> Any:
    """Return the place in an object store, or ``None`` for a folder of the worker."""
    if "://" not in str(folder):
        return None
    from airflow.sdk import ObjectStoragePath

    path: Any = folder if isinstance(folder, ObjectStoragePath) else ObjectStoragePath(str(folder))
    return path
