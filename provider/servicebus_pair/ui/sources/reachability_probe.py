"""Probes a namespace with an AMQP protocol header exchange, which is not billed.

The client sends a protocol header and the service replies with its own (AMQP 1.0, sections 2.2 and 5.3.2). A TCP
connection alone proves nothing: the kernel of a frozen service still accepts it.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from typing import Any, Final
from urllib.parse import urlsplit

from servicebus_pair.core import Endpoint

_SASL_HEADER: Final = b"AMQP\x03\x01\x00\x00"
_AMQPS_PORT: Final = 5671
_HTTPS_PORT: Final = 443


class ProbeError(ConnectionError):
    """The namespace does not reply with AMQP; the text is ours and repeats nothing that it sent."""


async def probe_namespace(endpoint: Endpoint, *, timeout: float) -> float:
    """Return the round-trip time of one header exchange, in seconds.

    :param timeout: limit for connecting and the exchange together, in seconds.
    :raises OSError: the namespace is unreachable or does not reply with AMQP; includes ``TimeoutError``.
    """
    async with asyncio.timeout(timeout):
        return await (_probe_websocket(endpoint) if endpoint.transport == "websocket" else _probe_tcp(endpoint))


async def _probe_tcp(endpoint: Endpoint) -> float:
    host, port = _address(endpoint, _AMQPS_PORT)
    reader, writer = await asyncio.open_connection(host, port, **_tls_arguments(endpoint))
    try:
        started = time.perf_counter()
        writer.write(_SASL_HEADER)
        await writer.drain()
        reply = await reader.readexactly(len(_SASL_HEADER))
        return _round_trip(reply, started)
    except asyncio.IncompleteReadError as error:
        raise ProbeError("it closed the connection without a reply") from error
    finally:
        writer.transport.abort()


async def _probe_websocket(endpoint: Endpoint) -> float:
    import aiohttp

    host, port = _address(endpoint, _HTTPS_PORT)
    url = f"{'ws' if endpoint.emulator else 'wss'}://{host}:{port}/$servicebus/websocket"
    trace = aiohttp.TraceConfig()
    trace.on_request_redirect.append(_refuse_redirect)
    try:
        async with (
            aiohttp.ClientSession(trace_configs=[trace]) as session,
            session.ws_connect(url, protocols=["AMQPWSB10"], **_tls_arguments(endpoint)) as socket,
        ):
            started = time.perf_counter()
            await socket.send_bytes(_SASL_HEADER)
            return _round_trip(await socket.receive_bytes(), started)
    except (aiohttp.ClientError, TypeError) as error:  # TypeError: the peer closed or sent text
        raise ProbeError(f"no WebSocket: {type(error).__name__}") from error


async def _refuse_redirect(*_: object) -> None:
    # To another host, which the connection does not name and this machine may reach.
    raise ProbeError("no WebSocket: it points to another address")


def _round_trip(reply: bytes, started: float) -> float:
    if not reply.startswith(b"AMQP"):
        raise ProbeError("it does not speak AMQP")
    return time.perf_counter() - started


def _address(endpoint: Endpoint, default_port: int) -> tuple[str, int]:
    address = endpoint.endpoint_address
    parts = urlsplit(f"sb://{endpoint.host}" if address is None else address)
    return parts.hostname or endpoint.host, default_port if parts.port is None else parts.port


def _tls_arguments(endpoint: Endpoint) -> dict[str, Any]:
    if endpoint.emulator:
        return {}
    host = urlsplit(f"sb://{endpoint.host}").hostname or endpoint.host
    return {"ssl": ssl.create_default_context(cafile=endpoint.ca_file), "server_hostname": host}
