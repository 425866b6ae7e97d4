"""The head of the first request on an HTTP connection, for which a client is not waited for without end.

From the second request on aiohttp's keep-alive timer sees to that; before the first there is none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from servicebus_emulator.amqp.greeting import Speech, speech_of
from servicebus_emulator.amqp.overture import Overture

if TYPE_CHECKING:
    from servicebus_emulator.amqp.arrival import ArrivalCounts

__all__ = ["FirstRequest"]

_ENDS: Final = (b"\r\n\r\n", b"\n\n")
_MOST_OF_A_HEAD: Final = 64 * 1024
# What is said is for who answers requests to refuse.
_NO_REQUEST: Final = frozenset({Speech.AMQP, Speech.RUBBISH})


class FirstRequest(Overture):
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
        super().__init__(seconds=seconds, counts=counts)
        self._make = make
        self._most = most

    def heard(self, transport: asyncio.Transport) -> None:
        """Hand the connection over, once the head has ended, is too long or is none."""
        ended = any(end in self._head for end in _ENDS) or len(self._head) > self._most
        if ended or speech_of(self._head) in _NO_REQUEST:
            self._hand_over(transport, to=self._make())
