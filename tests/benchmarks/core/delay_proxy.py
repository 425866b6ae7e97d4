"""A TCP proxy that adds latency: ``python -m tests.benchmarks.core.delay_proxy TARGET_PORT ROUND_TRIP_MS``.

It delays bytes by half a round trip in each direction and prints its port.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from asyncio import StreamReader, StreamWriter
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["delayed"]

_CHUNK_BYTES = 2**18


@contextmanager
def delayed(port: int, *, round_trip_ms: float) -> Iterator[int]:
    """Yield a port that forwards to ``port`` with latency, from a separate process."""
    command = [sys.executable, __file__, str(port), str(round_trip_ms)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.terminate()


async def _serve(target_port: int, delay: float) -> None:
    async def handle(client_reader: StreamReader, client_writer: StreamWriter) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", target_port)
        await asyncio.gather(_forward(client_reader, writer, delay), _forward(reader, client_writer, delay))

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)  # noqa: T201 - read by the parent process
    async with server:
        await server.serve_forever()


async def _forward(reader: StreamReader, writer: StreamWriter, delay: float) -> None:
    loop = asyncio.get_running_loop()
    try:
        while chunk := await reader.read(_CHUNK_BYTES):
            loop.call_later(delay, writer.write, chunk)
    except ConnectionError:
        pass
    loop.call_later(delay, writer.close)


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), float(sys.argv[2]) / 2000))
