"""Arrays of AMQP that decode to far more than their bytes are refused before the SDK believes them."""

from __future__ import annotations

from importlib import import_module
from struct import pack
from types import SimpleNamespace
from typing import Any

import pytest
from azure.servicebus._pyamqp import _decode
from hypothesis import given
from hypothesis import strategies as st

from servicebus_pair.core.sdk._private import decode_limits
from servicebus_pair.core.sdk._private.decode_limits import MAX_ELEMENTS_WITHOUT_BYTES, limit_arrays, limit_messages

pytestmark = pytest.mark.fast_sdk

LIMIT = MAX_ELEMENTS_WITHOUT_BYTES
DESCRIPTORS = (b"\x44", b"\x53\x05", b"\x80" + bytes(8), b"\xa3\x02ab")


def array(constructor: bytes, elements: bytes, count: int, *, size: int | None = None, small: bool = False) -> bytes:
    body = constructor + elements
    if small:
        return b"\xe0" + pack(">BB", len(body) + 1 if size is None else size, count) + body
    return b"\xf0" + pack(">II", len(body) + 4 if size is None else size, count) + body


def decoded(value: bytes) -> Any:
    limit_arrays()
    from azure.servicebus._pyamqp._decode import decode_payload

    return decode_payload(memoryview(b"\x00\x53\x77" + value)).value


@pytest.mark.parametrize("small", [True, False])
@pytest.mark.parametrize("constructor", [0x40, 0x41, 0x42, 0x43, 0x44, 0x45])
def test_an_array_has_few_elements_without_bytes(constructor: int, small: bool) -> None:
    kind = bytes((constructor,))
    assert len(decoded(array(kind, b"", LIMIT, small=small))) == LIMIT
    for prefix in (b"", *(b"\x00" + each for each in DESCRIPTORS)):
        for size in (None, 255 if small else 60_000):
            count = LIMIT + 1 if small else 65_536
            # Followed by as many bytes as the array pretends to have.
            with pytest.raises(ValueError, match="AMQP array"):
                decoded(array(prefix + kind, b"", count, size=size, small=small) + bytes(60_000))


@pytest.mark.parametrize(
    ("decoder", "reason"),
    [
        (lambda _: (b"", []), "its decoder answers differently"),
        (lambda data: (data[:1], [None]), "its decoder answers differently"),
        (lambda data: (data[:0], [None, None]), "its decoder answers differently"),
        (None, "its decoder differs (TypeError)"),
    ],
)
def test_a_decoder_of_another_form_is_left_as_it_is(decoder: Any, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    decoders = {0xE0: decoder, 0xF0: decoder}
    monkeypatch.setattr(_decode, "_DECODE_BY_CONSTRUCTOR", decoders)
    assert limit_arrays.__wrapped__() == reason
    assert decoders == {0xE0: decoder, 0xF0: decoder}


@pytest.mark.parametrize("depth", [1, 3])
def test_arrays_in_arrays_cannot_multiply(depth: int) -> None:
    value = array(b"\x40", b"", 65_536)
    for _ in range(depth):
        value = array(b"\xf0", value[1:] * 100, 100)
    with pytest.raises(ValueError, match="65536 elements"):
        decoded(value)


def test_an_array_that_says_that_it_is_longer_than_its_message_is_refused() -> None:
    # The SDK reads booleans beyond the end as false.
    with pytest.raises(ValueError, match="says that it has 65536 elements"):
        decoded(array(b"\x56", b"\x01", 65_536, size=100_000))


@pytest.mark.parametrize("count", [17, 18, 65_536])
def test_an_array_is_larger_than_the_number_of_its_elements(count: int) -> None:
    # Its size of 17 bytes counts the four of the number of elements, and the constructor.
    with pytest.raises(ValueError, match=f"an AMQP array of 17 bytes says that it has {count} elements"):
        decoded(array(b"\x56", bytes(12), count) + bytes(65_536))


@pytest.mark.parametrize("small", [True, False])
def test_an_array_may_end_with_its_message_and_not_behind_it(small: bool) -> None:
    count = LIMIT + 1
    size = 1 + count + (1 if small else 4)
    assert decoded(array(b"\x56", b"\x01" * count, count, size=size, small=small)) == [True] * count
    with pytest.raises(ValueError, match=f"an AMQP array of {size + 1} bytes says that it has {count} elements"):
        decoded(array(b"\x56", b"\x01" * count, count, size=size + 1, small=small))


def test_a_descriptor_that_is_itself_compound_is_refused() -> None:
    with pytest.raises(ValueError, match="descriptor of type 0xf0"):
        decoded(array(b"\x00\xf0", bytes(100), 100))


@pytest.mark.parametrize("descriptor", DESCRIPTORS)
def test_a_described_array_may_have_many_elements(descriptor: bytes) -> None:
    assert decoded(array(b"\x00" + descriptor + b"\x50", bytes(LIMIT + 1), LIMIT + 1)) == [0] * (LIMIT + 1)


@given(
    st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=99),
    st.lists(st.binary(max_size=99), min_size=1, max_size=40),
    st.data(),
)
def test_every_other_array_decodes_as_before(numbers: list[int], texts: list[bytes], data: st.DataObject) -> None:
    described = b"" if data.draw(st.booleans()) else b"\x00" + data.draw(st.sampled_from(DESCRIPTORS))
    assert decoded(array(described + b"\x70", b"".join(pack(">I", each) for each in numbers), len(numbers))) == numbers
    packed = b"".join(pack(">B", len(each)) + each for each in texts)
    assert decoded(array(described + b"\xa0", packed, len(texts))) == texts


@pytest.mark.parametrize(("source", "allowed"), [("flights", 128), ("$management", 128), ("$cbs", 1)])
async def test_a_message_or_answer_without_an_end_is_not_collected(source: str, allowed: int) -> None:
    limit_messages()
    from azure.servicebus._pyamqp.aio._receiver_async import ReceiverLink

    receive: Any = ReceiverLink._incoming_transfer
    link: Any = SimpleNamespace(
        source=SimpleNamespace(address=source),
        network_trace=False,
        received_delivery_id=None,
        _received_payload=bytearray(),
        _first_frame=None,
        current_link_credit=-5_000,
    )
    more = (0, 1, b"tag", 0, False, True, None, None, None, None, None, bytes(2**20))
    for _ in range(allowed):
        await receive(link, more)
    with pytest.raises(ConnectionAbortedError, match=f"a message of more than {allowed * 2**20} bytes"):
        await receive(link, more)
    link.current_link_credit = -5_001
    link._received_payload.clear()
    with pytest.raises(ConnectionAbortedError, match="sent 5002 messages or"):
        await receive(link, more)


async def test_messages_that_were_not_asked_for_are_kept_up_to_the_size_of_a_large_one() -> None:
    limit_messages()
    from azure.servicebus._pyamqp.aio._receiver_async import ReceiverLink

    kept = list[object]()

    async def keep(_frame: object, message: object) -> None:
        kept.append(message)

    receive: Any = ReceiverLink._incoming_transfer
    link = ReceiverLink.__new__(ReceiverLink)
    vars(link).update(
        network_trace=False,
        network_trace_params={},
        source=SimpleNamespace(address="flights"),
        _received_payload=bytearray(),
        _received_delivery_tags=set(),
        _on_transfer=keep,
        delivery_count=0,
        current_link_credit=3,
    )
    frame = [0, 1, b"tag", 0, True, False, None, None, None, None, None, memoryview(binary_section(2**20 - 8))]
    for _ in range(3 + 128):
        await receive(link, frame)
    with pytest.raises(ConnectionAbortedError, match="129 messages or 135266304 bytes that were not asked for"):
        await receive(link, frame)
    link.current_link_credit = 1
    await receive(link, frame)
    await receive(link, frame)
    assert len(kept) == 3 + 128 + 2


def binary_section(size: int) -> bytes:
    return b"\x00\x53\x75\xb0" + pack(">I", size) + bytes(size)


@pytest.mark.parametrize("module", ["_transport._pyamqp_transport", "_pyamqp.aio._receiver_async"])
def test_a_large_message_of_too_many_values_is_not_decoded(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode_limits, "_SMALL_MESSAGE_BYTES", 1_000)
    monkeypatch.setattr(decode_limits, "_MAX_VALUES", 2_000)
    limit_messages()
    decode: Any = import_module(f"azure.servicebus.{module}").decode_payload
    nulls = b"\xd0" + pack(">II", 4 + 999, 999) + b"\x40" * 999
    deep = b"\x00\x53\x77\xd0" + pack(">II", 4 + 3 * len(nulls), 3) + nulls * 3
    for large in (deep, b"\x00\x53\x75\xa0\x00" * 2_001):
        with pytest.raises(ValueError, match="the message has more than 2000 values"):
            decode(memoryview(large))
    assert decode(memoryview(binary_section(9_999))).data == [bytes(9_999)]
    assert len(decode(memoryview(b"\x00\x53\x77" + nulls)).value) == 999
    # A small one is not looked at.
    monkeypatch.setattr(decode_limits, "_SMALL_MESSAGE_BYTES", len(large))
    assert len(decode(memoryview(large)).data) == 2_001
