"""Elects one API-server process to poll a pair and shares its result with the others.

The leader holds an exclusive flock(2) on a file and writes its results next to it; the other processes read them. The
kernel releases the lock when the leader exits or dies. If the folder is unusable, each process polls for itself.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

from servicebus_pair.core.model import get_logger

if TYPE_CHECKING:
    from pydantic import TypeAdapter

    from servicebus_pair.ui.sources.collector import PairStatus

_log = get_logger(__name__)
# An older result is ignored: its writer has stopped.
_MAX_AGE_SECONDS: Final = 60.0


class LeaderLock:
    """Leadership for one pair among the processes that use the same folder.

    The files contain no secret and are readable by this user only.

    :param folder: folder of the lock and result files; ``None`` for a single process.
    :param conn_id: connection id of the pair.
    """

    def __init__(self, folder: Path | None, conn_id: str) -> None:
        name = hashlib.sha256(conn_id.encode()).hexdigest()[:16]
        self._folder = folder
        self._lock_path = None if folder is None else folder / f"{name}.lock"
        self._status_path = None if folder is None else folder / f"{name}.json"
        self._lock_fd: int | None = None

    def try_acquire(self) -> bool:
        """Return whether this process is the leader now, without blocking; always true without a usable folder."""
        if self._lock_path is None or self._lock_fd is not None:
            return True
        try:
            self._lock_path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            fd = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            _log.warning("%s is not usable, so each process polls for itself: %s", self._folder, error)
            self._lock_path = self._status_path = None
            return True
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            return False
        self._lock_fd = fd
        return True

    def release(self) -> None:
        """Give up leadership."""
        if self._lock_fd is not None:
            os.close(self._lock_fd)
            self._lock_fd = None

    def publish(self, status: PairStatus) -> None:
        """Write a result for the other processes, atomically."""
        if self._status_path is None:
            return
        temporary = self._status_path.with_suffix(f".{os.getpid()}")
        try:
            temporary.touch(mode=0o600)
            temporary.write_bytes(self._adapter.dump_json(status))
            temporary.replace(self._status_path)
        except OSError as error:
            _log.warning("%s: cannot share the status with other processes: %s", self._folder, error)

    def read(self) -> PairStatus | None:
        """Return the last published result, or ``None`` if there is none less than 60 s old."""
        if self._status_path is None:
            return None
        try:
            if time.time() - self._status_path.stat().st_mtime > _MAX_AGE_SECONDS:
                return None
            return self._adapter.validate_json(self._status_path.read_bytes())
        except OSError:
            return None
        except ValueError as error:
            _log.warning("%s: cannot read the status that another process wrote: %s", self._folder, error)
            return None

    @cached_property
    def _adapter(self) -> TypeAdapter[PairStatus]:
        from pydantic import TypeAdapter

        # pydantic resolves the annotations of PairStatus in this scope.
        from servicebus_pair.core.protocol import BacklogPlan  # noqa: F401
        from servicebus_pair.core.sdk import QueueDepth  # noqa: F401
        from servicebus_pair.ui.sources.collector import PairStatus

        return TypeAdapter(PairStatus)
