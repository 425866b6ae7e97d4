"""Who runs a task of Spark right now, and its end by SIGKILL in the middle of that task."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from tests.spark.recorded import wait_until

__all__ = ["EXECUTOR", "caught_at_work", "hosting"]

EXECUTOR = "ExecutorBackend"


def at_work(roots: Iterable[int], ledger: Path, *, records: int) -> list[psutil.Process]:
    """Return the Python workers below ``roots`` whose tasks have begun and not ended.

    A task has a file of the ledger open from its beginning to its end.

    :param records: how many complete lines that file must hold by now.
    """
    found = []
    for root in roots:
        for process in below(root):
            with suppress(psutil.Error):
                files = [Path(file.path) for file in process.open_files() if Path(file.path).parent == ledger]
                if any(file.read_bytes().count(b"\n") >= records for file in files):
                    found.append(process)
    return found


def below(root: int) -> list[psutil.Process]:
    try:
        return psutil.Process(root).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


@contextmanager
def caught_at_work(
    roots: Iterable[int], ledger: Path, *, records: int, ended: Callable[[], bool]
) -> Iterator[list[psutil.Process]]:
    """Wait for Python workers in the middle of their tasks; they stand still until the end, what is left of them.

    Whatever the machine's speed: what was found at work, was stopped, and still is at work has not ended its task.
    """
    places = list(roots)
    while True:
        wait_until(lambda: bool(at_work(places, ledger, records=records)), ended=ended)
        stopped = at_work(places, ledger, records=records)
        try:
            each_of(stopped, psutil.Process.suspend)
            still = at_work(places, ledger, records=records)
            caught = [process for process in stopped if process in still]
            if caught:
                yield caught
                return
        finally:
            each_of(stopped, psutil.Process.resume)


def each_of(processes: Iterable[psutil.Process], do: Callable[[psutil.Process], None]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            do(process)


def hosting(worker: psutil.Process) -> psutil.Process:
    """Return the executor whose Python worker this is: the Java process."""
    return next(parent for parent in worker.parents() if any(EXECUTOR in word for word in parent.cmdline()))
