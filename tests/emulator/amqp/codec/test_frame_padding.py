from __future__ import annotations

import pytest

from servicebus_emulator.amqp.codec.frame_padding import FramePadder, needs_padding
from servicebus_emulator.amqp.codec.raw_encoding import compound_items
from tests.emulator.support.hostile_bytes import HEADER, NULL, frame, listed, number, text

FIELDS = {0x10: 10, 0x11: 8, 0x12: 14, 0x13: 11, 0x14: 11, 0x15: 6, 0x16: 3, 0x17: 1, 0x18: 1}
PAYLOAD = b"\x00Su\xa0\x05hello"


def performative(code: int, fields: bytes, payload: bytes = b"") -> bytes:
    return frame(bytes((0x00, 0x53, code)) + fields + payload, channel=3)


@pytest.mark.parametrize("code", FIELDS)
@pytest.mark.parametrize("fields", [b"\x45", b"\xc0\x03\x01\x52\x07", listed(number(7))])
def test_a_performative_gets_all_its_fields(code: int, fields: bytes):
    payload = PAYLOAD if code == 0x14 else b""
    padded = FramePadder().pad(performative(code, fields, payload))
    assert int.from_bytes(padded[:4], "big") == len(padded)
    assert padded[4:11] == bytes((2, 0, 0, 3, 0x00, 0x53, code))
    items = compound_items(padded[11 : len(padded) - len(payload)])
    given = [] if fields == b"\x45" else [b"\x52\x07"] if fields.startswith(b"\xc0") else [number(7)]
    assert items == given + [NULL] * (FIELDS[code] - len(given))
    assert padded.endswith(payload)


def test_a_list_grows_beyond_255_bytes():
    padded = FramePadder().pad(performative(0x12, b"\xc0\xfd\x01" + b"\xa1\xfa" + b"x" * 250))
    assert compound_items(padded[11:]) == [b"\xa1\xfa" + b"x" * 250, *[NULL] * 13]


def test_what_is_complete_stays_as_it_is():
    full = performative(0x18, listed(NULL))
    for unchanged in (HEADER, b"\x00\x00\x00\x08\x02\x00\x00\x00", full, HEADER + full):
        assert FramePadder().pad(unchanged) == unchanged


def test_a_frame_may_come_in_pieces():
    data = HEADER + performative(0x10, listed(text("x"))) + performative(0x14, b"\x45", PAYLOAD)
    padder = FramePadder()
    assert b"".join(padder.pad(data[at : at + 1]) for at in range(len(data))) == FramePadder().pad(data)


@pytest.mark.parametrize(
    ("product", "version", "needed"),
    [
        # uamqp drops a frame of the maximum size that padding makes longer.
        ("azsdk-python-servicebus", "7.8.3", False),
        ("azsdk-python-servicebus", "7.11.0", True),
        ("azsdk-python-servicebus", "7.14.3", True),
        ("azsdk-python-servicebus", "7.15.0", False),
        ("azsdk-python-servicebus", "8.0.0", False),
        ("azsdk-python-servicebus", "new", False),
        ("MSJSClient", "7.9.5", False),
    ],
)
def test_only_the_versions_that_cannot_do_without_are_served_so(product: str, version: str, needed: bool):
    assert needs_padding({"product": product, "version": version}) is needed
    assert not needs_padding({})
