"""The ledger of a task (SPEC section 9): in a folder, or in any object store that Airflow knows."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from servicebus_pair.core import ledger
from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.core.events import Observer
from servicebus_pair.core.model import is_folder

StoragePath: TypeAlias = "str | os.PathLike[str]"


def open_ledger(folder: StoragePath, *, run: str) -> AbstractContextManager[Observer]:
    """Open a ledger in a folder or in an object store.

    :param folder: a path, the URL of a folder in an object store, or Airflow's ``ObjectStoragePath``.
    :param run: name of the run in the records.
    :raises ConfigurationError: it cannot be written.
    """
    try:
        url, files = _remote(folder) or (folder, None)
        return ledger.open_ledger(url, run=run, files=files)
    except (OSError, ValueError, ImportError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigurationError(
            f"ledger {str(folder)!r} cannot be written, {type(error).__name__}: {reason}: it must be a folder or an "
            "object store that the worker may write to"
        ) from error


@contextmanager
def local_copy(folder: StoragePath) -> Iterator[StoragePath]:
    """Return a folder with the files of a ledger: the folder itself, or for an object store a copy for this block.

    What lies in a folder is not copied: a file with holes may be larger than the disk.

    :raises ConfigurationError: the object store cannot be read.
    """
    remote = _remote(folder)
    if remote is None or is_folder(remote[0]):
        yield folder if remote is None else urlsplit(remote[0]).path
        return
    with TemporaryDirectory(prefix="servicebus-pair-ledger-") as copy:
        try:
            storage = ledger.ledger_storage(remote[0], files=remote[1])
            for number, each in enumerate(storage.list()):
                name = each.name.rpartition("/")[2]
                if name.endswith((".jsonl", ledger.FOLDED, ledger.FOLD_LIST)):
                    target = Path(copy, name)
                    target = Path(copy, f"{number}-{name}") if target.exists() else target
                    with storage.open(each.name) as source, target.open("wb") as copied:
                        shutil.copyfileobj(source, copied)
        except Exception as error:
            raise ConfigurationError(
                f"ledger {str(folder)!r} cannot be read, {type(error).__name__}: {error}"
            ) from error
        yield copy


def _remote(folder: StoragePath) -> tuple[str, Any] | None:
    """Return the URL of an object store and its file system; ``None`` for a folder of the worker."""
    if "://" not in str(folder):
        return None
    from airflow.sdk import ObjectStoragePath

    path: Any = folder if isinstance(folder, ObjectStoragePath) else ObjectStoragePath(str(folder))
    # Airflow's own text of it may name a connection.
    return f"{path.protocol}://{path.path}", None if is_folder(str(folder)) else path.fs
