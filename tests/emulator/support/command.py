"""The emulator as a process: its command line and its memory."""

from __future__ import annotations

import os
import subprocess
import sys

import psutil

from servicebus_emulator import EmulatorProcess


def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the command until it ends by itself."""
    command = [sys.executable, "-m", "servicebus_emulator", *arguments]
    environment = {**os.environ, **variables}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


def memory_of(process: EmulatorProcess) -> int:
    """Return the resident memory of a process, in bytes."""
    return int(psutil.Process(process.pid).memory_info().rss)
