"""Duration of starting and stopping the process, and its memory in between."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Final

import psutil

from servicebus_emulator.testing.process import EmulatorProcess
from tests.benchmarks.emulator.measured_process import NAMESPACE, configuration
from tests.benchmarks.measure import Measure

_ROUNDS: Final = 5
_MEGABYTE: Final = 1e6


def measures() -> Iterator[Measure]:
    """Measure the time from start to first connection, and from SIGTERM to exit."""
    starts, cpu_seconds, memory, stops = [], [], [], []
    with TemporaryDirectory(prefix="bench-") as folder:
        for _ in range(_ROUNDS):
            process = EmulatorProcess([NAMESPACE], config=configuration(Path(folder)))
            started = perf_counter()
            process.start()
            with socket.create_connection(("127.0.0.1", process[NAMESPACE].amqp_port), timeout=5):
                starts.append(perf_counter() - started)
                measured = psutil.Process(process.pid)
                used = measured.cpu_times()
                # Another process issued the certificate.
                cpu_seconds.append(used.user + used.system + used.children_user + used.children_system)
                memory.append(measured.memory_info().rss / _MEGABYTE)
                started = perf_counter()
                process.stop()
                stops.append(perf_counter() - started)
    yield Measure(
        name="from the start of the process to the first connection", value=min(starts), unit="s", at_most=0.5
    )
    yield Measure(name="CPU time of the process until then", value=min(cpu_seconds), unit="s")
    yield Measure(name="memory of an idle namespace", value=min(memory), unit="MB", at_most=40)
    yield Measure(name="from SIGTERM to the exit of the process", value=min(stops), unit="s", at_most=1)
