"""What happens at random: kills, freezes, resets, slowness, refusals."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from random import Random
from typing import Any

from tests.system.chaos.actors import Actors, Place, Worker

__all__ = ["Mayhem"]

Fault = Callable[[Random], dict[str, Any]]
# Of all freezes, how many outlast the locks.
_LONG_FREEZES = 0.1
# Each by the name under which the embedded Service Bus knows it.
_FAULTS: tuple[Fault, ...] = (
    lambda random: {
        "kind": "reset",
        "on": [random.choice(("send", "receive", "settle"))],
        "count": random.randint(1, 4),
    },
    lambda random: {"kind": "reset", "on": ["connect"], "count": random.randint(1, 4)},
    lambda random: {"kind": "latency", "delay": random.uniform(0.02, 0.3), "duration": random.uniform(1, 4)},
    lambda random: {"kind": "bandwidth", "bytes_per_second": random.randint(20_000, 200_000), "duration": 3.0},
    lambda random: {"kind": "server-busy", "count": random.randint(1, 20)},
    lambda random: {"kind": "internal-error", "duration": random.uniform(0.5, 4)},
    lambda random: {"kind": "no-disposition", "on": [random.choice(("send", "settle"))], "count": random.randint(1, 5)},
    lambda random: {"kind": "late-disposition", "delay": random.uniform(0.5, 4), "count": random.randint(1, 5)},
    lambda random: {"kind": random.choice(("released", "modified")), "count": random.randint(1, 3)},
    lambda random: {"kind": random.choice(("refuse", "freeze", "drop")), "duration": random.uniform(0.5, 4)},
    lambda random: {"kind": random.choice(("quota-exceeded", "entity-disabled")), "count": random.randint(1, 5)},
    # Confirmed, and comes again: what was moved is moved twice.
    lambda random: {"kind": "duplicate", "on": ["settle"], "count": random.randint(1, 5)},
    lambda random: {"kind": "lock-lost", "count": random.randint(1, 30)},
    lambda random: {"kind": "close-link", "on": [random.choice(("send", "receive"))], "count": random.randint(1, 3)},
    lambda random: {"kind": "close-connection", "count": random.randint(1, 3)},
    lambda random: {"kind": "auth-failure", "status": 503, "duration": random.uniform(0.5, 3)},
)


class Mayhem:
    """Breaks something every second or so, two things at a time.

    :param seed: the same seed gives the same plan; what comes of it depends on the machine.
    :param lock: seconds of the backlog queues' locks, which some freezes outlast.
    """

    def __init__(self, actors: Actors, *, seed: int, lock: float) -> None:
        self._actors = actors
        self._lock = lock
        self._random = Random(seed)  # noqa: S311 - a plan that can be repeated
        self._until = 0.0

    async def rage(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds
        await asyncio.gather(self._hand(), self._hand())
        for place in self._actors.places:
            await place.fault(None)

    async def _hand(self) -> None:
        while time.monotonic() < self._until:
            await asyncio.sleep(self._random.uniform(0.2, 2))
            deeds = {
                self._kill_worker: 4,
                self._freeze_worker: 2,
                self._kill_place: 3,
                self._freeze_place: 2,
                self._spoil_place: 6,
            }
            [deed] = self._random.choices(list(deeds), list(deeds.values()))
            await deed()
            self._replace_who_ended()

    async def _kill_worker(self) -> None:
        worker = self._random.choice(self._actors.workers)
        async with worker.turn:
            self._note(f"kill {worker.role}", "kills")
            worker.kill()
            await asyncio.sleep(self._random.uniform(0, 1))
            worker.start()

    async def _freeze_worker(self) -> None:
        worker = self._random.choice(self._actors.workers)
        async with worker.turn:
            await self._freeze(worker, worker.role)

    async def _kill_place(self) -> None:
        place = self._place()
        async with place.turn:
            self._note(f"kill {place.name}", "kills")
            place.kill()
            await asyncio.sleep(self._random.uniform(0, 4))
            await place.start()

    async def _freeze_place(self) -> None:
        place = self._place()
        async with place.turn:
            await self._freeze(place, place.name)

    async def _spoil_place(self) -> None:
        place, fault = self._place(), self._random.choice(_FAULTS)(self._random)
        async with place.turn:
            self._note(f"{fault['kind']} {place.name}", "faults")
            await place.fault(fault)

    async def _freeze(self, one: Place | Worker, name: str) -> None:
        self._note(f"freeze {name}", "faults")
        one.freeze()
        seconds = self._random.uniform(0.5, 5) + (self._lock if self._random.random() < _LONG_FREEZES else 0)
        await asyncio.sleep(min(seconds, max(0.5, self._until - time.monotonic())))
        one.thaw()

    def _place(self) -> Place:
        return self._random.choices(self._actors.places, (3, 1))[0]

    def _note(self, deed: str, sort: str) -> None:
        self._actors.done[sort] += 1
        self._actors.done[deed] += 1

    def _replace_who_ended(self) -> None:
        for worker in self._actors.workers:
            code = worker.ended_by_itself()
            if code is not None and not worker.turn.locked():
                self._note(f"ended by itself {worker.role}", "ended")
                print(f"{worker.role} ended by itself with {code}: see its log", file=sys.stderr)  # noqa: T201
                worker.start()
