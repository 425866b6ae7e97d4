"""A TCP proxy on the loopback that makes the way longer: ``python -m tests.benchmarks.delay_proxy TARGET_PORT MS``.

Bytes are half a round trip late in either direction, and never faster than they came. Prints its port.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from asyncio import StreamReader, StreamWriter
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["delayed"]

_CHUNK = 2**18


@contextmanager
def delayed(port: int, *, round_trip_ms: float) -> Iterator[int]:
    """Answer a port behind which ``port`` is, that much further away; the proxy is a process of its own."""
    command = [sys.executable, "-m", "tests.benchmarks.delay_proxy", str(port), str(round_trip_ms)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.terminate()


async def _serve(target: int, delay: float) -> None:
    async def connected(near_reader: StreamReader, near_writer: StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", target)
        await asyncio.gather(_pass_on(near_reader, far_writer, delay), _pass_on(far_reader, near_writer, delay))

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)  # noqa: T201 - for who started it
    async with server:
        await server.serve_forever()


async def _pass_on(reader: StreamReader, writer: StreamWriter, delay: float) -> None:
    loop = asyncio.get_running_loop()
    try:
        while chunk := await reader.read(_CHUNK):
            loop.call_later(delay, writer.write, chunk)
    except ConnectionError:
        pass
    loop.call_later(delay, writer.close)


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), float(sys.argv[2]) / 2000))
