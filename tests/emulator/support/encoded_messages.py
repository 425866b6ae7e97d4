"""Encoded AMQP sections and values."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from servicebus_emulator.amqp.codec.delivery_encoder import encode_delivery
from servicebus_emulator.amqp.codec.raw_encoding import encode_compound
from servicebus_emulator.amqp.codec.sections import SectionCode, sections
from servicebus_emulator.amqp.codec.transfer_decoder import decode_message
from servicebus_emulator.amqp.codec.value_codec import encode
from servicebus_emulator.engine.model.message import Message

FIXED = {0x4: 0, 0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16}


def _fixed(constructor: int) -> st.SearchStrategy[bytes]:
    width = FIXED[constructor >> 4]
    return st.binary(min_size=width, max_size=width).map(lambda body: bytes((constructor,)) + body)


# Values of every width that AMQP knows, of types known and unknown alike, nested and described.
scalars = st.one_of(
    st.integers(0x40, 0x9F).filter(lambda constructor: constructor != 0x45).flatmap(_fixed),
    st.text(max_size=300).map(encode),
    st.binary(max_size=300).map(encode),
)


encoded_values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4).map(lambda items: encode_compound(0xC0, body=b"".join(items), count=len(items))),
        inner.map(lambda value: b"\x00\xa3\x05own:t" + value),
    ),
    max_leaves=8,
)


NULL = b"\x40"


def section(code: SectionCode, value: bytes) -> bytes:
    return bytes((0x00, 0x53, code)) + value


def listed(*items: bytes) -> bytes:
    return encode_compound(0xC0, body=b"".join(items), count=len(items))


def mapped(*items: bytes) -> bytes:
    return encode_compound(0xC1, body=b"".join(items), count=len(items))


def delivered(data: bytes, **changes: Any) -> dict[int, list[bytes]]:
    message = Message(
        row_id=1, sequence_number=7, content=decode_message(data, new_id=lambda: "given"), enqueued_at=5, **changes
    )
    out = encode_delivery(message)
    found: dict[int, list[bytes]] = {}
    for code, _, value, end in sections(out):
        found.setdefault(code, []).append(out[value:end])
    return found
