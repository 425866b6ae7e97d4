"""TLS in front of ports that speak none."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial

from tests.conformance.trust import Identity

__all__ = ["open_doors"]


def open_doors(identity: Identity, targets: Sequence[int]) -> list[int]:
    """Listen with TLS for each target port, in a thread, as long as the process lives; return the ports."""
    ready: Future[list[int]] = Future()
    threading.Thread(target=lambda: asyncio.run(_serve(identity, targets, ready)), daemon=True).start()
    return ready.result(timeout=10)


async def _serve(identity: Identity, targets: Sequence[int], ready: Future[list[int]]) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(identity.certificate, identity.key)
    servers = [await asyncio.start_server(partial(_carry, target), "127.0.0.1", 0, ssl=context) for target in targets]
    ready.set_result([server.sockets[0].getsockname()[1] for server in servers])
    await asyncio.Event().wait()


async def _carry(target: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", target)
    await asyncio.gather(_pump(reader, inner_writer), _pump(inner_reader, writer))


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while len(data := await reader.read(65536)) > 0:
            writer.write(data)
            await writer.drain()
    except (ConnectionError, TimeoutError, ssl.SSLError):
        pass
    finally:
        writer.close()
