"""An asyncio echo server: the minimum cost of a request and its response on this machine."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from time import perf_counter
from typing import Final, cast

import psutil

_TRIPS: Final = 6_000
_REQUEST: Final = b"x" * 100
# The SDK's time between two requests. The server sleeps meanwhile and wakes with cold caches, like a broker.
_CLIENT_WORK: Final = 150e-6


def bare_round_trip_cost() -> float:
    """Return the CPU seconds that a server process needs to receive some bytes and send them back."""
    with subprocess.Popen([sys.executable, __file__], stdout=subprocess.PIPE, text=True) as process:
        try:
            if process.stdout is None:
                raise RuntimeError("the process was started with a pipe")
            port = int(process.stdout.readline())
            with socket.create_connection(("127.0.0.1", port)) as client:
                return _measure(client, server=psutil.Process(process.pid))
        finally:
            process.terminate()


def _measure(client: socket.socket, *, server: psutil.Process) -> float:
    before = server.cpu_times()
    for _ in range(_TRIPS):
        client.sendall(_REQUEST)
        client.recv(len(_REQUEST))
        _busy_wait(_CLIENT_WORK)
    after = server.cpu_times()
    return (after.user - before.user + after.system - before.system) / _TRIPS


def _busy_wait(seconds: float) -> None:
    deadline = perf_counter() + seconds
    while perf_counter() < deadline:
        pass


class _Echo(asyncio.BufferedProtocol):
    # Not asyncio.Protocol: in such a small process, malloc returns the 256 KiB of each read to the kernel and requests
    # them again. That doubles the cost; larger servers do not have it.
    def __init__(self) -> None:
        self._buffer = memoryview(bytearray(len(_REQUEST)))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._transport.write(bytes(self._buffer[:nbytes]))


async def _serve() -> None:
    server = await asyncio.get_running_loop().create_server(_Echo, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)  # noqa: T201 - read by the parent process
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve())
