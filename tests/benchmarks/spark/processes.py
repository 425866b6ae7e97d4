"""CPU time and memory of the processes of a local Spark: the JVM, the Python driver and the Python workers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

__all__ = ["Processes", "peak_bytes", "seconds"]

_KILOBYTE: Final = 1024
_DAEMON: Final = "pyspark.daemon"


@dataclass(frozen=True, slots=True)
class Processes:
    """This process and its children, by role.

    :param jvm: driver and, in local mode, executor.
    :param workers: the daemon and its forks.
    """

    jvm: tuple[psutil.Process, ...]
    workers: tuple[psutil.Process, ...]

    @classmethod
    def now(cls) -> Processes:
        """Return the current processes."""
        started = psutil.Process().children(recursive=True)
        jvm = tuple(each for each in started if _is(each, "java"))
        # Forks have the command line of the daemon.
        daemons = [each for java in jvm for each in _children(java) if _DAEMON in _words(each)]
        forked = [child for daemon in daemons for child in _children(daemon)]
        return cls(jvm, (*daemons, *forked))

    def workers_bytes(self) -> int:
        """The resident memory of all Python workers; shared pages count for each."""
        return sum(_resident(each) for each in self.workers)

    def workers_seconds(self) -> float:
        """The CPU time so far of the running Python workers."""
        return sum(seconds(each) for each in self.workers)


def peak_bytes(pid: int) -> int:
    """Return the peak memory of a process so far, from ``/proc``."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        name, _, value = line.partition(":")
        if name == "VmHWM":
            return int(value.split()[0]) * _KILOBYTE
    raise LookupError(f"the system does not tell the peak memory of process {pid}")


def _is(process: psutil.Process, name: str) -> bool:
    try:
        return process.name() == name
    except psutil.Error:
        return False


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children()
    except psutil.Error:
        return []


def _resident(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0


def seconds(process: psutil.Process) -> float:
    """Return the CPU time of a process so far; 0 once it has ended."""
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system)
