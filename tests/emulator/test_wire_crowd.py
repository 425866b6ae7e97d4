"""Issue 3: "1,000 connections open at once"."""

from __future__ import annotations

import asyncio
import resource
from contextlib import AsyncExitStack

import psutil

from servicebus_emulator.process import EmulatorProcess
from tests.emulator.crowd import KILOBYTE, run
from tests.emulator.peer import connected, is_open


async def test_a_thousand_connections_are_open_at_once_and_each_is_served():
    figures = await run(count=1000)
    assert figures.served == 1000
    assert figures.seconds < 30
    assert figures.memory < 200 * KILOBYTE


async def test_who_finds_no_room_waits_for_it_and_nobody_else_suffers():
    with EmulatorProcess(["contoso"], open=True) as process:
        served = process["contoso"]
        open_now = psutil.Process(process.pid).num_fds()
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (open_now + 20, open_now + 20))
        async with AsyncExitStack() as crowd:
            peers = [await crowd.enter_async_context(connected(served)) for _ in range(60)]
            for peer in peers:
                peer.begin()
                peer.push()
            await asyncio.sleep(1)
            await peers[0].until(lambda: is_open(peers[0].connection))
            assert psutil.Process(process.pid).num_fds() <= open_now + 20
        async with connected(served) as late:
            late.begin()
            await late.until(lambda: is_open(late.connection))
