"""An embedded Service Bus in a process of its own, whose CPU time and memory are read from outside."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import psutil

from servicebus_emulator.process import EmulatorProcess
from servicebus_emulator.served import ServedNamespace

__all__ = ["NAMESPACE", "QUEUES", "Served", "configuration", "serve"]

NAMESPACE: Final = "contoso"
QUEUES: Final = ("plain", "spare")


class Served:
    """A namespace, and the meter of its process."""

    def __init__(self, process: EmulatorProcess) -> None:
        self.place: ServedNamespace = process[NAMESPACE]
        self._process = psutil.Process(process.pid)

    def cpu(self) -> float:
        """Return the CPU time that the process has used, in seconds."""
        times = self._process.cpu_times()
        return times.user + times.system

    def memory(self) -> int:
        """Return the resident memory of the process, in bytes."""
        return int(self._process.memory_info().rss)


@contextmanager
def serve(*, durable: bool = False) -> Iterator[Served]:
    """Serve a namespace with the queues :data:`QUEUES`, in memory or in a folder."""
    with TemporaryDirectory(prefix="bench-") as folder:
        config = configuration(Path(folder))
        data = Path(folder) if durable else None
        # Open: the clients that measure bring no tokens, which count per link, not per message.
        with EmulatorProcess([NAMESPACE], config=config, data=data, open=True) as process:
            yield Served(process)


def configuration(folder: Path) -> Path:
    """Write the configuration file of such a namespace."""
    queues = [{"Name": name, "Properties": {"MaxSizeInMegabytes": 5120}} for name in QUEUES]
    file = folder / "config.json"
    file.write_text(json.dumps({"UserConfig": {"Namespaces": [{"Name": NAMESPACE, "Queues": queues}]}}))
    return file
