"""Clients that have not logged in: little is read from them at once, and not much in all.

The event loop reads from each connection once a turn, and what it read is worked through before anybody else is served.
By default that is up to 256 KiB: ten thousand frames, or half a second. The kernel keeps the rest, so nothing queues.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final, TypeAlias, cast

from servicebus_emulator.engine.model.errors import BrokerError, QuotaExceeded

_READ_BYTES: Final = 128
# What the tokens on the links of a connection may take.
_MAX_BYTES: Final = 2 * 1024 * 1024

_log = logging.getLogger(__name__)


class SmallReads(asyncio.BufferedProtocol):
    """Receives a limited number of bytes in each turn of the event loop.

    :param size: the number.
    """

    def __init__(self, size: int) -> None:
        # A view, for TLS fills it piece by piece by slices, which would be copies of an array.
        self._buffer = memoryview(bytearray(size))

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's wish makes no difference
        """Return where the next bytes go."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Receive the bytes."""
        self.data_received(bytes(self._buffer[:nbytes]))

    def data_received(self, data: bytes) -> None:
        """Handle the bytes; overridden."""


StreamProtocol: TypeAlias = asyncio.Protocol | SmallReads


class ClientProtocol(asyncio.Protocol):
    """Serves a client that may log in."""

    @property
    def logged_in(self) -> bool:
        """Whether the client has logged in, or need not."""
        raise NotImplementedError

    def close_with_error(self, error: BrokerError) -> None:
        """Close the connection with an error."""
        raise NotImplementedError


class Newcomer(SmallReads):
    """Passes on what a client sends until it has logged in, then leaves the connection to its protocol.

    :param protocol: the protocol.
    """

    def __init__(self, protocol: ClientProtocol) -> None:
        super().__init__(_READ_BYTES)
        self._protocol = protocol
        self._received = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Forward to the protocol."""
        self._transport = cast("asyncio.Transport", transport)
        self._protocol.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Forward to the protocol, unless it is too much."""
        self._protocol.data_received(data)
        self._received += len(data)
        if self._protocol.logged_in:
            self._transport.set_protocol(self._protocol)
            self._forget()
        elif self._received > _MAX_BYTES and not self._transport.is_closing():
            error = QuotaExceeded(f"the client has sent {self._received} bytes without a login; allowed: {_MAX_BYTES}")
            _log.info("a connection is closed: %s", error)
            self._protocol.close_with_error(error)

    def eof_received(self) -> bool | None:
        """Forward to the protocol."""
        return self._protocol.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forward to the protocol."""
        self._protocol.connection_lost(exc)
        self._forget()

    def pause_writing(self) -> None:
        """Forward to the protocol."""
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        """Forward to the protocol."""
        self._protocol.resume_writing()

    def _forget(self) -> None:
        # TLS keeps a reference to this: without the cycle, a closed connection is freed at once.
        del self._protocol, self._transport
