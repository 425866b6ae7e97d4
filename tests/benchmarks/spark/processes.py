"""CPU time and memory of the processes of a local Spark: the JVM, the Python driver and the Python workers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import psutil

ResultT = TypeVar("ResultT")
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
        started = psutil.Process().children(recursive=True)
        jvm = tuple(each for each in started if _while_alive(each.name) == "java")
        # Forks have the command line of the daemon.
        daemons = [each for java in jvm for each in _children(java) if _DAEMON in (_while_alive(each.cmdline) or ())]
        forked = [child for daemon in daemons for child in _children(daemon)]
        return cls(jvm, (*daemons, *forked))

    def workers_bytes(self) -> int:
        """The resident memory of all Python workers; shared pages count for each."""
        memory = (_while_alive(each.memory_info) for each in self.workers)
        return sum(int(each.rss) for each in memory if each is not None)

    def workers_seconds(self) -> float:
        """The CPU time so far of the running Python workers."""
        return sum(map(seconds, self.workers))


def peak_bytes(pid: int) -> int:
    """Return the peak memory of a process so far, from ``/proc``."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        name, _, value = line.partition(":")
        if name == "VmHWM":
            return int(value.split()[0]) * _KILOBYTE
    raise LookupError(f"/proc/{pid}/status does not contain the peak memory")


def seconds(process: psutil.Process) -> float:
    """Return the CPU time of a process so far; 0 once it has ended."""
    times = _while_alive(process.cpu_times)
    return 0.0 if times is None else float(times.user + times.system)


def _children(process: psutil.Process) -> list[psutil.Process]:
    return _while_alive(process.children) or []


def _while_alive(read: Callable[[], ResultT]) -> ResultT | None:
    """Return what is read from a process, or ``None`` once it has ended."""
    try:
        return read()
    except psutil.Error:
        return None
