"""The SASL layer of one connection (AMQP 1.0 part 5, section 5.3), answered before Proton's engine.

The service offers four mechanisms. The official clients for .NET and those based on uamqp accept only ``MSSBCBS``,
which Proton does not know; like ``ANONYMOUS`` and ``EXTERNAL`` it leaves authorization to tokens sent to ``$cbs``.
``PLAIN`` carries the name of a shared access policy and its key, and authorizes the connection as that policy does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from servicebus_emulator.amqp.codec.raw_encoding import compound_items, decode_text, encode_list, encode_symbol

MECHANISMS: Final = ("MSSBCBS", "PLAIN", "ANONYMOUS", "EXTERNAL")
"""The mechanisms of the service, in its order."""

_HEADER: Final = b"AMQP\x03\x01\x00\x00"
_FRAME_HEADER_BYTES: Final = 8
_INIT_CODE: Final = b"\x00\x53\x41"
# The standard limits SASL frames to 512 bytes, except where both peers know better.
_MAX_FRAME: Final = 4096
_MECHANISM_ARRAY: Final = b"".join(encode_symbol(name)[1:] for name in MECHANISMS)
_OK, _REFUSED = b"\x50\x00", b"\x50\x01"
_BINARY_LENGTH: Final = {0xA0: 1, 0xB0: 4}


def _frame(code: int, *fields: bytes) -> bytes:
    body = bytes((0x00, 0x53, code)) + encode_list(fields)
    return (_FRAME_HEADER_BYTES + len(body)).to_bytes(4, "big") + b"\x02\x01\x00\x00" + body


_ANNOUNCEMENT: Final = _HEADER + _frame(
    0x40,
    bytes((0xE0, len(_MECHANISM_ARRAY) + 2, len(MECHANISMS), 0xA3)) + _MECHANISM_ARRAY,
)


class SaslServer:
    """Answers the client's SASL frames, then passes its bytes on. A client may also start without SASL.

    :param send: sends bytes to the client.
    :param on_data: receives the bytes that follow.
    :param authenticate: returns whether a shared access policy has this name and key.
    :param refuse: is told why the client was refused; nothing else is passed on.
    """

    def __init__(
        self,
        *,
        send: Callable[[bytes], None],
        on_data: Callable[[bytes], None],
        authenticate: Callable[[str, str], bool],
        refuse: Callable[[str], None],
    ) -> None:
        self._send = send
        self._on_data = on_data
        self._authenticate = authenticate
        self._refuse = refuse
        self._received = b""
        # No bound method: such a cycle would keep a closed connection until the garbage collector runs.
        self._step: Callable[[SaslServer], bool] = SaslServer._read_header
        self._sink: Callable[[bytes], None] | None = None

    def receive(self, data: bytes) -> None:
        """Receive bytes of the client."""
        if self._sink is not None:
            self._sink(data)
            return
        self._received += data
        while self._step(self):
            pass

    def _read_header(self) -> bool:
        if not self._received.startswith(_HEADER):
            if not _HEADER.startswith(self._received):
                self._pass_on()
            return False
        self._received = self._received[len(_HEADER) :]
        self._send(_ANNOUNCEMENT)
        self._step = SaslServer._read_init
        return True

    def _read_init(self) -> bool:
        if len(self._received) < _FRAME_HEADER_BYTES:
            return False
        size = int.from_bytes(self._received[:4], "big")
        if not _FRAME_HEADER_BYTES <= size <= _MAX_FRAME:
            self._end(f"the frame after the SASL header has {size} bytes; allowed: sasl-init of {_MAX_FRAME} at most")
            return False
        if len(self._received) < size:
            return False
        frame, self._received = self._received[:size], self._received[size:]
        try:
            reason = self._refusal(frame)
        except (ValueError, IndexError):
            reason = "its sasl-init frame is malformed"
        self._send(_frame(0x44, _OK if reason is None else _REFUSED, b"\x40"))
        if reason is None:
            self._pass_on()
        else:
            self._end(reason)
        return False

    def _refusal(self, frame: bytes) -> str | None:
        """Return why a sasl-init frame is refused, or None."""
        body = 4 * frame[4]
        if frame[body : body + len(_INIT_CODE)] != _INIT_CODE:
            return "a SASL frame other than sasl-init was sent; allowed: sasl-init"
        fields = compound_items(frame[body + len(_INIT_CODE) :])
        mechanism = decode_text(fields[0])
        if mechanism not in MECHANISMS:
            return f"its SASL mechanism is {str(mechanism)[:40]!r}; allowed: {', '.join(MECHANISMS)}"
        if mechanism != "PLAIN":
            return None
        response = fields[1] if len(fields) > 1 else b"\x40"
        _, name, key = response[1 + _BINARY_LENGTH.get(response[0], 0) :].decode().split("\x00")
        if self._authenticate(name, key):
            return None
        return f"SASL PLAIN: no shared access policy has the name {name[:100]!r} and the key that was sent"

    def _pass_on(self) -> None:
        self._sink = self._on_data
        if len(self._received) > 0:
            self._on_data(self._received)
        self._received = b""

    def _end(self, reason: str) -> None:
        self._sink = _discard
        self._refuse(reason)


def _discard(_: bytes) -> None:
    """Ignore what a refused client sends until it is disconnected."""
