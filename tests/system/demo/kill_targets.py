"""What the demo kills with SIGKILL and when: the primary, and optionally another process."""

from __future__ import annotations

import os
from collections.abc import Iterable

import psutil

from tests.system.demo.ledger import Counts

KILL_AT_FRACTION = 1 / 3
"""Fraction of the messages accepted before the primary is killed."""

RESTART_AT_FRACTION = 2 / 3
"""Fraction accepted before it restarts, if no other condition applies."""

MAX_OUTAGE_SECONDS = 60.0

KILL_TARGETS = {
    "driver": "the Spark driver that publishes",
    "task": "the Airflow task that runs the Spark driver; the driver keeps running while the task is retried",
    "syphon": "the Airflow task that drains the backlog",
}
# The Airflow task that is killed, or whose driver is.
TASKS = {"driver": "publish_flights", "task": "publish_flights", "syphon": "drain"}
KILL_AFTER_MESSAGES = 1_000


def restart_is_due(*, elapsed: float, minimum: float, condition_met: bool) -> bool:
    """Return whether the outage has lasted long enough; it never exceeds a minute.

    :param elapsed: seconds since the primary was killed.
    :param minimum: minimum duration in seconds.
    :param condition_met: whether the recovery is ready for the restart.
    """
    return elapsed >= MAX_OUTAGE_SECONDS or (elapsed >= minimum and condition_met)


def is_due(target: str, counts: Counts) -> bool:
    """Return whether a thousand messages were diverted, or for the syphon drained."""
    return (counts.syphoned if target == "syphon" else counts.diverted) >= KILL_AFTER_MESSAGES


def find_process_to_kill(target: str, instance: str, processes: Iterable[psutil.Process]) -> psutil.Process | None:
    """Return the process to kill.

    :param instance: id of the task instance, which is part of its process title.
    :param processes: of the scheduler, which runs the tasks.
    """
    for process in processes:
        line = " ".join(process.cmdline())
        is_java = process.name() == "java"
        if target == "driver" and is_java and "publish_flights.py" in line:
            return process
        if target != "driver" and not is_java and instance in line and is_group_leader(process):
            return process
    return None


def is_group_leader(process: psutil.Process) -> bool:
    """Return whether a process runs and leads its group, as the process of a task does and its supervisor does not."""
    try:
        return os.getpgid(process.pid) == process.pid
    except ProcessLookupError:
        return False
