"""Nothing is orphaned: the work of a task ends when the process that supervises it is killed (issue 5)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import psutil

# The child stands where Airflow's task runner does: with the line to its supervisor, in a process of its own.
PROGRAM = """
import asyncio, os, signal, socket, sys

from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import CommsDecoder

from servicebus_pair.hooks.running import CancellableRun

if os.fork():
    signal.pause()
if sys.argv[1] == "supervised":
    task_runner.SUPERVISOR_COMMS = CommsDecoder(socket=socket.socketpair()[0])


async def work():
    print(os.getpid(), flush=True)
    try:
        await asyncio.sleep(60)
    finally:
        print("closed", flush=True)


CancellableRun().run(work())
"""


def start(how: str) -> tuple[subprocess.Popen[str], psutil.Process]:
    """A process and its child that works."""
    parent = subprocess.Popen([sys.executable, "-c", PROGRAM, how], env=os.environ, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    return parent, psutil.Process(int(parent.stdout.readline()))


def test_what_runs_is_closed_and_ends_when_the_supervisor_is_killed():
    parent, child = start("supervised")
    with parent:
        parent.send_signal(signal.SIGKILL)
        _, alive = psutil.wait_procs([child], timeout=20)
        assert parent.stdout is not None
        assert alive == []
        assert parent.stdout.read().endswith("closed\n")


def test_without_a_supervisor_work_goes_on_when_whoever_started_it_has_ended():
    parent, child = start("alone")
    with parent:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        _, alive = psutil.wait_procs([child], timeout=3)
        child.kill()
        assert alive == [child]
