"""The head of the first request on an HTTP connection, for which a client is not waited for without end.

From the second request on aiohttp's keep-alive timer sees to that; before the first there is none.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, cast

from servicebus_emulator.amqp.greeting import Speech, speech_of

if TYPE_CHECKING:
    from servicebus_emulator.amqp.arrival import ArrivalCounts

__all__ = ["FirstRequest"]

_ENDS: Final = (b"\r\n\r\n", b"\n\n")
_MOST_OF_A_HEAD: Final = 64 * 1024
# What is said is for who answers requests to refuse.
_NO_REQUEST: Final = frozenset({Speech.AMQP, Speech.RUBBISH})

_log = logging.getLogger(__name__)


class FirstRequest(asyncio.Protocol):
    """Hands the connection over once the head of a request is there, or it is clear that none will be.

    :param make: makes the protocol that answers requests.
    :param seconds: how long the client may take.
    :param counts: what became of clients.
    :param most: how many bytes a head may have; who answers is to refuse one that is longer.
    """

    def __init__(
        self,
        make: Callable[[], asyncio.Protocol],
        *,
        seconds: float,
        counts: ArrivalCounts,
        most: int = _MOST_OF_A_HEAD,
    ) -> None:
        self._make = make
        self._seconds = seconds
        self._counts = counts
        self._most = most
        self._head = b""
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to wait."""
        self._transport = cast("asyncio.Transport", transport)
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self._give_up)

    def data_received(self, data: bytes) -> None:
        """Take in a part of the head."""
        transport = self._transport
        if transport is None:
            return
        self._head += data
        ended = any(end in self._head for end in _ENDS) or len(self._head) > self._most
        if not ended and speech_of(self._head) not in _NO_REQUEST:
            return
        self._stop()
        protocol = self._make()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        protocol.data_received(self._head)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - it is all the same why
        """Note that nothing was asked."""
        if self._transport is not None:
            self._counts.silent += 1
        self._stop()

    def _stop(self) -> None:
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()

    def _give_up(self) -> None:
        if self._transport is not None:
            _log.info("a client sent no request for %g s and was dropped", self._seconds)
            self._transport.abort()
