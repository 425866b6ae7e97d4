"""The processes of a local Spark, and what they take: the JVM, the Python driver, the Python workers."""

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
    """Some of this process and its children.

    :param jvm: the driver's, which in local mode is the executor's as well.
    :param workers: the daemon and what it has forked.
    """

    jvm: tuple[psutil.Process, ...]
    workers: tuple[psutil.Process, ...]

    @classmethod
    def now(cls) -> Processes:
        """Look at what there is."""
        started = psutil.Process().children(recursive=True)
        jvm = tuple(each for each in started if _is(each, "java"))
        # What a daemon forks bears its words as well.
        daemons = [each for java in jvm for each in _children(java) if _DAEMON in _words(each)]
        forked = [child for daemon in daemons for child in _children(daemon)]
        return cls(jvm, (*daemons, *forked))

    def workers_bytes(self) -> int:
        """What the Python workers hold now, all together; what they share with one another counts for each."""
        return sum(_resident(each) for each in self.workers)

    def workers_seconds(self) -> float:
        """The processor time so far of the Python workers that are there."""
        return sum(seconds(each) for each in self.workers)


def peak_bytes(pid: int) -> int:
    """Answer the most that a process has held so far, as Linux tells it."""
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
    """Answer the processor time of a process so far; 0 once it has ended."""
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system)
