"""How soon the process serves, and how soon it has stopped."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Final

import psutil

from servicebus_emulator.process import EmulatorProcess
from tests.benchmarks.emulator.served import NAMESPACE, configuration
from tests.benchmarks.measure import Measure

__all__ = ["measures"]

_ROUNDS: Final = 5


def measures() -> Iterator[Measure]:
    """Yield the times from the start of the process to its first connection, and from the signal to its end."""
    starts, spent, stops = [], [], []
    with TemporaryDirectory(prefix="bench-") as folder:
        for _ in range(_ROUNDS):
            process = EmulatorProcess([NAMESPACE], config=configuration(Path(folder)))
            begun = perf_counter()
            process.start()
            with socket.create_connection(("127.0.0.1", process[NAMESPACE].amqp_port), timeout=5):
                starts.append(perf_counter() - begun)
                used = psutil.Process(process.pid).cpu_times()
                spent.append(used.user + used.system)
                begun = perf_counter()
                process.stop()
                stops.append(perf_counter() - begun)
    yield Measure(
        name="from the start of the process to its first connection", value=min(starts), unit="s", at_most=0.5
    )
    yield Measure(name="CPU time of the process until then", value=min(spent), unit="s")
    yield Measure(name="from the signal to the end of the process", value=min(stops), unit="s", at_most=1)
