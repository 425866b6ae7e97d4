"""Many connections at once: ``python -m tests.emulator.crowd --count 1000``."""

from __future__ import annotations

import argparse
import asyncio
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass

import psutil
from proton import Link

from servicebus_emulator.process import EmulatorProcess
from servicebus_emulator.wire_options import allow_many_connections
from tests.emulator.peer import Peer, connected, is_open

KILOBYTE = 1024
# No more than this many begin at a time: each waits for its turn, not for the machine.
AT_A_TIME = 100


@dataclass(frozen=True, slots=True)
class Figures:
    """What a run showed: how many came in, in how many seconds, for how many bytes each, and how many were served."""

    count: int
    seconds: float
    memory: float
    served: int

    def __str__(self) -> str:
        each = self.memory / KILOBYTE
        return f"{self.count} connections in {self.seconds:.1f} s, {each:.0f} KB each; {self.served} of them sent"


async def crowd(process: EmulatorProcess, *, count: int, path: str) -> Figures:
    """Open connections, each with a session, a sender and a receiver; then send on every one while all are open."""
    served, before = process["contoso"], _memory(process)
    began = time.monotonic()
    turn = asyncio.Semaphore(AT_A_TIME)

    async with AsyncExitStack() as all_of_them:

        async def come() -> tuple[Peer, Link]:
            async with turn:
                peer = await all_of_them.enter_async_context(connected(served))
                session = peer.begin()
                sender, receiver = peer.sender(session, path), peer.receiver(session, path)
                await peer.until(lambda: sender.credit > 0 and is_open(receiver), seconds=60)
                return peer, sender

        peers = await asyncio.gather(*(come() for _ in range(count)))
        seconds, memory = time.monotonic() - began, (_memory(process) - before) / count

        async def send(peer: Peer, sender: Link) -> bool:
            async with turn:
                sender.delivery("x")
                sender.send(b"\x00Su\xa0\x01x")
                sender.advance()
                await peer.until(lambda: "x" in peer.answered, seconds=60)
                return "x" in peer.answered

        done = await asyncio.gather(*(send(peer, sender) for peer, sender in peers))
    return Figures(count=count, seconds=seconds, memory=memory, served=sum(done))


def _memory(process: EmulatorProcess) -> int:
    return int(psutil.Process(process.pid).memory_info().rss)


async def run(*, count: int) -> Figures:
    """Serve a namespace in a process of its own, and crowd it."""
    allow_many_connections()
    from azure.servicebus.aio.management import ServiceBusAdministrationClient

    with EmulatorProcess(["contoso"], open=True) as process:
        served = process["contoso"]
        async with ServiceBusAdministrationClient.from_connection_string(
            served.connection_string, connection_verify=str(served.ca_file)
        ) as client:
            await client.create_queue("flights")
        return await crowd(process, count=count, path="flights")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000, help="how many (default: %(default)s)")
    print(asyncio.run(run(count=parser.parse_args().count)))  # noqa: T201 - what it is for


if __name__ == "__main__":
    main()
