"""What a client begins to speak: AMQP, AMQP over WebSocket, HTTP, or what is not served."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, cast
from urllib.parse import unquote_to_bytes

if TYPE_CHECKING:
    from servicebus_emulator.amqp.arrival import ArrivalCounts

__all__ = ["Greeting", "Speech", "speech_of"]

_AMQP: Final = b"AMQP"
_AMQP_HEADER: Final = b"AMQP\x00\x01\x00\x00"
_METHOD: Final = re.compile(rb"[A-Z]{1,16}(?: .*)?\Z", re.DOTALL)
_MOST_OF_A_REQUEST_LINE: Final = 8190
_WEBSOCKET_PATH: Final = b"/$servicebus/websocket"

_log = logging.getLogger(__name__)


class Speech(Enum):
    """What is spoken."""

    AMQP = auto()
    WEBSOCKET = auto()
    HTTP = auto()
    RUBBISH = auto()


def speech_of(head: bytes) -> Speech | None:
    """Return what somebody speaks who began with `head`; None = too short to tell.

    AMQP 1.0, section 2.2: a client begins with the eight bytes of a protocol header. An HTTP request begins
    with a method and a target (RFC 9112, section 3).
    """
    if head[:4] == _AMQP[: len(head)]:
        return Speech.AMQP if len(head) >= len(_AMQP) else None
    line, ended, _ = head.partition(b"\n")
    if _METHOD.match(line) is None or len(line) > _MOST_OF_A_REQUEST_LINE:
        return Speech.RUBBISH
    if len(ended) == 0:
        return None
    method, _, target = line.partition(b" ")
    path = unquote_to_bytes(target.split(b" ")[0].split(b"?")[0]).lower()
    return Speech.WEBSOCKET if method == b"GET" and path == _WEBSOCKET_PATH else Speech.HTTP


class Greeting(asyncio.Protocol):
    """Listens to the first words of a client and hands the connection to who understands them.

    :param hosts: makes the protocol for what is spoken.
    :param seconds: how long the client may take.
    :param counts: what became of clients.
    """

    def __init__(
        self, hosts: Mapping[Speech, Callable[[], asyncio.Protocol]], *, seconds: float, counts: ArrivalCounts
    ) -> None:
        self._hosts = hosts
        self._seconds = seconds
        self._counts = counts
        self._head = b""
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to listen."""
        self._transport = cast("asyncio.Transport", transport)
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self._give_up)

    def data_received(self, data: bytes) -> None:
        """Hand the connection over, once it is clear to whom."""
        transport = self._transport
        if transport is None:
            return
        self._head += data
        speech = speech_of(self._head)
        if speech is None:
            return
        self._stop()
        if speech is Speech.RUBBISH:
            self._counts.rubbish += 1
            _log.info("a client that spoke neither AMQP nor HTTP was dropped")
            # AMQP 1.0, section 2.2: who cannot serve a protocol says which one it could, and closes.
            transport.write(_AMQP_HEADER)
            transport.close()
            return
        self._count(speech)
        protocol = self._hosts[speech]()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        protocol.data_received(self._head)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - it is all the same why
        """Note that nobody was there."""
        if self._transport is not None:
            self._counts.silent += 1
        self._stop()

    def _stop(self) -> None:
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()

    def _give_up(self) -> None:
        if self._transport is not None:
            _log.info("a client said too little for %g s and was dropped", self._seconds)
            self._transport.abort()

    def _count(self, speech: Speech) -> None:
        match speech:
            case Speech.AMQP:
                self._counts.amqp += 1
            case Speech.WEBSOCKET:
                self._counts.websocket += 1
            case _:
                self._counts.http += 1
