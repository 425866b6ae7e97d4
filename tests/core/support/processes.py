"""Kill a process that asyncio started."""

from __future__ import annotations

import os
import signal
from asyncio.subprocess import Process
from contextlib import suppress


def kill(process: Process) -> None:
    """Send SIGKILL to a process, which may have ended.

    ``Process.kill()`` polls first: a child that is just ending is then reaped before asyncio's watcher thread waits for
    it, which logs "Unknown child process" and reports the return code 255 (Python 3.11).
    """
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
