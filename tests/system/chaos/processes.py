"""The processes under chaos: two durable namespaces, senders and syphons."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from servicebus_emulator import EmulatorProcess
from servicebus_emulator.testing.remote_namespace import RemoteNamespace

_START_TIMEOUT = 60.0
_STOP_TIMEOUT = 30.0


class NamespaceProcess:
    """A namespace that keeps its messages across restarts.

    Hold :attr:`lock` while changing the state of the process.
    """

    def __init__(self, name: str, data: Path) -> None:
        self.name = name
        self.lock = asyncio.Lock()
        self.process = EmulatorProcess([name], data=data)

    async def start(self) -> None:
        await asyncio.to_thread(self.process.start, timeout=_START_TIMEOUT)

    @property
    def served(self) -> RemoteNamespace:
        return self.process[self.name]

    @property
    def endpoint(self) -> dict[str, Any]:
        """Arguments of ``Endpoint.from_connection_string``."""
        return {
            "text": self.served.connection_string,
            "namespace": self.name,
            "administration": f"{self.served.host}:{self.served.admin_port}",
        }


class Worker:
    """A sender or syphon process; each restart runs under a new name.

    Hold :attr:`lock` while changing the state of the process.
    """

    def __init__(self, role: str, name: str, *, settings: dict[str, Any], folder: Path, rate: float) -> None:
        self.role = role
        self.lock = asyncio.Lock()
        self._name = name
        self._arguments = (json.dumps(settings), str(folder), str(rate))
        self._starts = 0
        self._log = (folder / f"{name}.log").open("ab")
        self._process = self._start()

    def restart(self) -> None:
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        self._starts += 1
        command = (sys.executable, "-m", "tests.system.chaos.worker", self.role, f"{self._name}.{self._starts}")
        return subprocess.Popen((*command, *self._arguments), stdout=self._log, stderr=self._log)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def freeze(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def exit_code(self) -> int | None:
        """Return the exit code, or ``None`` while the process runs."""
        return self._process.poll()

    async def stop(self) -> None:
        """Send SIGTERM; kill the process if it does not exit in time."""
        self._process.terminate()
        try:
            await asyncio.to_thread(self._process.wait, _STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self.kill()


class Processes:
    """All processes of a run.

    :ivar actions: number of kills and faults, in total and by target.
    """

    def __init__(self, folder: Path, *, ordering: str = "none", spools: bool = False, lock_seconds: float = 60) -> None:
        self.folder = folder
        self.lock_seconds = lock_seconds
        self.spool = folder / "spool" if spools else None
        self.ordering = ordering
        self.primary = NamespaceProcess("contoso", folder / "contoso")
        self.secondary = NamespaceProcess("contoso-dr", folder / "contoso-dr")
        self.namespaces = (self.primary, self.secondary)
        self.workers: list[Worker] = []
        self.actions: Counter[str] = Counter()

    @property
    def settings(self) -> dict[str, Any]:
        return {
            "primary": self.primary.endpoint,
            "secondary": self.secondary.endpoint,
            "ordering": self.ordering,
            "store": str(self.folder / "health"),
            "lock_seconds": self.lock_seconds,
            "spool": None if self.spool is None else str(self.spool),
        }

    def start_workers(self, *, senders: int, syphons: int, rate: float) -> None:
        """Start the workers. :param rate: messages per second of all senders together."""
        for role, count in (("sender", senders), ("syphon", syphons)):
            self.workers += (
                Worker(role, f"{role}{n}", settings=self.settings, folder=self.folder, rate=rate / senders)
                for n in range(count)
            )

    async def stop_workers(self, role: str) -> None:
        await asyncio.gather(*(worker.stop() for worker in self.workers if worker.role == role))

    def stop(self) -> None:
        for worker in self.workers:
            worker.kill()
        for namespace in self.namespaces:
            namespace.process.stop()
