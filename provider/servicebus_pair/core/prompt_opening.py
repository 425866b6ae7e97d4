"""Opening a link of azure-servicebus (7.15) as fast as its answers come.

Opening takes about ten answers of the service (the connection's, the session's, those of the token and of the
link). The SDK reads one, sleeps for 50 ms, and reads the next, whether they are there already or not: half a second
on the loopback, and more than a second where the service is 20 ms away. It also reads the file of
authorities anew for each connection, with TLS or without, which holds up everything else in the
process for 20 ms. Every send that finds an outage, every ping, every link of a syphon would pay for both.
"""

# ruff: noqa: SLF001 - private members are what this module is about

from __future__ import annotations

from asyncio import get_running_loop
from ssl import PROTOCOL_TLS_CLIENT, SSLContext
from typing import Any, Final, TypeVar

# The SDK stands on it, and trusts the same.
import certifi

from servicebus_pair.core.keep_alive import closes_promptly
from servicebus_pair.core.sdk_names import absent

__all__ = ["authorities", "opens_promptly"]

_MAKES: Final = "_create_handler"
_MADE: Final = "_handler"
_READY: Final = "client_ready_async"
_SLOWER: Final = "opening a link takes up to a second more"
# A connection that can no longer be read answers at once: then it is the SDK's turn to sleep.
_MOST_ANSWERS: Final = 50
# The SDK waits 0.2 s for an answer: after a wait so long nothing came, and there is no hurry.
_NOTHING_CAME_SECONDS: Final = 0.15

HandlerT = TypeVar("HandlerT")


def authorities(ca_file: str | None, *, tls: bool) -> SSLContext | None:
    """Answer what the SDK makes for each connection, to be shared by all of a client: who is trusted.

    :param ca_file: file of the authorities; ``None`` for those of ``certifi``.
    :param tls: False where no certificate is ever looked at.
    :returns: ``None`` when the file cannot be read, which opening a link then says.
    """
    context = SSLContext(PROTOCOL_TLS_CLIENT)
    try:
        if tls:
            context.load_verify_locations(certifi.where() if ca_file is None else ca_file)
    except OSError:
        return None
    return context


def opens_promptly(opening: HandlerT) -> HandlerT:
    """Have a sender or receiver that was not opened yet do so without sleeping between answers; answer it.

    What it waits for, and for how long, stays as it is. Once it is open nothing of this is left, but that it closes as
    promptly (``keep_alive``). Should a newer SDK lack one of the names, it does both as it likes, and the log says so.
    """
    if absent(opening, (_MAKES,), costs=_SLOWER):
        return opening
    inside: Any = opening
    make = inside._create_handler

    def make_prompt(auth: Any) -> None:
        make(auth)
        made = getattr(inside, _MADE, None)
        _hurry(made)
        closes_promptly(made)

    inside._create_handler = make_prompt
    return opening


def _hurry(handler: Any) -> None:
    """Have ``handler`` go from answer to answer until it is ready, or nothing comes."""
    if absent(handler, (_READY,), costs=_SLOWER):
        return
    ready = handler.client_ready_async

    async def ready_soon() -> bool:
        clock = get_running_loop().time
        for _ in range(_MOST_ANSWERS):
            began = clock()
            if await ready():
                handler.client_ready_async = ready
                return True
            if clock() - began >= _NOTHING_CAME_SECONDS:
                break
        return False

    handler.client_ready_async = ready_soon
