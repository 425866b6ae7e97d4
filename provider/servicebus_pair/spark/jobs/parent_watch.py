"""Ends a driver whose Airflow task was killed, so that the task's retry is not a second publisher beside it.

``SIGKILL`` of a task, or of its worker, reaches neither ``spark-submit`` nor the driver: they would go on as orphans.
The driver therefore waits for the end of its ancestors, by process descriptors where Linux gives them. It does so only
below an Airflow task: a job that someone started in a terminal may outlive it. In cluster deploy mode the driver is no
child of the task, and nothing is watched.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

_TASK_VARIABLE: Final = "AIRFLOW_CTX_TASK_ID"
_POLL_SECONDS: Final = 1.0
_GRACE_SECONDS: Final = 10.0


def end_without_task(environment: Mapping[str, str] = os.environ) -> threading.Thread | None:
    """Watch the process that started this driver, and end both driver and ``spark-submit`` when it dies.

    :return: the watching thread; ``None`` if no Airflow task started this process.
    """
    submit = os.getppid()
    task = _parent_of(submit)
    if _TASK_VARIABLE not in environment or task is None or task <= 1:
        return None
    thread = threading.Thread(target=_watch, args=(submit, task), name="parent-watch", daemon=True)
    thread.start()
    return thread


def _watch(submit: int, task: int) -> None:
    _wait_for_end(submit, task)
    print("the Airflow task of this job has ended: the job ends too", file=sys.stderr, flush=True)  # noqa: T201
    # Spark's shutdown hooks end its Python workers.
    if os.getppid() == submit:
        with suppress(ProcessLookupError):
            os.kill(submit, signal.SIGTERM)
            deadline = time.monotonic() + _GRACE_SECONDS
            while os.getppid() == submit and time.monotonic() < deadline:
                time.sleep(0.1)
            if os.getppid() == submit:
                os.kill(submit, signal.SIGKILL)
    os._exit(1)


def _wait_for_end(submit: int, task: int) -> None:
    # An older kernel or a sandbox may refuse process descriptors: then who the parents are is asked again and again.
    with suppress(AttributeError, OSError), ExitStack() as opened:
        ended = select.poll()
        for process in (submit, task):
            descriptor = os.pidfd_open(process)
            opened.callback(os.close, descriptor)
            ended.register(descriptor, select.POLLIN)
        if _are_parents(submit, task):  # else the ids may belong to other processes by now
            ended.poll()
    while _are_parents(submit, task):
        time.sleep(_POLL_SECONDS)


def _are_parents(submit: int, task: int) -> bool:
    return os.getppid() == submit and _parent_of(submit) == task


def _parent_of(process: int) -> int | None:
    try:
        # The name of the program, in parentheses, may contain anything.
        return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return None
