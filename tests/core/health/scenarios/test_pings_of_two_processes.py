"""Two processes that share a store ping as one, and one takes over when the other dies (SPEC sections 4 and 5)."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from servicebus_emulator import Fault, FaultKind
from servicebus_pair.core import EntityHealth, HealthState
from servicebus_pair.core.model.events import Pinged
from servicebus_pair.core.model.interfaces import SystemClock
from tests.core.support.local_pair import FAILOVER_MARGIN, PING_INTERVAL, LocalPair, open_quick_pair
from tests.core.support.ping_process import FileStore
from tests.core.support.processes import kill
from tests.core.support.stopwatch import Stopwatch

# Refused at once, so that a ping takes no time, and counted by the namespace.
FULL = Fault(kind=FaultKind.QUOTA_EXCEEDED, entity="flights")
MANY = 8


@asynccontextmanager
async def pinging(local_pair: LocalPair, folder: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process of its own that shares nothing but the store; ready when this returns."""
    primary, secondary = local_pair.primary, local_pair.secondary
    settings = {
        "primary_connection_string": primary.connection_string,
        "primary_namespace": primary.name,
        "secondary_connection_string": secondary.connection_string,
        "secondary_namespace": secondary.name,
    }
    command = (
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "tests.core.support.ping_process",
        json.dumps(settings),
        str(folder),
    )
    program = await asyncio.create_subprocess_exec(
        *command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=Path(__file__).parents[4]
    )
    try:
        await until(program, "ready failed_over")
        yield program
    finally:
        kill(program)
        await program.wait()


async def line_of(program: asyncio.subprocess.Process) -> str:
    assert program.stdout is not None
    return (await asyncio.wait_for(program.stdout.readline(), 60)).decode().strip()


async def until(program: asyncio.subprocess.Process, line: str) -> None:
    while await line_of(program) != line:
        assert not program.stdout.at_eof()  # type: ignore[union-attr]


def refused(local_pair: LocalPair) -> int:
    """How many pings the namespace has refused: nothing else is sent to it."""
    return sum(each.strikes for each in local_pair.primary.faults)


async def test_section_5_two_processes_ping_as_often_as_one_and_survive_the_death_of_one(
    tmp_path: Path,
) -> None:
    loop = asyncio.get_running_loop()
    async with open_quick_pair() as local_pair:
        local_pair.primary.set_fault(FULL)
        now = SystemClock().now()
        known = EntityHealth(HealthState.FAILED_OVER, since=now, last_ping=now + 4, reason="elsewhere", by="send")
        await FileStore(tmp_path).save("flights", known)
        async with pinging(local_pair, tmp_path) as one, pinging(local_pair, tmp_path) as two:
            await until(one, "pinged False")
            before, began = refused(local_pair), loop.time()
            while (asked := refused(local_pair) - before) < MANY:  # noqa: ASYNC110 - a fault has no event
                await asyncio.sleep(0.1)
            # At most one each second, sometimes both at once; two independent processes would send sixteen.
            intervals = (loop.time() - began) / PING_INTERVAL
            assert asked <= intervals + 3, f"{asked} pings in {intervals:.1f} intervals"
            kill(one)
            await one.wait()
            await until(two, "pinged False")
            await until(two, "pinged False")
            local_pair.primary.clear_faults()
            async with Stopwatch() as watch:
                await until(two, "pinged True")
            assert watch.seconds < PING_INTERVAL + FAILOVER_MARGIN
            await until(two, "healthy")
        shared = await FileStore(tmp_path).load("flights")
        assert shared is not None
        assert shared.state is HealthState.HEALTHY
        # This process shares no store: it has nothing to do with any of it.
        assert local_pair.recorder.of(Pinged) == []
