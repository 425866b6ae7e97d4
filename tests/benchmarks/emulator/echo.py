"""Asyncio without anything behind it: the least that a request and its answer cost a server on this machine."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from time import perf_counter
from typing import Final, cast

import psutil

__all__ = ["bare_round_trip"]

_TRIPS: Final = 6_000
_REQUEST: Final = b"x" * 100
# What the SDK takes between two requests. A server that sleeps meanwhile wakes with cold caches, as a broker does.
_PAUSE: Final = 150e-6


def bare_round_trip() -> float:
    """Return the CPU time that a server process takes to receive some bytes and send them back, in seconds."""
    with subprocess.Popen([sys.executable, __file__], stdout=subprocess.PIPE, text=True) as process:
        try:
            if process.stdout is None:
                raise RuntimeError("the process was started with a pipe")
            port = int(process.stdout.readline())
            with socket.create_connection(("127.0.0.1", port)) as client:
                return _cost_of_trips(client, server=psutil.Process(process.pid))
        finally:
            process.terminate()


def _cost_of_trips(client: socket.socket, *, server: psutil.Process) -> float:
    before = server.cpu_times()
    for _ in range(_TRIPS):
        client.sendall(_REQUEST)
        client.recv(len(_REQUEST))
        _work(_PAUSE)
    after = server.cpu_times()
    return (after.user - before.user + after.system - before.system) / _TRIPS


def _work(seconds: float) -> None:
    until = perf_counter() + seconds
    while perf_counter() < until:
        pass


class _Echo(asyncio.BufferedProtocol):
    # Not asyncio.Protocol: in a process as small as this, malloc gives back to the kernel the 256 KiB that asyncio
    # asks for at each read, and asks for them again. That doubles the cost, and no server of any size pays it.
    def __init__(self) -> None:
        self._memory = memoryview(bytearray(len(_REQUEST)))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        return self._memory

    def buffer_updated(self, nbytes: int) -> None:
        self._transport.write(bytes(self._memory[:nbytes]))


async def _serve() -> None:
    server = await asyncio.get_running_loop().create_server(_Echo, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)  # noqa: T201 - whoever started the process waits for it
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve())
