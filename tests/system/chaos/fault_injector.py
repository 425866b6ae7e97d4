"""Kills, freezes and faults at random times."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from random import Random

from servicebus_emulator import EmulatorProcess, Fault, FaultKind
from servicebus_emulator.faults import Operation
from tests.system.chaos.processes import NamespaceProcess, Processes, Worker

# Share of freezes that outlast the message locks.
_LONG_FREEZES = 0.1
_CONCURRENT_ACTIONS = 2
_SEND, _RECEIVE, _SETTLE, _CONNECT = Operation.SEND, Operation.RECEIVE, Operation.SETTLE, Operation.CONNECT
_FAULTS: tuple[Callable[[Random], Fault], ...] = (
    lambda r: Fault(kind=FaultKind.RESET, on=(r.choice((_SEND, _RECEIVE, _SETTLE)),), count=r.randint(1, 4)),
    lambda r: Fault(kind=FaultKind.RESET, on=(_CONNECT,), count=r.randint(1, 4)),
    lambda r: Fault(kind=FaultKind.LATENCY, delay=r.uniform(0.02, 0.3), duration=r.uniform(1, 4)),
    lambda r: Fault(kind=FaultKind.BANDWIDTH, bytes_per_second=r.randint(20_000, 200_000), duration=3.0),
    lambda r: Fault(kind=FaultKind.SERVER_BUSY, count=r.randint(1, 20)),
    lambda r: Fault(kind=FaultKind.INTERNAL_ERROR, duration=r.uniform(0.5, 4)),
    lambda r: Fault(kind=FaultKind.NO_DISPOSITION, on=(r.choice((_SEND, _SETTLE)),), count=r.randint(1, 5)),
    lambda r: Fault(kind=FaultKind.LATE_DISPOSITION, delay=r.uniform(0.5, 4), count=r.randint(1, 5)),
    lambda r: Fault(kind=r.choice((FaultKind.RELEASED, FaultKind.MODIFIED)), count=r.randint(1, 3)),
    lambda r: Fault(kind=r.choice((FaultKind.REFUSE, FaultKind.FREEZE, FaultKind.DROP)), duration=r.uniform(0.5, 4)),
    lambda r: Fault(kind=r.choice((FaultKind.QUOTA_EXCEEDED, FaultKind.ENTITY_DISABLED)), count=r.randint(1, 5)),
    # The settlement is confirmed and the message redelivered, so the syphon moves it twice.
    lambda r: Fault(kind=FaultKind.DUPLICATE, on=(_SETTLE,), count=r.randint(1, 5)),
    lambda r: Fault(kind=FaultKind.LOCK_LOST, count=r.randint(1, 30)),
    lambda r: Fault(kind=FaultKind.CLOSE_LINK, on=(r.choice((_SEND, _RECEIVE)),), count=r.randint(1, 3)),
    lambda r: Fault(kind=FaultKind.CLOSE_CONNECTION, count=r.randint(1, 3)),
    lambda r: Fault(kind=FaultKind.AUTH_FAILURE, status=503, duration=r.uniform(0.5, 3)),
)


class FaultInjector:
    """Takes an action about every second, at most two at a time.

    :param seed: determines the plan; its effects depend on timing.
    :param lock_duration: of the backlog queues, in seconds; some freezes outlast it.
    """

    def __init__(self, processes: Processes, *, seed: int, lock_duration: float) -> None:
        self._processes = processes
        self._lock_duration = lock_duration
        self._random = Random(seed)  # noqa: S311 - a reproducible plan
        self._deadline = 0.0

    async def run(self, seconds: float) -> None:
        """Inject faults for ``seconds``, then clear them."""
        self._deadline = time.monotonic() + seconds
        await asyncio.gather(*(self._repeat() for _ in range(_CONCURRENT_ACTIONS)))
        for namespace in self._processes.namespaces:
            await asyncio.to_thread(namespace.served.clear_faults)

    async def _repeat(self) -> None:
        actions = {
            self._kill_worker: 4,
            self._freeze_worker: 2,
            self._kill_namespace: 3,
            self._freeze_namespace: 2,
            self._set_fault: 6,
            self._stop_both_namespaces: 2 if self._processes.spool is not None else 0,
        }
        while time.monotonic() < self._deadline:
            await asyncio.sleep(self._random.uniform(0.2, 2))
            [action] = self._random.choices(list(actions), list(actions.values()))
            await action()
            self._restart_crashed_workers()

    async def _kill_worker(self) -> None:
        worker = self._random.choice(self._processes.workers)
        async with worker.lock:
            self._count(f"kill {worker.role}", "kills")
            worker.kill()
            await asyncio.sleep(self._random.uniform(0, 1))
            worker.restart()

    async def _freeze_worker(self) -> None:
        worker = self._random.choice(self._processes.workers)
        async with worker.lock:
            await self._freeze(worker, worker.role)

    async def _kill_namespace(self) -> None:
        namespace = self._choose_namespace()
        async with namespace.lock:
            self._count(f"kill {namespace.name}", "kills")
            namespace.process.kill()
            await asyncio.sleep(self._random.uniform(0, 4))
            await namespace.start()

    async def _stop_both_namespaces(self) -> None:
        """Let neither namespace take a message for some seconds; either may come back first."""
        one, other = self._processes.namespaces
        async with one.lock, other.lock:
            self._count("stop both namespaces", "faults")
            kind = self._random.choice((FaultKind.REFUSE, FaultKind.FREEZE))
            for namespace in (one, other):
                for each in (kind, FaultKind.RESET):
                    fault = Fault(kind=each, duration=self._random.uniform(3, 8))
                    await asyncio.to_thread(namespace.served.set_fault, fault)

    async def _freeze_namespace(self) -> None:
        namespace = self._choose_namespace()
        async with namespace.lock:
            await self._freeze(namespace.process, namespace.name)

    async def _set_fault(self) -> None:
        namespace, fault = self._choose_namespace(), self._random.choice(_FAULTS)(self._random)
        async with namespace.lock:
            self._count(f"{fault.kind} {namespace.name}", "faults")
            await asyncio.to_thread(namespace.served.set_fault, fault)

    async def _freeze(self, process: EmulatorProcess | Worker, name: str) -> None:
        self._count(f"freeze {name}", "faults")
        process.freeze()
        seconds = self._random.uniform(0.5, 5) + (self._lock_duration if self._random.random() < _LONG_FREEZES else 0)
        await asyncio.sleep(min(seconds, max(0.5, self._deadline - time.monotonic())))
        process.thaw()

    def _choose_namespace(self) -> NamespaceProcess:
        return self._random.choices(self._processes.namespaces, (3, 1))[0]

    def _count(self, action: str, total: str) -> None:
        self._processes.actions[total] += 1
        self._processes.actions[action] += 1

    def _restart_crashed_workers(self) -> None:
        for worker in self._processes.workers:
            code = worker.exit_code()
            if code is not None and not worker.lock.locked():
                self._count(f"crash {worker.role}", "crashes")
                print(f"{worker.role} crashed with exit code {code}: see its log", file=sys.stderr)  # noqa: T201
                worker.restart()
