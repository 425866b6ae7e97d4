"""Finds the Python workers that run Spark tasks, and suspends them in the middle of a task."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from tests.spark.support.ledger_files import wait_until

EXECUTOR = "ExecutorBackend"


def busy_workers(roots: Iterable[int], ledger: Path, *, records: int) -> list[psutil.Process]:
    """Return the Python workers below ``roots`` that run a task, which keeps its ledger file open.

    :param records: minimum number of complete lines in that file.
    """
    found = []
    for root in roots:
        for process in below(root):
            with suppress(psutil.Error):
                files = [Path(file.path) for file in process.open_files() if ledger in Path(file.path).parents]
                if any(file.read_bytes().count(b"\n") >= records for file in files):
                    found.append(process)
    return found


def below(root: int) -> list[psutil.Process]:
    try:
        return psutil.Process(root).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


@contextmanager
def suspended_workers(
    roots: Iterable[int], ledger: Path, *, records: int, ended: Callable[[], bool]
) -> Iterator[list[psutil.Process]]:
    """Suspend Python workers in the middle of their tasks, until the context ends.

    A task may end between the search and the suspension, so suspended workers are checked again.
    """
    pids = list(roots)
    while True:
        wait_until(lambda: bool(busy_workers(pids, ledger, records=records)), ended=ended)
        stopped = busy_workers(pids, ledger, records=records)
        try:
            each_of(stopped, psutil.Process.suspend)
            still_busy = busy_workers(pids, ledger, records=records)
            caught = [process for process in stopped if process in still_busy]
            if caught:
                yield caught
                return
        finally:
            each_of(stopped, psutil.Process.resume)


def each_of(processes: Iterable[psutil.Process], do: Callable[[psutil.Process], None]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            do(process)


def executor_of(worker: psutil.Process) -> psutil.Process:
    """Return the Java process of the executor that a Python worker belongs to."""
    return next(parent for parent in worker.parents() if any(EXECUTOR in word for word in parent.cmdline()))
