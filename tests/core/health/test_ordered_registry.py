"""With session order, no two processes act on different routes at the same time (SPEC section 6)."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from random import Random
from typing import Any

import pytest

from servicebus_pair.core import EntityHealth, HealthState, PairOptions
from servicebus_pair.core.health.backlog_reports import BacklogReports
from servicebus_pair.core.health.ordered_registry import OrderedHealthRegistry
from servicebus_pair.core.health.session_ordering import SessionOrdering
from servicebus_pair.core.model.errors import HealthStoreError
from servicebus_pair.core.model.health_transitions import (
    BeginSpool,
    FailOver,
    HealthEvent,
    MarkHealthy,
    PingFailed,
    SendFailed,
)
from servicebus_pair.core.model.interfaces import InMemoryHealthStore, SystemClock
from tests.core.support.lagging_store import LaggingStore
from tests.simulated_time import Process, SimulatedLoop

pytestmark = pytest.mark.simulated

REFRESH = 5.0
OPTIONS = PairOptions(ordering="session", failover_interval=timedelta(0), health_refresh=timedelta(seconds=REFRESH))
DOWN = SendFailed("no connection", 0.0)


def new_registry(store: Any) -> OrderedHealthRegistry:
    return OrderedHealthRegistry(OPTIONS, store=store, observers=[], clock=SystemClock())


class Messages(list[int]):
    """Stands for a spool, too."""

    async def existing_name(self) -> str:
        return "spool"

    async def batches(self, _: str) -> list[int]:
        return self


class Backlog(SessionOrdering):
    """Session order over a backlog, and perhaps a spool, that are a number of messages."""

    def __init__(self, registry: OrderedHealthRegistry, messages: list[int], spool: Any = None) -> None:
        unused: Any = None
        super().__init__(unused, registry, session_queues=["a", "b"], queues=["q"], clock=SystemClock(), spool=spool)
        self.messages = messages

    async def _find(self, entity: str, queues: Any, _: Any) -> tuple[str, ...] | None:  # noqa: ARG002 - one entity only
        await asyncio.sleep(0.01)
        return tuple(queues) if self.messages else ()


@dataclass
class Act:
    """An attempt to send: by whom, where to, and from when to when."""

    process: str
    route: tuple[HealthState, str]
    began: float
    ended: float


class World:
    """Processes that send, fail over, ping and die; the backlog is drained all the time.

    :param spools: at times, no backlog queue takes messages.
    :ivar overtaken: how often messages went to the backlog while the spool held some.
    """

    def __init__(self, seed: int, *, spools: bool = False) -> None:
        self.random = Random(seed)  # noqa: S311 - a plan that can be repeated
        self.store = LaggingStore(self.random, lag=REFRESH / 2, latency=1.0)
        self.acts: list[Act] = []
        self.backlog: list[int] = []
        self.spool = Messages()
        self.spools = spools
        self.overtaken = 0
        self.processes: list[tuple[Process, OrderedHealthRegistry]] = []

    def start(self) -> None:
        loop: Any = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop)
        name = f"process {len(self.processes)}"
        process, registry = Process(loop, name), new_registry(self.store.of(name))
        order = Backlog(registry, self.backlog, self.spool)
        self.processes.append((process, registry))
        for work in (*(self.send(process, registry, order) for _ in range(2)), self.ping(process, registry, order)):
            process.start(work)
        process.start(self.change_by_hand(process, registry))
        process.start(self.report(registry))
        process.start(self.unspool(order))

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
                act = Act(process.name, route_of(health), loop.time(), loop.time())
                self.acts.append(act)
                held = asyncio.create_task(registry.hold_lease("flights", health))
                if self.random.random() < 0.3:
                    seconds = self.random.uniform(0, 20)  # a slow attempt, which the lease must end
                ended = asyncio.get_running_loop().time() + seconds
                await asyncio.wait({held}, timeout=seconds)
                held.cancel()
                act.ended = min(ended, loop.time())
                if health.spool:
                    self.spool.append(1)
                elif health.route is HealthState.FAILED_OVER:
                    self.backlog.append(1)
                    self.overtaken += bool(self.spool)
                    if self.spools and self.random.random() < 0.2:
                        registry.apply("flights", BeginSpool("spool", "test"))
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
                        await order.fail_back(
                            "flights", reason="a ping was answered", by=process.name, wait_for_syphons=True
                        )
            except HealthStoreError:
                continue

    async def change_by_hand(self, process: Process, registry: OrderedHealthRegistry) -> None:
        while True:
            await asyncio.sleep(self.random.expovariate(1 / 60))
            events: list[HealthEvent] = [FailOver("test", process.name, 1.0)]
            if not self.spools:  # after it, the order of what is in the spool is up to the caller
                events.append(MarkHealthy("test", process.name))
            try:
                await registry.change("flights", self.random.choice(events))
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

    async def unspool(self, order: Backlog) -> None:
        async def empty() -> bool:
            await asyncio.sleep(self.random.expovariate(2))
            self.backlog.extend(self.spool)
            self.spool.clear()
            return self.random.random() < 0.95

        while True:
            await asyncio.sleep(self.random.uniform(1, 15))
            with suppress(HealthStoreError):
                await order.leave_spool("flights", empty)

    async def drain(self) -> None:
        while True:
            await asyncio.sleep(self.random.expovariate(2))
            self.backlog.clear()


def route_of(health: EntityHealth) -> tuple[HealthState, str]:
    return health.route, health.spool


def overlaps(acts: list[Act]) -> list[tuple[Act, Act]]:
    """Return the acts on different routes at the same time."""
    found = []
    active: list[Act] = []
    for act in sorted(acts, key=lambda each: each.began):
        active = [each for each in active if each.ended > act.began + 0.001]
        found += [(each, act) for each in active if each.route != act.route]
        active.append(act)
    return found


@pytest.mark.parametrize("spools", [False, True])
@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=pytest.mark.slow if seed >= 8 else ()) for seed in range(25)]
)
async def test_section_6_processes_with_a_lagging_store_never_act_on_two_routes_at_once(
    seed: int, *, spools: bool
) -> None:
    world = World(seed, spools=spools)
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
        assert overlaps(world.acts) == []
        assert len(world.acts) > 200
        assert world.overtaken == 0
        routes = {(HealthState.HEALTHY, ""), (HealthState.FAILED_OVER, "")}
        assert {act.route for act in world.acts} == routes | ({(HealthState.FAILED_OVER, "spool")} if spools else set())
    finally:
        draining.cancel()
        for process, registry in world.processes:
            await process.reap()
            await registry.close()


class Slowest(Random):
    """Whatever takes up to a time takes that time."""

    def uniform(self, a: float, b: float) -> float:  # noqa: ARG002 - of the superclass
        return b


class Delayed:
    """A store whose answers to one process are late."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.seconds = self.saving = 0.0
        self.loads = 0

    async def load(self, entity: str) -> EntityHealth | None:
        self.loads += 1
        loaded: EntityHealth | None = await self._store.load(entity)
        await asyncio.sleep(self.seconds)
        return loaded

    async def save(self, entity: str, health: EntityHealth) -> None:
        await self._store.save(entity, health)
        await asyncio.sleep(self.saving)


async def act_at_once(name: str, registry: OrderedHealthRegistry, acts: list[Act]) -> None:
    """Act for as long as the lease lasts, if that is allowed without waiting for the store."""
    with suppress(TimeoutError, HealthStoreError):
        route = route_of(await registry.lease("flights", timeout=0.01))
        now = asyncio.get_running_loop().time()
        acts.append(Act(name, route, now, now + registry.lease_seconds_left("flights")))


MANUAL_FAILOVER, MANUAL_FAILBACK = FailOver("drill", "ann"), MarkHealthy("drill over", "ann")
TO_SPOOL = BeginSpool("spool", "test")
HELD_FAILOVER = FailOver("another drill", "bob", hold=60.0)


@pytest.mark.parametrize(
    ("before", "event", "writes"),
    [
        pytest.param(MANUAL_FAILOVER, MANUAL_FAILBACK, PingFailed(0.0), id="failback by hand, ping"),
        pytest.param(MANUAL_FAILOVER, MANUAL_FAILBACK, HELD_FAILOVER, id="failback by hand, longer failover"),
        pytest.param(None, MANUAL_FAILOVER, MANUAL_FAILBACK, id="failover, failback of what is healthy"),
        pytest.param(MANUAL_FAILOVER, TO_SPOOL, PingFailed(0.0), id="spool, ping"),
        pytest.param(MANUAL_FAILOVER, TO_SPOOL, BeginSpool("another", "test"), id="spool, another spool"),
    ],
)
async def test_section_6_a_change_that_is_overwritten_by_one_who_had_not_read_it_is_not_acted_on(
    before: HealthEvent | None, event: HealthEvent, writes: HealthEvent
) -> None:
    for tenths in range(37, 110, 2):
        store = LaggingStore(Slowest(), lag=REFRESH / 2, latency=0.0)
        stores = {name: Delayed(store.of(name)) for name in ("first", "second")}
        first, second = registries = [new_registry(each) for each in stores.values()]
        if before is not None:
            await first.change("flights", before)
        await asyncio.sleep(20)
        await second.refresh("flights")
        await first.change("flights", event)
        await asyncio.sleep(2.45)
        stores["second"].seconds = 1.2
        await second.change("flights", writes)  # begun before the change was readable, and written 3.65 s after it
        stores["second"].seconds = 0.0
        acts: list[Act] = []
        for tick in range(37, tenths + 25):
            await asyncio.sleep(0.1)
            await act_at_once("second", second, acts)
            if tick == tenths:
                await first.refresh("flights")
                stores["first"].seconds = 3.0
            if tick >= tenths:
                await act_at_once("first", first, acts)
        for registry in registries:
            await registry.close()
        assert overlaps(acts) == [], tenths


@pytest.mark.parametrize("delay", [100.0, 0.4])
async def test_section_6_a_held_lease_is_renewed_in_time_or_ends(delay: float) -> None:
    store = Delayed(LaggingStore(Slowest(), lag=0.0, latency=0.0).of("one"))
    registry = new_registry(store)
    health = await registry.lease("flights", timeout=60)
    store.seconds, store.loads = delay, 0
    left, loop = registry.lease_seconds_left("flights"), asyncio.get_running_loop()
    began, held = loop.time(), asyncio.create_task(registry.hold_lease("flights", health))
    await asyncio.wait({held}, timeout=60)
    if delay > REFRESH:
        assert loop.time() - began == pytest.approx(left)
    else:
        renewals = 60 / (registry.leases.duration / 2)
        assert not held.done()
        assert renewals / 2 < store.loads <= renewals
    held.cancel()
    await registry.close()


async def test_section_6_a_lease_that_is_half_over_is_renewed_before_it_is_acted_on() -> None:
    store, loads = Delayed(InMemoryHealthStore()), list[int]()
    registry = new_registry(store)
    for seconds in (0.0, 1.2, 0.1):  # of 2.5 s
        await asyncio.sleep(seconds)
        await registry.lease("flights", timeout=5)
        loads.append(store.loads)
    assert loads == [1, 1, 2]
    await registry.close()


async def test_section_6_a_change_that_was_overwritten_and_made_again_settles_again() -> None:
    store = LaggingStore(Slowest(), lag=0.0, latency=0.0)
    writer, reader = new_registry(store.of("writer")), new_registry(store.of("reader"))
    await writer.change("flights", MANUAL_FAILOVER)
    failed_over = await writer.lease("flights", timeout=60)
    await writer.change("flights", MANUAL_FAILBACK)
    await reader.refresh("flights")
    await store.save("another", failed_over)  # which had not read the failback
    await asyncio.sleep(8)
    await new_registry(store.of("third")).change("flights", MANUAL_FAILBACK)
    began = asyncio.get_running_loop().time()
    assert (await reader.lease("flights", timeout=60)).route is HealthState.HEALTHY
    assert asyncio.get_running_loop().time() - began >= REFRESH
    await writer.close()
    await reader.close()


class Planned(Random):
    """Whatever takes up to a time takes all of it while ``slow``, and none of it otherwise."""

    slow = False

    def uniform(self, a: float, b: float) -> float:
        return b if self.slow else a


@pytest.mark.parametrize(("saving", "loads"), [(2.5, 0.0), (2.5, 1.2), (4.5, 3.0)])
async def test_section_6_a_failback_is_abandoned_only_once_its_writer_cannot_end_it_any_more(
    saving: float, loads: float
) -> None:
    random = Planned()
    store = LaggingStore(random, lag=REFRESH / 2, latency=0.0)
    stores = {name: Delayed(store.of(name)) for name in ("first", "second")}
    first, second = registries = [new_registry(each) for each in stores.values()]
    backlog = Backlog(first, [1])
    await first.change("flights", MANUAL_FAILOVER)
    await second.refresh("flights")
    await asyncio.sleep(20)
    # Others can read that it begins at once, its writer learns of it late; with its end it is the other way round.
    stores["first"].saving = saving
    loop, acts = asyncio.get_running_loop(), list[Act]()

    def finish() -> None:
        backlog.messages.clear()
        random.slow, stores["first"].saving, stores["first"].seconds = True, 0.0, loads

    loop.call_later(saving + first.leases.hold_seconds + 9.7, finish)
    loop.call_later(26.0, setattr, stores["first"], "seconds", min(loads, 1.2))
    failback = asyncio.create_task(backlog.fail_back("flights", reason="test", by="first", look_first=False))
    ends = loop.time() + 60
    while loop.time() < ends:
        await asyncio.sleep(0.1)
        await act_at_once("first", first, acts)
        await act_at_once("second", second, acts)
    with suppress(HealthStoreError):
        await failback
    for registry in registries:
        await registry.close()
    assert overlaps(acts) == []
    assert acts
