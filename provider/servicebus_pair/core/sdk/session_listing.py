"""The sessions of a queue that requires sessions.

The service can list them, but the SDK offers no call for it: so one session after another is accepted.
"""

from __future__ import annotations

import asyncio
from typing import Final

from servicebus_pair.core.model.errors import TimedOutError
from servicebus_pair.core.sdk.namespace_client import NamespaceClient
from servicebus_pair.core.sdk.receive_link import ReceiveLink

__all__ = ["list_sessions"]

# Each accepted session takes a link of its own while the listing lasts.
_MAX_CONCURRENT: Final = 8
_WAIT: Final = 1.0


async def list_sessions(client: NamespaceClient, path: str, *, timeout: float) -> list[str]:
    """Return the ids of the sessions of a queue that hold messages, except those that other receivers have locked.

    All of them are locked while the listing lasts, and free again when it returns.

    :param timeout: seconds to accept one session.
    :raises ServiceError: the queue cannot be read.
    """
    links: list[ReceiveLink] = []
    try:
        ids: list[str] = []
        while True:
            attempts = [client.receive_link(path, next_session_wait=_WAIT) for _ in range(_MAX_CONCURRENT)]
            links += attempts
            found = await asyncio.gather(*(_accept(link, timeout=timeout) for link in attempts))
            ids += [session_id for session_id in found if session_id is not None]
            if None in found:
                break
        await _check_answering(client, path, timeout=timeout)
        return sorted(ids)
    finally:
        await asyncio.gather(*(link.close() for link in links))


async def _accept(link: ReceiveLink, *, timeout: float) -> str | None:
    try:
        return await link.accept_session(timeout=timeout)
    except TimedOutError:
        return None


async def _check_answering(client: NamespaceClient, path: str, *, timeout: float) -> None:
    """Tell "no more sessions" from a silent peer. Dead letters have no sessions, so they can be peeked."""
    link = client.receive_link(path, dead_letter=True)
    try:
        await link.peek(max_messages=1, timeout=timeout)
    finally:
        await link.close()
