"""Celery over kombu's transport for Service Bus: a worker in a process of its own, and its client."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

sys.path.insert(0, os.environ["MATRIX_PROJECT"])

from celery import Celery

from tests.conformance.clients.steps import HOST, KEY, POLICY, redirect, step

redirect()
RESULTS = os.environ["MATRIX_FOLDER"] + "/results"
Path(RESULTS).mkdir(exist_ok=True)
app = Celery(
    "matrix",
    broker=f"azureservicebus://{POLICY}:{quote(KEY, safe='')}@{HOST.partition('.')[0]}",
    backend=f"file://{RESULTS}",
)
app.conf.update(
    task_default_queue="celery",
    broker_connection_retry_on_startup=True,
    broker_transport_options={"queue_name_prefix": "matrix-", "wait_time_seconds": 2, "polling_interval": 0.2},
)
_tried = []


@app.task(name="add")
def add(one: int, two: int) -> int:
    return one + two


@app.task(name="flaky", bind=True, max_retries=3)
def flaky(self: Any) -> int:
    _tried.append(1)
    if len(_tried) < 3:
        raise self.retry(countdown=0)
    return len(_tried)


if "worker" in sys.argv:
    app.worker_main(["worker", "--pool=solo", "--loglevel=WARNING", "--without-gossip", "--without-mingle"])
    sys.exit()

worker = subprocess.Popen([sys.executable, __file__, "worker"])
try:
    with step("one task"):
        assert add.delay(1, 2).get(timeout=60) == 3
    with step("twenty tasks"):
        sent = [add.delay(number, number) for number in range(20)]
        assert [each.get(timeout=60) for each in sent] == [2 * number for number in range(20)]
    with step("a task that retries"):
        assert flaky.delay().get(timeout=60) == 3
    with step("a task with a delay"):
        assert add.apply_async((3, 4), countdown=1).get(timeout=60) == 7
    with step("the length of the queue, and purge"), app.connection_for_read() as connection:
        connection.default_channel.queue_purge("celery")
finally:
    worker.terminate()
    worker.wait(30)
