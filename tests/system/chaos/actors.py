"""The processes under chaos: two namespaces that keep their state, senders, syphons."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

from servicebus_emulator import EmulatorProcess

__all__ = ["Actors", "Place", "Worker"]

_START_SECONDS = 60.0
_END_SECONDS = 30.0


class Place:
    """One namespace as a process; one thing is done to it at a time."""

    def __init__(self, name: str, data: Path) -> None:
        self.name = name
        self.turn = asyncio.Lock()
        self._process = EmulatorProcess([name], data=data)

    async def start(self) -> None:
        await asyncio.to_thread(self._process.start, timeout=_START_SECONDS)

    def kill(self) -> None:
        self._process.kill()

    def freeze(self) -> None:
        self._process.freeze()

    def thaw(self) -> None:
        self._process.thaw()

    def stop(self) -> None:
        self._process.stop()

    @property
    def connection_string(self) -> str:
        return self._process[self.name].connection_string

    @property
    def endpoint(self) -> dict[str, Any]:
        served = self._process[self.name]
        return {
            "text": served.connection_string,
            "namespace": self.name,
            "administration": f"{served.host}:{served.admin_port}",
        }

    async def fault(self, fault: dict[str, Any] | None) -> None:
        """Set a fault over HTTP, or clear them all."""
        await asyncio.to_thread(self._ask, fault)

    def _ask(self, fault: dict[str, Any] | None) -> None:
        served = self._process[self.name]
        request = urllib.request.Request(
            f"http://{served.host}:{served.admin_port}/$faults",
            data=None if fault is None else json.dumps(fault).encode(),
            headers={"Content-Type": "application/json"},
            method="DELETE" if fault is None else "POST",
        )
        with urllib.request.urlopen(request, timeout=5) as answer:  # noqa: S310 - the same
            answer.read()


class Worker:
    """A sender or syphon; after a kill the next one of its kind gets a new name."""

    def __init__(self, role: str, name: str, *, settings: dict[str, Any], folder: Path, rate: float) -> None:
        self.role = role
        self.turn = asyncio.Lock()
        self._name = name
        self._arguments = (json.dumps(settings), str(folder), str(rate))
        self._lives = 0
        self._log = (folder / f"{name}.log").open("ab")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._lives += 1
        command = (sys.executable, "-m", "tests.system.chaos.worker", self.role, f"{self._name}.{self._lives}")
        self._process = subprocess.Popen((*command, *self._arguments), stdout=self._log, stderr=self._log)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)
        self._running().wait()

    def freeze(self) -> None:
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def ended_by_itself(self) -> int | None:
        """Its exit code, if it ended without being told to."""
        return self._running().poll()

    async def end(self) -> None:
        """Let it finish what it does; whoever does not is killed."""
        with suppress(ProcessLookupError):
            self._signal(signal.SIGTERM)
        try:
            await asyncio.to_thread(self._running().wait, _END_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()

    def _signal(self, number: int) -> None:
        os.kill(self._running().pid, number)

    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process


class Actors:
    """Everything that takes part."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.primary = Place("contoso", folder / "contoso")
        self.secondary = Place("contoso-dr", folder / "contoso-dr")
        self.workers: list[Worker] = []
        self.done: Counter[str] = Counter()

    @property
    def settings(self) -> dict[str, Any]:
        return {"primary": self.primary.endpoint, "secondary": self.secondary.endpoint}

    @property
    def places(self) -> tuple[Place, Place]:
        return self.primary, self.secondary

    def hire(self, *, senders: int, syphons: int, rate: float) -> None:
        for role, number in (("sender", senders), ("syphon", syphons)):
            for n in range(number):
                share = rate / senders
                worker = Worker(role, f"{role}{n}", settings=self.settings, folder=self.folder, rate=share)
                worker.start()
                self.workers.append(worker)

    async def end(self, role: str) -> None:
        await asyncio.gather(*(worker.end() for worker in self.workers if worker.role == role))

    def stop(self) -> None:
        for worker in self.workers:
            if worker.ended_by_itself() is None:
                worker.kill()
        for place in self.places:
            place.stop()
