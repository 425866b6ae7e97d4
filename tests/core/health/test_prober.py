"""One task per entity pings, processes share the pings, and all senders fail back (SPEC sections 4 and 5)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from servicebus_emulator import Fault, FaultKind
from servicebus_emulator.engine.model.descriptions import QueueDescription
from servicebus_pair.core import EntityHealth, HealthState, PairOptions
from servicebus_pair.core.health.prober import Prober, ping_message
from servicebus_pair.core.model.errors import (
    EntityNotFoundError,
    HealthStoreError,
    PairClosedError,
    ServiceError,
    UnreachableError,
)
from servicebus_pair.core.model.events import HealthChanged, Pinged
from servicebus_pair.core.model.health_transitions import EntityMissing, PingFailed, PingSucceeded
from servicebus_pair.core.model.interfaces import SystemClock
from tests.core.support.encoding import properties_of
from tests.core.support.local_pair import LocalPair, numbered
from tests.core.support.manual_clock import ManualClock

pytestmark = pytest.mark.simulated

DOWN = Fault(kind=FaultKind.INTERNAL_ERROR, entity="flights")
# Refused at once, so that a ping takes no time.
FULL = Fault(kind=FaultKind.QUOTA_EXCEEDED, entity="flights")


async def test_section_5_one_task_pings_an_entity_for_all_its_senders(local_pair: LocalPair) -> None:
    local_pair.primary.set_fault(FULL)
    await local_pair.pair.fail_over("flights", reason="test")
    senders = [local_pair.pair.sender("flights"), local_pair.pair.sender("FLIGHTS"), local_pair.pair.sender("flights")]
    results = await asyncio.gather(*(sender.send(numbered(1)) for sender in senders))
    assert [result.diverted for result in results] == [1, 1, 1]
    before = len(local_pair.recorder.of(Pinged))
    await asyncio.sleep(3.5)
    assert len(local_pair.recorder.of(Pinged)) - before in (3, 4)


async def test_section_5_a_session_queue_accepts_a_ping(local_pair: LocalPair) -> None:
    local_pair.primary.namespace.create_queue(QueueDescription("seated", requires_session=True))
    assert await local_pair.pair.ping("seated")


@pytest.mark.parametrize(("interval", "expected"), [(5, 0.5), (30, 1.0)])
def test_section_5_the_jitter_is_a_tenth_of_the_interval_and_at_most_a_second(interval: int, expected: float) -> None:
    options = PairOptions(ping_primary_interval=timedelta(seconds=interval))
    random: Any = SimpleNamespace(uniform=lambda low, high: (low, high))
    unused: Any = None
    assert Prober(unused, unused, options, clock=SystemClock(), random=random)._jitter() == (0, expected)


@pytest.mark.parametrize(
    ("since", "last_ping", "due"),
    [
        (1000, None, 1010.5),  # failed over now
        (995, None, 1005.5),
        (990, None, 1010.5),  # overdue: a whole interval, so that processes that start together do not all ping
        (900, 998, 1008.5),
        (999, 998, 1009.5),
        (900, 1002, 1010.5),  # the clock of another process is ahead
    ],
)
def test_section_5_the_first_ping_comes_an_interval_after_the_last_one_known(
    since: float, last_ping: float | None, due: float
) -> None:
    registry: Any = SimpleNamespace(current=lambda _: EntityHealth(HealthState.FAILED_OVER, since, last_ping))
    random: Any = SimpleNamespace(uniform=lambda _, high: high / 2)
    options = PairOptions(ping_primary_interval=timedelta(seconds=10))
    unused: Any = None
    prober = Prober(unused, registry, options, clock=ManualClock(1000), random=random)
    assert prober._first_due("flights") == due


@pytest.mark.parametrize(("timeout", "interval", "used"), [(120, 60, 60), (2, 60, 2), (120, 1, 1), (0.5, 1, 0.5)])
def test_section_5_a_ping_ends_before_the_next_one(timeout: float, interval: int, used: float) -> None:
    options = PairOptions(ping_timeout=timedelta(seconds=timeout), ping_primary_interval=timedelta(seconds=interval))
    unused: Any = None
    assert Prober(unused, unused, options, clock=ManualClock(), random=Random(0))._timeout == used  # noqa: S311 - unused


def test_section_5_a_ping_is_empty_short_lived_and_has_its_own_session() -> None:
    one, two = ping_message(), ping_message()
    assert one.header is not None
    assert (b"".join(one.body), one.header.time_to_live) == (b"", 1000)
    assert properties_of(one).content_type == "application/vnd.ms-servicebus-ping"
    ids = [(properties_of(each).group_id, properties_of(each).message_id) for each in (one, two)]
    assert len({*ids[0], *ids[1]}) == 4


async def test_section_4_a_manual_failover_records_who_why_and_when(local_pair: LocalPair) -> None:
    await local_pair.pair.fail_over("flights", reason="rehearsal", by="ann")
    await local_pair.pair.mark_healthy("flights", reason="done", by="bob")
    changes = [event.after for event in local_pair.recorder.of(HealthChanged)]
    assert [(each.state, each.reason, each.by) for each in changes] == [
        (HealthState.FAILED_OVER, "rehearsal", "ann"),
        (HealthState.HEALTHY, "done", "bob"),
    ]
    assert 0 <= SystemClock().now() - changes[0].since < 5


class FakeProber(Prober):
    """Pings every ten seconds without jitter on a manual clock, over a registry of one entity; each ping takes 3 s."""

    def __init__(self, pings: int) -> None:
        self.clock = ManualClock(1000)
        self.health = EntityHealth(HealthState.FAILED_OVER, since=1000)
        self.pinged: list[float] = []
        self.shared: dict[float, dict[str, Any]] = {}
        self.failures: list[Exception] = []
        self.jitter = 0.0
        self._pings = pings
        registry: Any = SimpleNamespace(current=lambda _: self.health, refresh=self._refresh)
        random: Any = SimpleNamespace(uniform=lambda *_: self.jitter)
        options = PairOptions(ping_primary_interval=timedelta(seconds=10))
        unused: Any = None
        super().__init__(unused, registry, options, clock=self.clock, random=random)

    async def _refresh(self, _: str, *, timeout: float) -> EntityHealth:
        assert timeout == 0.5
        self.health = replace(self.health, **self.shared.get(self.clock.now(), {}))
        return self.health

    async def ping(self, entity: str, *, wait_for_syphons: bool = False) -> bool:
        assert (entity, wait_for_syphons) == ("flights", True)
        self.pinged.append(self.clock.now())
        self.health = replace(self.health, last_ping=self.clock.now())
        self.clock.time += 3
        if len(self.pinged) == self._pings:
            self.health = EntityHealth()
        if self.failures:
            raise self.failures.pop(0)
        return False


@pytest.mark.parametrize(
    ("shared", "pinged"),
    [
        ({}, [1010, 1020, 1030]),
        ({1010: {"last_ping": 1008}}, [1018, 1028, 1038]),
        ({1020: {"last_ping": 1018}}, [1010, 1028, 1038]),
        ({1020: {"last_ping": 1010}}, [1010, 1020, 1030]),
        ({1020: {"last_ping": 1009}}, [1010, 1020, 1030]),
        ({1020: {"last_ping": 1050}}, [1010, 1030, 1040]),  # the clock of another process is ahead
        ({1010: {"held_until": 1015.0}}, [1020, 1030, 1040]),
        ({1020: {"state": HealthState.HEALTHY}}, [1010]),
    ],
)
async def test_section_5_pings_have_a_fixed_rate_and_those_of_other_processes_count(
    shared: dict[float, dict[str, Any]], pinged: list[float]
) -> None:
    prober = FakeProber(pings=3)
    prober.shared = shared
    await prober._run("flights")
    assert prober.pinged == pinged


async def test_section_5_a_process_that_lets_another_one_ping_first_goes_on_a_little_after_it() -> None:
    prober = FakeProber(pings=3)
    prober.jitter, prober.shared = 0.5, {1020.5: {"last_ping": 1018}}
    await prober._run("flights")
    assert prober.pinged == [1010.5, 1028.5, 1038.5]


async def test_section_5_an_unexpected_error_does_not_end_the_pings_and_a_closed_client_does() -> None:
    prober = FakeProber(pings=9)
    prober.failures = [ValueError("a bug"), PairClosedError("closed")]
    await prober._run("flights")
    assert prober.pinged == [1010, 1020]


@pytest.mark.parametrize(("by_link", "empty"), [(False, None), (True, None), (False, True), (False, False)])
@pytest.mark.parametrize("failure", [None, EntityNotFoundError("gone"), UnreachableError("lost")])
async def test_section_5_a_ping_reports_its_duration_and_result(
    by_link: bool, empty: bool | None, failure: ServiceError | None
) -> None:
    clock, emitted, applied, calls = ManualClock(1000), list[Any](), list[Any](), list[tuple[str, float]]()

    async def call(name: str, timeout: float) -> None:
        calls.append((name, timeout))
        clock.time += 3
        if failure is not None:
            raise failure

    async def fail_back(entity: str, *, reason: str, by: str, wait_for_syphons: bool) -> bool:
        assert (entity, by, wait_for_syphons) == ("flights", "ping", False)
        why = "" if failure is None else ": the entity does not exist"
        assert reason == f"a ping was answered{why}, and its backlog is empty"
        return bool(empty)

    link = SimpleNamespace(
        reopen=lambda *, timeout: call("reopen", timeout), send_ping=lambda _, *, timeout: call("send", timeout)
    )
    primary: Any = SimpleNamespace(send_link=lambda _: link)

    async def change(_: str, event: Any) -> bool:
        applied.append(event)
        return True

    registry: Any = SimpleNamespace(
        emit_best_effort=emitted.append,
        apply=lambda _, event: applied.append(event),
        change=change,
        current=lambda _: EntityHealth(HealthState.FAILED_OVER, since=900),
    )
    order: Any = None if empty is None else SimpleNamespace(fail_back=fail_back)
    options = PairOptions(probe="link" if by_link else "ping")
    prober = Prober(primary, registry, options, clock=clock, random=Random(0), order=order)  # noqa: S311 - unused
    assert await prober.ping("flights") is (failure is None and empty is not False)
    name = None if failure is None else type(failure).__name__
    assert emitted == [Pinged("flights", failure is None, 3.0, name, 1003.0)]
    assert calls == [("reopen" if by_link else "send", 60.0)]
    answered = PingSucceeded(1000) if failure is None else EntityMissing(1000)
    # With session order, a ping is only recorded: the failback changes the health.
    only_recorded = empty is not None or isinstance(failure, UnreachableError)
    assert applied == [PingFailed(1000) if only_recorded else answered]


async def test_pings_of_many_entities_open_a_hundred_connections_at_once() -> None:
    # A message in the backlog may name any entity: the triggerer, which pings them all, has 1024 files or more.
    open_now, most = set[str](), 0

    async def send_ping(entity: str, timeout: float) -> None:
        nonlocal most
        assert timeout == 1
        open_now.add(entity)
        most = max(most, len(open_now))
        await asyncio.sleep(1)
        open_now.remove(entity)

    primary: Any = SimpleNamespace(
        send_link=lambda entity: SimpleNamespace(send_ping=lambda _, *, timeout: send_ping(entity, timeout))
    )
    registry: Any = SimpleNamespace(emit_best_effort=lambda _: None)
    prober = Prober(primary, registry, PairOptions(), clock=ManualClock(), random=Random(0))  # noqa: S311 - unused

    results = await asyncio.gather(*(prober.probe(f"e{number}", timeout=1) for number in range(1500)))

    assert results == [None] * 1500
    assert most == 100


@pytest.mark.parametrize(
    "health",
    [
        EntityHealth(HealthState.FAILED_OVER, since=900, held_until=2000),
        EntityHealth(HealthState.FAILING_BACK, since=900),
    ],
)
@pytest.mark.parametrize("error", [None, HealthStoreError("the store is down")])
async def test_section_6_a_ping_begins_no_failback_during_another_one_or_a_hold_or_without_the_store(
    health: EntityHealth, error: HealthStoreError | None
) -> None:
    async def send_ping(_: object, *, timeout: float) -> None:
        assert timeout == 60

    unused: Any = SimpleNamespace()
    primary: Any = SimpleNamespace(send_link=lambda _: SimpleNamespace(send_ping=send_ping))
    applied: list[Any] = []

    async def change(_: str, event: Any) -> bool:
        applied.append(event)
        if error is not None:
            raise error
        return True

    registry: Any = SimpleNamespace(emit_best_effort=lambda _: None, change=change, current=lambda _: health)
    prober = Prober(primary, registry, PairOptions(), clock=ManualClock(1000), random=Random(0), order=unused)  # noqa: S311
    assert not await prober.ping("flights")
    assert applied == [PingFailed(1000)]
