"""What a client says before it is clear who serves it, for which it is not waited for without end."""

from __future__ import annotations

import asyncio
import logging
from abc import abstractmethod
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from servicebus_emulator.amqp.arrival import ArrivalCounts

__all__ = ["Overture"]

_log = logging.getLogger(__name__)


class Overture(asyncio.Protocol):
    """Collects a client's first bytes until it can be handed over, and drops the client that takes too long.

    :param seconds: how long the client may take.
    :param counts: what became of clients.
    """

    def __init__(self, *, seconds: float, counts: ArrivalCounts) -> None:
        self._seconds = seconds
        self._counts = counts
        self._head = b""
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    @abstractmethod
    def heard(self, transport: asyncio.Transport) -> None:
        """Decide by `_head` what to do: wait for more, :meth:`_hand_over`, or :meth:`_stop` and close."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to wait."""
        self._transport = cast("asyncio.Transport", transport)
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self._give_up)

    def data_received(self, data: bytes) -> None:
        """Take in what was said."""
        if self._transport is not None:
            self._head += data
            self.heard(self._transport)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - it is all the same why
        """Note that nobody was there."""
        if self._transport is not None:
            self._counts.silent += 1
        self._stop()

    def _hand_over(self, transport: asyncio.Transport, *, to: asyncio.Protocol) -> None:
        self._stop()
        transport.set_protocol(to)
        to.connection_made(transport)
        to.data_received(self._head)

    def _stop(self) -> None:
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()

    def _give_up(self) -> None:
        if self._transport is not None:
            _log.info("a client said too little for %g s and was dropped", self._seconds)
            self._transport.abort()
