"""What a recovery could leave behind: connections, links, messages and processes."""

from __future__ import annotations

import os
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import httpx
from prometheus_client.parser import text_string_to_metric_families

from tests.system.demo.airflow_service import SCHEDULER

if TYPE_CHECKING:
    from collections.abc import Callable

    import psutil

    from tests.system.demo.namespaces import Namespace
    from tests.system.demo.stack import Stack

__all__ = ["Traces", "metric", "task_processes", "traces", "until"]

PREFIX: Final = "servicebus_emulator_"
LEFT_SECONDS: Final = 90.0


@dataclass(frozen=True, slots=True)
class Traces:
    """What there is of a recovery at one moment; nothing of it may stay."""

    connections: int
    links: int
    backlog: int  # messages, those that somebody has locked included
    processes: tuple[str, ...]  # of tasks

    def __bool__(self) -> bool:
        """Tell whether there is anything."""
        return bool(self.connections or self.links or self.backlog or self.processes)


def metric(namespace: Namespace, name: str) -> float:
    """Return a metric of an embedded namespace, summed up over its labels."""
    page = httpx.get(f"http://{namespace.administration}/metrics").raise_for_status().text
    families = text_string_to_metric_families(page)
    return sum(sample.value for family in families for sample in family.samples if sample.name == PREFIX + name)


def traces(stack: Stack) -> Traces:
    """Return what there is now."""
    both = (stack.primary, stack.secondary)
    return Traces(
        connections=int(sum(metric(each, "connections") for each in both)),
        links=int(sum(metric(each, "links") for each in both)),
        backlog=int(metric(stack.secondary, "messages")),
        processes=tuple(" ".join(each.cmdline())[:120] for each in task_processes(stack)),
    )


def task_processes(stack: Stack) -> list[psutil.Process]:
    """Return the processes that run tasks: each leads a group of its own within the session of the scheduler."""
    leaders = [each for each in stack.processes.members(SCHEDULER) if leads_a_group(each)]
    return [each for each in leaders if each.pid != os.getsid(each.pid)]


def leads_a_group(process: psutil.Process) -> bool:
    """Tell whether a process leads its group; one that has ended leads none."""
    try:
        return os.getpgid(process.pid) == process.pid
    except ProcessLookupError:
        return False


def until(condition: Callable[[], bool], *, seconds: float, what: str, detail: Callable[[], object] = Counter) -> None:
    """Wait until something has happened.

    :param what: that is waited for, in words.
    :param detail: told when it has not happened in time.
    :raises AssertionError: it has not.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:.0f} s: {what} {detail() or ''}")
        time.sleep(0.2)
