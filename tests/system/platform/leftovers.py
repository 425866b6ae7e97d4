"""Connections, links, messages and processes that a recovery could leave behind."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import httpx
import psutil
from prometheus_client.parser import text_string_to_metric_families

from tests.system.demo.airflow_process import SCHEDULER
from tests.system.demo.kill_targets import is_group_leader
from tests.system.demo.namespaces import Namespace
from tests.system.demo.stack import Stack

PREFIX: Final = "servicebus_emulator_"


@dataclass(frozen=True, slots=True)
class Leftovers:
    """Resources of recoveries that still exist; all must disappear."""

    connections: int
    links: int
    backlog: int  # messages, including locked ones
    processes: tuple[str, ...]  # of tasks

    def __bool__(self) -> bool:
        return bool(self.connections or self.links or self.backlog or self.processes)


NO_LEFTOVERS: Final = Leftovers(connections=0, links=0, backlog=0, processes=())


def metric(namespace: Namespace, name: str) -> float:
    """Return a metric of an embedded namespace, summed over its labels."""
    page = httpx.get(f"http://{namespace.administration}/metrics").raise_for_status().text
    families = text_string_to_metric_families(page)
    return sum(sample.value for family in families for sample in family.samples if sample.name == PREFIX + name)


def find_leftovers(stack: Stack) -> Leftovers:
    both = (stack.primary, stack.secondary)
    return Leftovers(
        connections=int(sum(metric(each, "connections") for each in both)),
        links=int(sum(metric(each, "links") for each in both)),
        backlog=int(metric(stack.secondary, "messages")),
        processes=tuple(" ".join(each.cmdline())[:120] for each in task_processes(stack)),
    )


def task_processes(stack: Stack) -> list[psutil.Process]:
    """Return the processes that run tasks: each leads its own process group in the scheduler's session."""
    leaders = [each for each in stack.processes.members(SCHEDULER) if is_group_leader(each)]
    return [each for each in leaders if each.pid != os.getsid(each.pid)]


def wait_until(
    condition: Callable[[], bool], *, seconds: float, what: str, detail: Callable[[], object] = Counter
) -> None:
    """Wait until a condition is true.

    :param what: the condition in words, for the error message.
    :param detail: its result is added to the error message.
    :raises AssertionError: the condition is still false after ``seconds``.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:.0f} s: {what} {detail() or ''}")
        time.sleep(0.2)
