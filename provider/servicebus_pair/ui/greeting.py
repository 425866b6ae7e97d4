"""Whether a namespace is there, and how far away: one greeting of AMQP, which nobody bills.

A client says what it speaks and the service answers with the same (AMQP 1.0, sections 2.2 and 5.3.2). A service that
is frozen accepts the connection, since its kernel does, and never answers the greeting.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from typing import Final
from urllib.parse import urlsplit

from servicebus_pair.core.options import Endpoint

__all__ = ["greet"]

_GREETING: Final = b"AMQP\x03\x01\x00\x00"  # with SASL
_TLS_PORT: Final = 5671
_WEB_PORT: Final = 443


async def greet(endpoint: Endpoint, *, seconds: float) -> float:
    """Return how long one round trip to a namespace takes, in seconds.

    :param seconds: the longest that all of it may take, connecting included.
    :raises OSError: it cannot be reached, or it answers with something else; ``TimeoutError`` is one.
    """
    async with asyncio.timeout(seconds):
        return await (_over_web(endpoint) if endpoint.transport == "websocket" else _over_tcp(endpoint))


async def _over_tcp(endpoint: Endpoint) -> float:
    host, port = _address(endpoint, _TLS_PORT)
    context = None if endpoint.emulator else _tls(endpoint)
    reader, writer = await asyncio.open_connection(
        host, port, ssl=context, server_hostname=None if context is None else _name(endpoint)
    )
    try:
        began = time.perf_counter()
        writer.write(_GREETING)
        await writer.drain()
        answer = await reader.readexactly(len(_GREETING))
        return _round_trip(answer, began)
    except asyncio.IncompleteReadError as error:
        raise ConnectionError("it closed the connection instead of answering") from error
    finally:
        writer.transport.abort()


async def _over_web(endpoint: Endpoint) -> float:
    import aiohttp

    host, port = _address(endpoint, _WEB_PORT)
    scheme, context = ("ws", None) if endpoint.emulator else ("wss", _tls(endpoint))
    url = f"{scheme}://{host}:{port}/$servicebus/websocket"
    try:
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(
                url,
                protocols=["AMQPWSB10"],
                ssl=True if context is None else context,
                server_hostname=None if context is None else _name(endpoint),
            ) as socket,
        ):
            began = time.perf_counter()
            await socket.send_bytes(_GREETING)
            return _round_trip(await socket.receive_bytes(), began)
    except (aiohttp.ClientError, TypeError) as error:
        raise ConnectionError(f"no WebSocket: {type(error).__name__}") from error


def _round_trip(answer: bytes, began: float) -> float:
    if not answer.startswith(b"AMQP"):
        raise ConnectionError("it does not speak AMQP")
    return time.perf_counter() - began


def _address(endpoint: Endpoint, usual: int) -> tuple[str, int]:
    address = endpoint.endpoint_address
    parts = urlsplit(f"sb://{endpoint.host}" if address is None else address)
    return parts.hostname or endpoint.host, usual if parts.port is None else parts.port


def _name(endpoint: Endpoint) -> str:
    return urlsplit(f"sb://{endpoint.host}").hostname or endpoint.host


def _tls(endpoint: Endpoint) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=endpoint.ca_file)
