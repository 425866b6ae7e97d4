"""A driver whose Airflow task was killed ends by itself, so that the task's retry publishes alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import psutil
import pytest

# Like a task that submits a job: the task starts spark-submit, which starts the driver.
DRIVER = """
import os, sys, time
from servicebus_pair.spark.jobs import parent_watch
if sys.argv[1] == "told":
    parent_watch._POLL_SECONDS = 600
else:
    del os.pidfd_open  # as on an older kernel
parent_watch.end_without_task()
print("watching", flush=True)
time.sleep(600)
"""
SUBMIT = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {DRIVER!r}, sys.argv[1]])"
TASK = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {SUBMIT!r}, sys.argv[1]])"


@pytest.mark.parametrize(("in_airflow", "how"), [(True, "told"), (True, "asks"), (False, "told")])
def test_driver_ends_with_its_killed_airflow_task_only(in_airflow: bool, how: str):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    environment |= {"AIRFLOW_CTX_TASK_ID": "publish"} if in_airflow else {}
    with subprocess.Popen([sys.executable, "-c", TASK, how], stdout=subprocess.PIPE, env=environment) as task:
        assert task.stdout is not None
        assert task.stdout.readline() == b"watching\n"
        others = psutil.Process(task.pid).children(recursive=True)
        assert len(others) == 2
        task.send_signal(signal.SIGKILL)
        task.wait()
        try:
            _, alive = psutil.wait_procs(others, timeout=8 if in_airflow else 2.5)
            assert bool(alive) is not in_airflow
        finally:
            for each in others:
                if each.is_running():
                    each.kill()
