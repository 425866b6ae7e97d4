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
from servicebus_pair.core import EntityHealth, State
from servicebus_pair.core.events import Pinged
from servicebus_pair.core.ports import SystemClock
from tests.core.breakable import GRACE, PING, Breakable, breakable_pair
from tests.core.pinging_program import FileStore
from tests.core.stopwatch import Stopwatch

# Refused at once, so that a ping takes no time, and counted by the namespace.
FULL = Fault(kind=FaultKind.QUOTA_EXCEEDED, entity="flights")
MANY = 8


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
        await until(program, "ready failed_over")
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


def refused(breakable: Breakable) -> int:
    """How many pings the namespace has refused: nothing else is sent to it."""
    return sum(each.strikes for each in breakable.primary.faults)


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
            before, began = refused(breakable), loop.time()
            while (asked := refused(breakable) - before) < MANY:  # noqa: ASYNC110 - a fault tells nobody
                await asyncio.sleep(0.1)
            # One each second at most, and now and then both in the same moment; two that know nothing make sixteen.
            intervals = (loop.time() - began) / PING
            assert asked <= intervals + 3, f"{asked} pings in {intervals:.1f} intervals"
            one.kill()
            await one.wait()
            await until(two, "pinged False")
            await until(two, "pinged False")
            breakable.primary.clear_faults()
            async with Stopwatch() as watch:
                await until(two, "pinged True")
            assert watch.seconds < PING + GRACE
            await until(two, "healthy")
        shared = await FileStore(tmp_path).load("flights")
        assert shared is not None
        assert shared.state is State.HEALTHY
        # This process shares no store: it has nothing to do with any of it.
        assert breakable.recorder.of(Pinged) == []
