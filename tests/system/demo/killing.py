"""Something else that dies during the demo, by SIGKILL: what "nothing is lost" must survive too."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    import psutil

    from tests.system.demo.ledger import Figures

__all__ = ["VICTIMS", "find_victim", "is_due", "task_of"]

VICTIMS = {
    "driver": "the Spark driver that publishes",
    "task": "the Airflow task that runs the Spark driver, which lives on while the task is tried again",
    "syphon": "the Airflow task that drains the backlog",
}
TASKS = {"driver": "publish_flights", "task": "publish_flights", "syphon": "drain"}
MESSAGES = 1_000


def task_of(victim: str) -> str:
    """Return the id of the Airflow task that dies, or whose work does."""
    return TASKS[victim]


def is_due(victim: str, figures: Figures) -> bool:
    """Tell whether the moment has come: a thousand messages diverted, or a thousand brought home."""
    return (figures.syphoned if victim == "syphon" else figures.diverted) >= MESSAGES


def find_victim(victim: str, instance: str, processes: Iterable[psutil.Process]) -> psutil.Process | None:
    """Return the process to kill.

    :param instance: the id of the task instance, which its process carries in its title.
    :param processes: those of the scheduler, which runs the tasks.
    """
    for process in processes:
        line = " ".join(process.cmdline())
        is_java = process.name() == "java"
        if victim == "driver" and is_java and "publish_flights.py" in line:
            return process
        if victim != "driver" and not is_java and instance in line and leads_its_group(process):
            return process
    return None


def leads_its_group(process: psutil.Process) -> bool:
    """Tell the process that runs a task from the one that watches it: only the former has a group of its own."""
    return os.getpgid(process.pid) == process.pid
