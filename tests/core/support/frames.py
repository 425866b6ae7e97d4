"""The parts of an open link of azure-servicebus that raw links use, without a service behind them."""

from __future__ import annotations

import asyncio
import struct
from io import BytesIO
from types import SimpleNamespace
from typing import Any

from servicebus_pair.core.protocol.amqp_sections import NULL, join_list, section, uint

TRUE, FALSE = b"\x41", b"\x42"
HANDLE = 3
"""The service's number of the link."""


def frame(performative: int, fields: list[bytes], payload: bytes = b"") -> bytes:
    """Return a frame of channel 5."""
    return in_frame(section(performative, join_list(fields)) + payload)


def in_frame(content: bytes) -> bytes:
    """Return a frame of channel 5 with a performative in any form."""
    return struct.pack(">IBBH", 8 + len(content), 2, 0, 5) + content


def disposition(first: int, last: int | None, state: bytes, *, role: bytes = FALSE, settled: bytes = TRUE) -> bytes:
    """Return the service's answer to settlements; ``last`` of ``None`` stands for one delivery."""
    return frame(0x15, [role, uint(first), NULL if last is None else uint(last), settled, state])


class FrameConnection:
    """A connection; ``listen`` is the part of the SDK's that reads."""

    def __init__(self, buffered: bytes = b"") -> None:
        self.reader = asyncio.StreamReader()
        self.written: list[bytes] = []
        self._transport = SimpleNamespace(_read_buffer=BytesIO(buffered), reader=self.reader, write=self._write)
        self._socket_timeout = 0.2
        self._remote_max_frame_size = 512
        self._max_frame_size = 4096
        self._last_frame_sent_time = 0.0
        self._error: Exception | None = None
        self.given: list[tuple[int, int]] = []
        self.before_given: Any = None
        self._read_frame: Any = None

    async def listen(self, wait: float) -> None:
        try:
            await self._read_frame(wait=wait)
        except OSError as error:
            self._error = error

    async def _write(self, data: bytes) -> None:
        self.written.append(data)

    async def _process_incoming_frame(self, channel: int, frame: Any) -> None:
        if self.before_given is not None:
            await self.before_given()
        self.given.append((channel, frame[0]))


class _Link:
    def __init__(self) -> None:
        self.handle = 7
        self.remote_handle = HANDLE
        self.delivery_count = 0
        self.current_link_credit = 0
        self.flows: list[dict[str, Any]] = []
        self.state = SimpleNamespace(value=3, name="ATTACHED")
        self._pending_deliveries: list[Any] = []

    def get_state(self) -> Any:
        return self.state

    async def flow(self, **fields: Any) -> None:
        self.flows.append(fields)
        self.current_link_credit = fields["link_credit"]

    async def _incoming_flow(self, _frame: Any) -> None: ...


class _Session:
    def __init__(self) -> None:
        self.channel = 5
        self.next_incoming_id = 1
        self.incoming_window = self.target_incoming_window = 1000
        self.remote_outgoing_window = 5000
        self.next_outgoing_id = 11
        self.remote_incoming_window = self.outgoing_window = 1000
        self.flows = 0
        self.dispositions: list[Any] = []
        self.on_disposition: Any = lambda _: None

    async def _outgoing_flow(self) -> None:
        self.flows += 1

    async def _outgoing_disposition(self, frame: Any) -> None:
        self.dispositions.append(frame)
        self.on_disposition(frame)


class FakeHandler:
    """The SDK's handler of an open link, and the sender or receiver that owns it: as ``owner``."""

    def __init__(self) -> None:
        self._connection = FrameConnection()
        self._link = _Link()
        self._session = _Session()
        self._cbs_authenticator: Any = None
        self._keep_alive_thread: Any = None
        self.closed = False
        self.owner: Any = SimpleNamespace(
            _handler=self,
            _amqp_transport=SimpleNamespace(create_servicebus_exception=lambda _log, failure, **_: failure),
            _config=SimpleNamespace(custom_endpoint_address=None),
        )

    async def close_async(self) -> None:
        self.closed = True

    def feed(self, *frames: bytes) -> None:
        """Let frames of the service arrive."""
        self._connection.reader.feed_data(b"".join(frames))
