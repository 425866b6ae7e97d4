"""A WebSocket ends where it is redirected: no token and no message goes to the host that an answer names."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from azure.servicebus._pyamqp.aio import _transport_async

from servicebus_pair.core.model.errors import UnreachableError
from servicebus_pair.core.model.options import Endpoint
from servicebus_pair.core.sdk._private.redirects import refuse_redirects
from servicebus_pair.core.sdk.namespace_client import NamespaceClient

KEY = "SharedAccessKeyName=a;SharedAccessKey=c4nary+c4nary/c4nary0c4nary1c4nary2c4nary34="


@pytest.mark.filterwarnings("ignore:ssl=None is deprecated:DeprecationWarning")  # the SDK without TLS
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_websocket_that_is_redirected_is_an_outage(status: int) -> None:
    stolen: list[bytes] = []

    async def steal(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        stolen.append(await reader.read(1))
        writer.close()

    async def redirect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
        location = f"http://localhost:{thief.sockets[0].getsockname()[1]}/$servicebus/websocket"
        writer.write(f"HTTP/1.1 {status} Go\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n".encode())
        writer.close()

    thief = await asyncio.start_server(steal, "127.0.0.1", 0)
    server = await asyncio.start_server(redirect, "127.0.0.1", 0)
    address = f"sb://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with thief, server:
        client = NamespaceClient(
            Endpoint.from_connection_string(
                f"Endpoint={address};{KEY};UseDevelopmentEmulator=true",
                namespace="contoso",
                transport="websocket",
                endpoint_address=address,
            )
        )
        with pytest.raises(UnreachableError, match="points to another address, which is not followed"):
            await client.send_link("flights").open(timeout=5)
        await client.close()
    assert stolen == []


@pytest.mark.parametrize("transport", [None, lambda _: object(), lambda _: (_ for _ in ()).throw(TypeError)])
def test_a_transport_of_another_form_is_left_as_it_is(
    transport: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(_transport_async, "WebSocketTransportAsync", transport)
    refuse_redirects.__wrapped__()
    assert "redirections of WebSockets are followed: its transport differs" in caplog.text
