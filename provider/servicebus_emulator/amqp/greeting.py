"""What a client begins to speak: AMQP, AMQP over WebSocket, HTTP, or what is not served."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote_to_bytes

from servicebus_emulator.amqp.overture import Overture

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


class Greeting(Overture):
    """Listens to the first words of a client and hands the connection to who understands them.

    :param hosts: makes the protocol for what is spoken.
    :param seconds: how long the client may take.
    :param counts: what became of clients.
    """

    def __init__(
        self, hosts: Mapping[Speech, Callable[[], asyncio.Protocol]], *, seconds: float, counts: ArrivalCounts
    ) -> None:
        super().__init__(seconds=seconds, counts=counts)
        self._hosts = hosts

    def heard(self, transport: asyncio.Transport) -> None:
        """Hand the connection over, once it is clear to whom."""
        speech = speech_of(self._head)
        if speech is Speech.RUBBISH:
            self._stop()
            self._counts.rubbish += 1
            _log.info("a client that spoke neither AMQP nor HTTP was dropped")
            # AMQP 1.0, section 2.2: who cannot serve a protocol says which one it could, and closes.
            transport.write(_AMQP_HEADER)
            transport.close()
        elif speech is not None:
            self._count(speech)
            self._hand_over(transport, to=self._hosts[speech]())

    def _count(self, speech: Speech) -> None:
        match speech:
            case Speech.AMQP:
                self._counts.amqp += 1
            case Speech.WEBSOCKET:
                self._counts.websocket += 1
            case _:
                self._counts.http += 1
