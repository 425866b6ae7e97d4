"""Removes fixed delays from opening and closing a link of azure-servicebus (7.15).

They would be paid by every send that meets an outage, every ping, every link of a syphon and every short-lived
process, such as an Airflow or Spark task:

- *Opening* reads about ten responses of the service (connection, session, token, link). The SDK sleeps 50 ms after
  each: half a second on loopback, more than a second where the service is 20 ms away.
- *Every connection* reads the CA bundle again, which blocks the event loop for 20 ms.
- *Closing* waits for the link's keep-alive task, which sleeps 1 s at a time. The SDK also closes a broken link before
  it reports the failure, so a failed send would take that second longer.
"""

# ruff: noqa: SLF001 - private members are what this module is about

from __future__ import annotations

from asyncio import get_running_loop
from ssl import PROTOCOL_TLS_CLIENT, SSLContext
from typing import Any, Final, TypeVar

import certifi

from servicebus_pair.core.sdk._private.capabilities import fast_path

# A broken connection "responds" immediately for ever; after this many responses the SDK may sleep.
_MAX_RESPONSES: Final = 50
# The SDK waits 0.2 s for a response: a call that took this long received none.
_NO_RESPONSE_SECONDS: Final = 0.15

HandlerT = TypeVar("HandlerT")


def patch_link(handler: HandlerT, *, max_frame_bytes: int | None = None) -> HandlerT:
    """Make an unopened sender or receiver open and close without the SDK's sleeps, on the fast path; return it.

    What it waits for, and for how long, is unchanged.

    :param max_frame_bytes: largest frame that it takes, in place of the SDK's 1 MiB.
    """
    if not fast_path():
        return handler
    inner: Any = handler
    create = inner._create_handler

    def create_patched(auth: Any) -> None:
        create(auth)
        amqp_client = inner._handler
        if max_frame_bytes is not None:
            amqp_client._max_frame_size = max_frame_bytes
        _open_without_sleeping(amqp_client)
        _close_without_keep_alive(amqp_client)

    inner._create_handler = create_patched
    return handler


def patch_session_browsers(client: Any) -> None:
    """Do the same for each connection by which the client of a namespace lists sessions."""
    if not fast_path():
        return
    create = client._create_session_browser
    client._create_session_browser = lambda *given, **more: patch_link(create(*given, **more))


def _open_without_sleeping(amqp_client: Any) -> None:
    """Poll until the client is ready or no response comes, instead of sleeping between responses."""
    poll = amqp_client.client_ready_async

    async def poll_until_ready() -> bool:
        clock = get_running_loop().time
        for _ in range(_MAX_RESPONSES):
            started = clock()
            if await poll():
                amqp_client.client_ready_async = poll
                return True
            if clock() - started >= _NO_RESPONSE_SECONDS:
                break
        return False

    amqp_client.client_ready_async = poll_until_ready


def _close_without_keep_alive(amqp_client: Any) -> None:
    """Cancel the keep-alive task before closing, instead of waiting for the end of its sleep."""
    close = amqp_client.close_async

    async def close_promptly() -> None:
        # Removed as well as cancelled: awaiting it, the SDK would take its cancellation for that of close_async.
        task, amqp_client._keep_alive_thread = amqp_client._keep_alive_thread, None
        if task is not None:
            task.cancel()
        await close()

    amqp_client.close_async = close_promptly


def shared_ssl_context(ca_file: str | None, *, tls: bool) -> SSLContext | None:
    """Return one SSL context for all connections of a client.

    :param ca_file: CA bundle; ``None`` for that of ``certifi``.
    :param tls: False to skip reading the bundle.
    :returns: ``None`` when the bundle cannot be read; opening a link then reports that.
    """
    context = SSLContext(PROTOCOL_TLS_CLIENT)
    try:
        if tls:
            context.load_verify_locations(certifi.where() if ca_file is None else ca_file)
    except OSError:
        return None
    return context
