"""Which of the server's processes looks at a pair, and what it saw, for those beside it.

An API server has several processes, and viewers meet any of them. Whoever holds the lock of a file looks, and writes
down what it saw; the others read that. The system lets the lock go when its holder dies, and another takes it
(flock(2)). Where the folder cannot be used, each process looks for itself.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pydantic import TypeAdapter

    from servicebus_pair.ui.looking import Look

__all__ = ["Turn"]

_log = logging.getLogger(__name__)
# What nobody has renewed for so long says nothing about now.
_FRESH_SECONDS: Final = 60.0


class Turn:
    """The turn to look at one pair, among the processes that use the same folder.

    What is written holds no secret; only this user can read it.

    :param folder: where the files are; ``None`` when there is nobody to share with.
    :param conn_id: of the pair.
    """

    def __init__(self, folder: Path | None, conn_id: str) -> None:
        name = hashlib.sha256(conn_id.encode()).hexdigest()[:16]
        self._folder = folder
        self._lock_file = None if folder is None else folder / f"{name}.lock"
        self._seen_file = None if folder is None else folder / f"{name}.json"
        self._lock: int | None = None
        self._adapter: TypeAdapter[Look] | None = None

    def take(self) -> bool:
        """Answer whether this process is to look: it is its turn already, or nobody else's."""
        if self._lock_file is None or self._lock is not None:
            return True
        try:
            self._lock_file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(self._lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            _log.warning("%s cannot be used, so each process looks for itself: %s", self._folder, error)
            self._lock_file = self._seen_file = None
            return True
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            return False
        self._lock = lock
        return True

    def leave(self) -> None:
        """Let another process look, as when nobody asks this one any more."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def put(self, look: Look) -> None:
        """Tell the others what was seen."""
        if self._seen_file is None:
            return
        fresh = self._seen_file.with_suffix(f".{os.getpid()}")
        try:
            fresh.touch(mode=0o600)
            fresh.write_bytes(self._form().dump_json(look))
            fresh.replace(self._seen_file)
        except OSError as error:
            _log.warning("%s: what was seen cannot be shared: %s", self._folder, error)

    def get(self) -> Look | None:
        """Return what was seen last by whoever looked, unless that is long ago."""
        if self._seen_file is None:
            return None
        try:
            if time.time() - self._seen_file.stat().st_mtime > _FRESH_SECONDS:
                return None
            return self._form().validate_json(self._seen_file.read_bytes())
        except OSError:
            return None
        except ValueError as error:
            _log.warning("%s: what another process saw cannot be read: %s", self._folder, error)
            return None

    def _form(self) -> TypeAdapter[Look]:
        if self._adapter is None:
            from pydantic import TypeAdapter

            # Names in its annotations, which are looked for here.
            from servicebus_pair.core.administration import QueueDepth  # noqa: F401
            from servicebus_pair.core.backlog import BacklogPlan  # noqa: F401
            from servicebus_pair.ui.looking import Look

            self._adapter = TypeAdapter(Look)
        return self._adapter
