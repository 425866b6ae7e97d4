"""With session order, no two processes act on different routes at the same time (SPEC section 6)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from random import Random
from typing import Any

import pytest

from servicebus_pair.core import HealthState, PairOptions
from servicebus_pair.core.health.backlog_reports import BacklogReports
from servicebus_pair.core.health.ordered_registry import OrderedHealthRegistry
from servicebus_pair.core.health.session_ordering import SessionOrdering
from servicebus_pair.core.model.errors import HealthStoreError
from servicebus_pair.core.model.health_state import (
    FailOver,
    MarkHealthy,
    PingFailed,
    SendFailed,
)
from servicebus_pair.core.model.interfaces import SystemClock
from tests.core.support.lagging_store import LaggingStore
from tests.simulated_time import Process, SimulatedLoop

pytestmark = pytest.mark.simulated

REFRESH = 5.0
OPTIONS = PairOptions(ordering="session", failover_interval=timedelta(0), health_refresh=timedelta(seconds=REFRESH))
DOWN = SendFailed("no connection", 0.0)


def new_registry(store: Any) -> OrderedHealthRegistry:
    return OrderedHealthRegistry(OPTIONS, store=store, observers=[], clock=SystemClock())


class Backlog(SessionOrdering):
    """Session order over a backlog that is a number of messages."""

    def __init__(self, registry: OrderedHealthRegistry, messages: list[int]) -> None:
        unused: Any = None
        super().__init__(unused, registry, session_queues=["a", "b"], queues=["q"], clock=SystemClock())
        self.messages = messages

    async def _find(self, entity: str, queues: Any, _: Any) -> tuple[str, ...] | None:  # noqa: ARG002 - one entity only
        await asyncio.sleep(0.01)
        return tuple(queues) if self.messages else ()


@dataclass
class Act:
    """An attempt to send: by whom, where to, and from when to when."""

    process: str
    route: HealthState
    began: float
    ended: float


class World:
    """Processes that send, fail over, ping and die; the backlog is drained all the time."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)  # noqa: S311 - a plan that can be repeated
        self.store = LaggingStore(self.random, lag=REFRESH / 2, latency=1.0)
        self.acts: list[Act] = []
        self.backlog: list[int] = []
        self.processes: list[tuple[Process, OrderedHealthRegistry]] = []

    def start(self) -> None:
        loop: Any = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop)
        name = f"process {len(self.processes)}"
        process, registry = Process(loop, name), new_registry(self.store.of(name))
        order = Backlog(registry, self.backlog)
        self.processes.append((process, registry))
        for work in (*(self.send(process, registry, order) for _ in range(2)), self.ping(process, registry, order)):
            process.start(work)
        process.start(self.change_by_hand(process, registry))
        process.start(self.report(registry))

    async def send(self, process: Process, registry: OrderedHealthRegistry, order: Backlog) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self.random.expovariate(1))
            try:
                await order.enter_send("flights", timeout=60)
            except (TimeoutError, HealthStoreError):
                continue
            try:
                health = await registry.lease("flights", timeout=60)
                seconds = self.random.uniform(0, registry.lease_seconds_left("flights"))
                act = Act(process.name, health.route, loop.time(), loop.time())
                self.acts.append(act)
                held = asyncio.create_task(registry.hold_lease("flights", health))
                if self.random.random() < 0.3:
                    seconds = self.random.uniform(0, 20)  # a slow attempt, which the lease must end
                ended = asyncio.get_running_loop().time() + seconds
                await asyncio.wait({held}, timeout=seconds)
                held.cancel()
                act.ended = min(ended, loop.time())
                if health.route is HealthState.FAILED_OVER:
                    self.backlog.append(1)
                elif self.random.random() < 0.05:
                    registry.apply("flights", DOWN)
            except (TimeoutError, HealthStoreError):
                continue
            finally:
                order.leave_send("flights")

    async def ping(self, process: Process, registry: OrderedHealthRegistry, order: Backlog) -> None:
        while True:
            await asyncio.sleep(self.random.uniform(0.5, 8))
            try:
                health = await registry.refresh("flights")
                await order.abandon_dead_failback("flights")
                if health.state is HealthState.FAILED_OVER:
                    registry.apply("flights", PingFailed(SystemClock().now()))
                    if self.random.random() < 0.7:
                        await order.fail_back("flights", reason="a ping was answered", by=process.name)
            except HealthStoreError:
                continue

    async def change_by_hand(self, process: Process, registry: OrderedHealthRegistry) -> None:
        while True:
            await asyncio.sleep(self.random.expovariate(1 / 60))
            event = self.random.choice([FailOver("test", process.name, 1.0), MarkHealthy("test", process.name)])
            try:
                await registry.change("flights", event)
            except HealthStoreError:
                continue

    async def report(self, registry: OrderedHealthRegistry) -> None:
        """Say now and then, rightly or not, that little is left."""
        reports = BacklogReports(registry, ["a", "b"], clock=SystemClock())
        while True:
            await asyncio.sleep(self.random.uniform(0.1, 4))
            queue = self.random.choice("ab")
            if reports.is_wanted("flights", queue):
                reports.caught_up("flights", queue)

    async def drain(self) -> None:
        while True:
            await asyncio.sleep(self.random.expovariate(2))
            self.backlog.clear()

    def overlaps(self) -> list[tuple[Act, Act]]:
        found = []
        active: list[Act] = []
        for act in sorted(self.acts, key=lambda each: each.began):
            active = [each for each in active if each.ended > act.began]
            found += [(each, act) for each in active if each.route is not act.route]
            active.append(act)
        return found


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=pytest.mark.slow if seed >= 8 else ()) for seed in range(25)]
)
async def test_section_6_processes_with_a_lagging_store_never_act_on_two_routes_at_once(seed: int) -> None:
    world = World(seed)
    for _ in range(3):
        world.start()
    draining = asyncio.create_task(world.drain())
    try:
        for _ in range(30):
            await asyncio.sleep(world.random.expovariate(1 / 20))
            alive = [process for process, _ in world.processes if not process.dead]
            if world.random.random() < 0.5 and len(alive) > 1:
                world.random.choice(alive).kill()
                world.start()
            world.store.fails = world.random.random() < 0.1
        assert world.overlaps() == []
        assert len(world.acts) > 200
        assert {act.route for act in world.acts} == {HealthState.HEALTHY, HealthState.FAILED_OVER}
    finally:
        draining.cancel()
        for process, registry in world.processes:
            await process.reap()
            await registry.close()
