"""Health shared with other processes: who pings, who takes over, and a store that fails (SPEC sections 4 and 5)."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from servicebus_emulator import Fault, FaultKind
from servicebus_pair.core import EntityHealth, State
from servicebus_pair.core.events import Pinged
from servicebus_pair.core.ports import InMemoryHealthStore, SystemClock
from tests.core.breakable import GRACE, INTERVAL, PING, Breakable, breakable_pair, numbered
from tests.core.pinging_program import FileStore

pytestmark = pytest.mark.simulated

BROKEN = Fault(kind=FaultKind.INTERNAL_ERROR, entity="flights")
# Refused at once, so that a ping takes no time, and counted by the namespace.
FULL = Fault(kind=FaultKind.QUOTA_EXCEEDED, entity="flights")


class Raising:
    """A store whose server is down."""

    async def load(self, entity: str) -> EntityHealth | None:
        raise ConnectionError(f"the store is down: nothing is known of {entity}")

    async def save(self, entity: str, health: EntityHealth) -> None:
        raise ConnectionError(f"the store is down: {entity} is {health.state}")


class Hanging:
    """A store whose server is frozen."""

    async def load(self, entity: str) -> EntityHealth | None:
        await asyncio.Event().wait()
        raise AssertionError(entity)

    async def save(self, entity: str, health: EntityHealth) -> None:
        await asyncio.Event().wait()
        raise AssertionError((entity, health))


class Slow(InMemoryHealthStore):
    """A store that takes longer to save than the entity to change."""

    def __init__(self) -> None:
        super().__init__()
        self.saved: list[str] = []
        self.may_go_on = asyncio.Event()

    async def save(self, entity: str, health: EntityHealth) -> None:
        await self.may_go_on.wait()
        self.saved.append(health.reason)
        await super().save(entity, health)


@pytest.mark.parametrize("store", [Raising(), Hanging()], ids=["raises", "hangs"])
async def test_section_4_a_store_that_fails_stops_no_send_no_failover_and_no_ping_and_is_logged(
    store: Raising | Hanging, caplog: pytest.LogCaptureFixture
) -> None:
    async with breakable_pair(store=store) as breakable, breakable.pair.sender("flights") as sender:
        assert (await sender.send(numbered(1))).primary == 1
        breakable.primary.set_fault(BROKEN)
        loop = asyncio.get_running_loop()
        began = loop.time()
        assert (await sender.send(numbered(1, start=1))).diverted == 1
        assert loop.time() - began < INTERVAL + GRACE
        breakable.primary.clear_faults()
        mended = loop.time()
        await asyncio.wait_for(breakable.recorder.healthy_again.wait(), 10)
        assert (await sender.send(numbered(1, start=2))).primary == 1
        assert loop.time() - mended < PING + GRACE
    # The first of them when the store raises; when it hangs, the pair is closed before it is given up.
    told = {record.getMessage() for record in caplog.records if record.name == "servicebus_pair.core.board"}
    assert "entity=flights: shared health could not be read" in told
    assert any("sharing its health failed" in line or "was not shared before closing" in line for line in told)


async def test_section_4_a_slow_store_is_given_the_newest_health_and_no_queue_of_old_ones() -> None:
    store = Slow()
    async with breakable_pair(store=store) as breakable:
        for turn in range(50):
            breakable.pair.fail_over("flights", reason=f"down {turn}")
            breakable.pair.mark_healthy("flights", reason=f"up {turn}")
            await asyncio.sleep(0)
        store.may_go_on.set()
        await breakable.pair._board.flush()
        assert store.saved[-1] == "up 49"
        assert len(store.saved) <= 2
        assert store.known["flights"].state is State.HEALTHY


async def test_section_1_a_store_in_memory_knows_entities_in_any_case() -> None:
    store = InMemoryHealthStore({"Flights": EntityHealth(State.FAILED_OVER, since=5.0)})
    assert (await store.load("fLIGHTS")) == EntityHealth(State.FAILED_OVER, since=5.0)


@asynccontextmanager
async def pinging(breakable: Breakable, folder: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process of its own that shares nothing but the store; ready when this returns."""
    primary, secondary = breakable.primary, breakable.secondary
    settings = {
        "primary_connection_string": primary.connection_string,
        "primary_namespace": primary.name,
        "secondary_connection_string": secondary.connection_string,
        "secondary_namespace": secondary.name,
    }
    command = (sys.executable, "-W", "ignore", "-m", "tests.core.pinging_program", json.dumps(settings), str(folder))
    program = await asyncio.create_subprocess_exec(
        *command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=Path(__file__).parents[2]
    )
    try:
        assert await line_of(program) == "ready failed_over"
        yield program
    finally:
        if program.returncode is None:
            program.kill()
        await program.wait()


async def line_of(program: asyncio.subprocess.Process) -> str:
    assert program.stdout is not None
    return (await asyncio.wait_for(program.stdout.readline(), 60)).decode().strip()


async def until(program: asyncio.subprocess.Process, line: str) -> None:
    while await line_of(program) != line:
        assert not program.stdout.at_eof()  # type: ignore[union-attr]


def strikes(breakable: Breakable) -> int:
    """How many pings the namespace has refused: nothing else is sent to it."""
    return sum(each.strikes for each in breakable.primary.faults)


@pytest.mark.real_time
async def test_section_5_two_processes_with_a_store_ping_as_often_as_one_and_one_takes_over_when_the_other_dies(
    tmp_path: Path,
) -> None:
    loop = asyncio.get_running_loop()
    async with breakable_pair() as breakable:
        breakable.primary.set_fault(FULL)
        now = SystemClock().now()
        known = EntityHealth(State.FAILED_OVER, since=now, last_ping=now + 4, reason="elsewhere", by="send")
        await FileStore(tmp_path).save("flights", known)
        async with pinging(breakable, tmp_path) as one, pinging(breakable, tmp_path) as two:
            await until(one, "pinged False")
            before, began = strikes(breakable), loop.time()
            await asyncio.sleep(8)
            asked = strikes(breakable) - before
            # One each second at most, and now and then both in the same moment; two that know nothing make sixteen.
            assert 5 <= asked <= 11, f"{asked} pings in {loop.time() - began:.1f} s"
            one.kill()
            await one.wait()
            before = strikes(breakable)
            await until(two, "pinged False")
            await asyncio.sleep(3)
            assert strikes(breakable) - before >= 2
            breakable.primary.clear_faults()
            mended = loop.time()
            await until(two, "pinged True")
            assert loop.time() - mended < PING + GRACE
            await until(two, "healthy")
        shared = await FileStore(tmp_path).load("flights")
        assert shared is not None
        assert shared.state is State.HEALTHY
        # This process shares no store: it has nothing to do with any of it.
        assert breakable.recorder.of(Pinged) == []
