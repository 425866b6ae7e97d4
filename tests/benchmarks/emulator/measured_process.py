"""An embedded Service Bus process whose CPU time and memory are measured."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import psutil

from servicebus_emulator.testing.process import EmulatorProcess
from servicebus_emulator.testing.remote_namespace import RemoteNamespace

NAMESPACE: Final = "contoso"
QUEUES: Final = ("plain", "spare")


class MeasuredProcess:
    def __init__(self, process: EmulatorProcess) -> None:
        self.namespace: RemoteNamespace = process[NAMESPACE]
        self._process = psutil.Process(process.pid)

    def cpu(self) -> float:
        """Return the CPU seconds used so far."""
        times = self._process.cpu_times()
        return times.user + times.system

    def memory(self) -> int:
        """Return the resident memory in bytes."""
        return int(self._process.memory_info().rss)


@contextmanager
def serve(*, durable: bool = False) -> Iterator[MeasuredProcess]:
    """Serve a namespace with :data:`QUEUES`, in memory or in a temporary folder."""
    with TemporaryDirectory(prefix="bench-") as folder:
        config = configuration(Path(folder))
        data = Path(folder) if durable else None
        # open: without tokens, whose cost is per link and not per message.
        with EmulatorProcess([NAMESPACE], config=config, data=data, open=True) as process:
            yield MeasuredProcess(process)


def configuration(folder: Path) -> Path:
    queues = [{"Name": name, "Properties": {"MaxSizeInMegabytes": 5120}} for name in QUEUES]
    file = folder / "config.json"
    file.write_text(json.dumps({"UserConfig": {"Namespaces": [{"Name": NAMESPACE, "Queues": queues}]}}))
    return file
