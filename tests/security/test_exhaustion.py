"""Clients without a key that open much and send little: the embedded bus stays small and goes on serving."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack, suppress

import psutil

from servicebus_emulator import EmulatorProcess, RemoteNamespace
from servicebus_emulator.cli import allow_many_connections
from tests.emulator.support.command import memory_of

MEGABYTE = 1 << 20
KEY = "a key of one's own".replace(" ", "-")
FORM = "application/x-www-form-urlencoded"
SASL_HEADER = b"AMQP\x03\x01\x00\x00"
# What each of the clients says, after which it is silent.
SAID = {
    "nothing": b"",
    "half a header": b"AMQ",
    "a header": SASL_HEADER,
    "a frame of 4 GB": SASL_HEADER + b"\xff\xff\xff\xff\x02\x01\x00\x00" + b"x" * MEGABYTE,
    "AMQP without a login": b"AMQP\x00\x01\x00\x00" + b"\x00\x00\xff\xff\x02\x00\x00\x00" + b"x" * 60_000,
    "half a TLS hello": b"\x16\x03\x01\x02\x00\x01",
    "half a request": b"GET /$servicebus/websocket HTTP/1.1\r\n" + b"X: y\r\n" * 2000,
    "a line without an end": b"GET /" + b"x" * MEGABYTE,
}
BODY = b"Content-Length: 1000000\r\n\r\n" + b"x" * 900_000
HTTP_SAID = {
    "half a form": f"POST /t/oauth2/v2.0/token HTTP/1.1\r\nHost: localhost\r\nContent-Type: {FORM}\r\n".encode() + BODY,
    "half an entity": b"PUT /flights?api-version=2021-05 HTTP/1.1\r\nHost: localhost\r\n" + BODY,
    "half a fault": b"POST /$faults HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" + BODY,
    "chunks without an end": b"POST /t/oauth2/v2.0/token HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
    + f"Content-Type: {FORM}\r\n\r\n".encode()
    + b"fffff\r\n"
    + b"x" * 900_000,
}
OF_EACH = 60


async def attack(stack: AsyncExitStack, host: str, port: int, said: bytes) -> asyncio.StreamReader:
    reader, writer = await asyncio.open_connection(host, port, limit=4096)
    stack.callback(writer.transport.abort)
    writer.write(said)
    with suppress(TimeoutError, ConnectionError):
        await asyncio.wait_for(writer.drain(), 1)
    return reader


async def seconds_to_serve(served: RemoteNamespace) -> float:
    started = time.monotonic()
    for port, said, expected in (
        (served.amqp_port, SASL_HEADER, SASL_HEADER),
        (served.admin_port, b"GET /t/v2.0/.well-known/openid-configuration HTTP/1.0\r\n\r\n", b"HTTP/1."),
    ):
        reader, writer = await asyncio.open_connection(served.host, port)
        writer.write(said)
        assert (await asyncio.wait_for(reader.read(100), 20)).startswith(expected)
        writer.transport.abort()
    return time.monotonic() - started


async def test_silent_and_half_sent_connections_cost_little_and_end():
    allow_many_connections()
    options = ["--greeting-seconds", "6", "--opening-seconds", "6"]
    with EmulatorProcess(["contoso"], key=KEY, options=options, log_level="ERROR") as process:
        served = process["contoso"]
        before, idle = memory_of(process), psutil.Process(process.pid).num_fds()
        async with AsyncExitStack() as stack:
            said = [(served.amqp_port, each) for each in SAID.values()]
            said += [(served.admin_port, each) for each in (*HTTP_SAID.values(), b"", b"GET / HTTP/1.1\r\n")]
            readers = await asyncio.gather(
                *(attack(stack, served.host, port, each) for port, each in said for _ in range(OF_EACH))
            )
            waited = await seconds_to_serve(served)
            grown = memory_of(process) - before
            deadline = time.monotonic() + 15
            while psutil.Process(process.pid).num_fds() > idle + 20 and time.monotonic() < deadline:  # noqa: ASYNC110
                await asyncio.sleep(0.2)
            left = psutil.Process(process.pid).num_fds() - idle
            assert len(readers) == OF_EACH * 14

    assert waited < 5
    # About 170 KB for each: what asyncio reads at once of a body, before it is refused.
    assert grown < 200 * MEGABYTE, grown
    assert left <= 20
