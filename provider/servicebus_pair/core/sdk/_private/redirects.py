"""Refuses redirections of WebSockets, in azure-servicebus (7.15).

aiohttp follows them, to any host and also in clear: the tokens and messages of a connection would go there.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from azure.servicebus import __version__

from servicebus_pair.core.model.logs import get_logger

_log = get_logger(__name__)
_SESSION: Final = "session"


@cache
def refuse_redirects() -> None:
    """Have every WebSocket end where it is redirected; done once per process.

    This guards every version whose transport keeps its HTTP session as 7.15 does; with another one, a warning says so.
    """
    transport = _transport()
    if transport is None:
        _log.warning("azure-servicebus %s: redirections of WebSockets are followed: its transport differs", __version__)
    else:
        setattr(transport, _SESSION, property(_session, _set_session))


def _transport() -> Any:
    """Return the SDK's class, if it is of the known form."""
    try:
        from azure.servicebus._pyamqp.aio._transport_async import WebSocketTransportAsync

        return WebSocketTransportAsync if _SESSION in vars(WebSocketTransportAsync("localhost")) else None
    except Exception:  # noqa: BLE001 - whatever another version raises, it is not the transport that we know
        return None


def _session(transport: Any) -> Any:
    return vars(transport).get(_SESSION)


def _set_session(transport: Any, session: Any) -> None:
    """Keep a session, which is assigned before its first request."""
    vars(transport)[_SESSION] = session
    if session is not None:
        from aiohttp import TraceConfig

        trace = TraceConfig()
        trace.on_request_redirect.append(_refuse)
        trace.freeze()
        session.trace_configs.append(trace)


async def _refuse(session: Any, *_: object) -> None:
    await session.close()
    raise ConnectionAbortedError("the service points to another address, which is not followed")
