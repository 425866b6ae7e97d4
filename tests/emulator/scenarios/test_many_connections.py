"""A thousand connections are open at once."""

from __future__ import annotations

import asyncio
import resource
import time
from contextlib import AsyncExitStack

import psutil
from proton import Link

from servicebus_emulator.cli import allow_many_connections
from servicebus_emulator.testing.process import EmulatorProcess
from tests.emulator.support.command import memory_of
from tests.emulator.support.proton_client import Peer, attach_links, connected, is_open, send_messages

COUNT = 1000
KILOBYTE = 1024


async def test_a_thousand_concurrent_connections_are_served():
    allow_many_connections()
    # At most 100 clients open or send at a time, so that each waits for the emulator and not for the other clients.
    limit = asyncio.Semaphore(100)
    with EmulatorProcess(["contoso"], open=True) as process:
        served = process["contoso"]
        served.create_queue("flights")
        before, started = memory_of(process), time.monotonic()

        async with AsyncExitStack() as stack:

            async def connect() -> tuple[Peer, Link]:
                async with limit:
                    peer = await stack.enter_async_context(connected(served))
                    sender, _ = await attach_links(peer, seconds=60)
                    return peer, sender

            async def send(peer: Peer, sender: Link) -> None:
                async with limit:
                    await send_messages(peer, sender, seconds=60)

            peers = await asyncio.gather(*(connect() for _ in range(COUNT)))
            assert time.monotonic() - started < 30
            assert (memory_of(process) - before) / COUNT < 200 * KILOBYTE
            await asyncio.gather(*(send(peer, sender) for peer, sender in peers))


async def test_connections_beyond_the_file_limit_wait_and_harm_no_others():
    with EmulatorProcess(["contoso"], open=True) as process:
        served = process["contoso"]
        open_now = psutil.Process(process.pid).num_fds()
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (open_now + 20, open_now + 20))
        async with AsyncExitStack() as stack:
            peers = [await stack.enter_async_context(connected(served)) for _ in range(60)]
            for peer in peers:
                peer.begin()
                peer.push()
            await asyncio.sleep(1)
            await peers[0].until(lambda: is_open(peers[0].connection))
            assert psutil.Process(process.pid).num_fds() <= open_now + 20
        async with connected(served) as late:
            late.begin()
            await late.until(lambda: is_open(late.connection))
