from __future__ import annotations

import asyncio

import pytest

from servicebus_emulator import Emulator
from servicebus_pair.core import Endpoint
from servicebus_pair.ui.sources.reachability_probe import probe_namespace
from tests.airflow.conftest import KEY


@pytest.mark.parametrize("transport", ["amqp", "websocket"])
@pytest.mark.parametrize("tls", [False, True])
async def test_probe_succeeds_over_every_transport(transport: str, tls: bool):
    async with Emulator(["contoso"], key=KEY) as emulator:
        served = emulator["contoso"]
        text = f"Endpoint=sb://localhost:{served.amqp_port};SharedAccessKeyName=Root;SharedAccessKey={KEY}"
        endpoint = Endpoint.from_connection_string(
            text if tls else f"{text};UseDevelopmentEmulator=true",
            namespace="contoso",
            transport=transport,
            ca_file=str(served.ca_file) if tls else None,
        )

        assert 0 < await probe_namespace(endpoint, timeout=5) < 5


async def test_probe_fails_without_an_amqp_reply(unused_tcp_port: int):
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(8)
        await closing.wait()
        writer.close()

    async def http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(8)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    def endpoint(port: int) -> Endpoint:
        text = f"Endpoint=sb://127.0.0.1:{port};SharedAccessKeyName=a;SharedAccessKey=b;UseDevelopmentEmulator=true"
        return Endpoint.from_connection_string(text, namespace="contoso")

    closing = asyncio.Event()
    for serve, error in ((silent, TimeoutError), (http, ConnectionError)):
        async with await asyncio.start_server(serve, "127.0.0.1") as server:
            with pytest.raises(error):
                await probe_namespace(endpoint(server.sockets[0].getsockname()[1]), timeout=0.3)
            closing.set()
    with pytest.raises(ConnectionRefusedError):
        await probe_namespace(endpoint(unused_tcp_port), timeout=5)


async def test_a_redirection_to_another_host_is_not_followed():
    called: list[bytes] = []

    async def thief(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        called.append(await reader.readline())
        writer.close()

    async def redirect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        location = f"http://127.0.0.1:{elsewhere.sockets[0].getsockname()[1]}/"
        writer.write(f"HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n".encode())
        writer.close()

    async with (
        await asyncio.start_server(thief, "127.0.0.1") as elsewhere,
        await asyncio.start_server(redirect, "127.0.0.1") as server,
    ):
        text = f"Endpoint=sb://127.0.0.1:{server.sockets[0].getsockname()[1]};SharedAccessKeyName=a;SharedAccessKey=b"
        endpoint = Endpoint.from_connection_string(
            f"{text};UseDevelopmentEmulator=true", namespace="contoso", transport="websocket"
        )
        with pytest.raises(ConnectionError, match="points to another address"):
            await probe_namespace(endpoint, timeout=5)

    assert called == []
