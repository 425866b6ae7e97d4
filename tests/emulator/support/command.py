"""The emulator as a process: its command line and its memory."""

from __future__ import annotations

import io
import subprocess
import sys
from contextlib import redirect_stderr
from unittest import mock

import psutil
import pytest

from servicebus_emulator import EmulatorProcess, __main__


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command until it ends by itself."""
    command = [sys.executable, "-m", "servicebus_emulator", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def refusal_of(*arguments: str) -> str:
    """Return what the command prints when it refuses its arguments; without a process, whose start takes seconds."""
    configure_no_log = mock.patch.object(__main__, "configure")
    with configure_no_log, redirect_stderr(io.StringIO()) as printed, pytest.raises(SystemExit) as ended:
        __main__.main(arguments)
    assert ended.value.code == 2
    return printed.getvalue()


def memory_of(process: EmulatorProcess) -> int:
    """Return the resident memory of a process, in bytes."""
    return int(psutil.Process(process.pid).memory_info().rss)
