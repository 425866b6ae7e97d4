"""EMULATOR 1: what a sender encoded stays as it is, byte for byte; rubbish is refused and breaks nothing."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from servicebus_emulator.amqp import incoming
from servicebus_emulator.amqp.encoding import MalformedValueError, compound_items, encode_compound, value_end
from servicebus_emulator.amqp.incoming import read_message, read_transfer
from servicebus_emulator.amqp.outgoing import encode_delivery
from servicebus_emulator.amqp.sections import Code, sections
from servicebus_emulator.amqp.values import Array, Int, Symbol, Timestamp, Value, decode, encode
from servicebus_emulator.engine.message import DeadLetterMark, Lock, Message, MessageState

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
strings = st.text(max_size=40).map(encode)
NULL = b"\x40"
PING = "application/vnd.ms-servicebus-ping"


def section(code: Code, value: bytes) -> bytes:
    return bytes((0x00, 0x53, code)) + value


def listed(*items: bytes) -> bytes:
    return encode_compound(0xC0, body=b"".join(items), count=len(items))


def mapped(*items: bytes) -> bytes:
    return encode_compound(0xC1, body=b"".join(items), count=len(items))


def delivered(data: bytes, **changes: object) -> dict[int, list[bytes]]:
    message = Message(row=1, number=7, content=read_message(data, new_id=lambda: "given"), enqueued_at=5, **changes)
    out = encode_delivery(message)
    found: dict[int, list[bytes]] = {}
    for code, _, value, end in sections(out):
        found.setdefault(code, []).append(out[value:end])
    return found


@given(encoded_values)
def test_the_end_of_any_value_is_found(value: bytes):
    assert value_end(value + b"\x40", 0) == len(value)


@given(
    header=st.lists(scalars, max_size=5),
    own=st.lists(st.tuples(st.sampled_from(["x-own", "x-opt-partition-key"]).map(Symbol), encoded_values), max_size=3),
    properties=st.lists(scalars, min_size=1, max_size=10),
    application=st.lists(st.tuples(strings, encoded_values), max_size=4),
    body=st.lists(st.binary(max_size=300), min_size=1, max_size=3),
    footer=encoded_values,
)
def test_all_sections_come_out_as_they_went_in(
    *,
    header: list[bytes],
    own: list[tuple[Symbol, bytes]],
    properties: list[bytes],
    application: list[tuple[bytes, bytes]],
    body: list[bytes],
    footer: bytes,
):
    message_id = encode(UUID(int=1))
    rest = section(Code.PROPERTIES, listed(message_id, *properties))
    rest += section(Code.APPLICATION_PROPERTIES, mapped(*(each for pair in application for each in pair)))
    for data in body:
        rest += section(Code.DATA, encode(data))
    rest += section(Code.FOOTER, mapped(encode(Symbol("f")), footer))
    annotations = [each for name, value in own for each in (encode(name), value)]
    found = delivered(
        section(Code.HEADER, listed(*header))
        + section(Code.DELIVERY_ANNOTATIONS, mapped(encode(Symbol("hop")), NULL))
        + section(Code.MESSAGE_ANNOTATIONS, mapped(*annotations))
        + rest
    )
    fields = compound_items(found[Code.HEADER][0])
    assert fields[:4] == (header + [NULL] * 4)[:4]
    assert fields[4] == b"\x43"
    assert compound_items(found[Code.MESSAGE_ANNOTATIONS][0])[: len(annotations)] == annotations
    assert Code.DELIVERY_ANNOTATIONS not in found
    kept = b"".join(
        section(Code(code), value)
        for code in (Code.PROPERTIES, Code.APPLICATION_PROPERTIES, Code.DATA, Code.FOOTER)
        for value in found[code]
    )
    assert kept == rest


@given(st.lists(st.binary(max_size=600), min_size=1, max_size=5))
def test_a_batch_envelope_holds_messages_of_their_own(bodies: list[bytes]):
    inner = [section(Code.PROPERTIES, listed(encode("id"))) + section(Code.DATA, encode(body)) for body in bodies]
    envelope = section(Code.PROPERTIES, listed(encode("id"))) + b"".join(section(Code.DATA, encode(m)) for m in inner)
    assert [content.sections for content in read_transfer(envelope, new_id=lambda: "given")] == inner


def test_a_batch_envelope_may_repeat_the_properties_of_its_first_message_and_no_others():
    numbered = [section(Code.APPLICATION_PROPERTIES, mapped(encode("n"), encode(number))) for number in (1, 2)]
    inner = [section(Code.PROPERTIES, listed(encode("id"))) + each + section(Code.VALUE, NULL) for each in numbered]
    data = b"".join(section(Code.DATA, encode(each)) for each in inner)

    of_first, of_second = (read_transfer(each + data, new_id=lambda: "given") for each in numbered)

    assert [content.sections for content in of_first] == inner
    assert [content.sections.endswith(numbered[1] + data) for content in of_second] == [True]


@pytest.mark.parametrize(
    "body", [b"", b"\x00", b"\x00\x53", b"\x00\x53\x75", b"\x00\x53\x75\xa0\x05x", b"\x00\x53\x01\x40"]
)
def test_data_that_only_begins_like_a_message_is_no_batch(body: bytes):
    data = section(Code.PROPERTIES, listed(encode("id"))) + section(Code.DATA, encode(body))
    (content,) = read_transfer(data, new_id=lambda: "given")
    assert content.sections == data


def test_the_broker_marks_what_it_knows():
    lock = Lock(b"t" * 16, 99, None)
    found = delivered(
        section(Code.MESSAGE_ANNOTATIONS, mapped(encode(Symbol("x-opt-sequence-number")), encode(1)))
        + section(Code.DATA, encode(b"x")),
        lock=lock,
        delivery_count=3,
        origin=2,
        state=MessageState.DEFERRED,
    )
    assert decode(found[Code.MESSAGE_ANNOTATIONS][0]) == {
        "x-opt-sequence-number": 7,
        "x-opt-enqueued-time": 5,
        "x-opt-enqueue-sequence-number": 2,
        "x-opt-locked-until": 99,
        "x-opt-message-state": 1,
    }
    assert decode(found[Code.HEADER][0])[4] == 3
    assert decode(found[Code.PROPERTIES][0]) == ["given"]


def test_a_dead_letter_carries_its_reason_beside_the_senders_properties():
    data = section(Code.PROPERTIES, listed(encode("id"))) + section(Code.DATA, encode(b"x"))
    own = encode("own") + b"\x84" + bytes(8)
    stale = encode("DeadLetterReason") + encode("of another time")
    with_properties = (
        section(Code.PROPERTIES, listed(encode("id")))
        + section(
            Code.APPLICATION_PROPERTIES, mapped(encode("own"), b"\x84" + bytes(8), encode("DeadLetterReason"), NULL)
        )
        + section(Code.DATA, encode(b"x"))
    )
    mark = DeadLetterMark("why", "d" * 300)
    expected = encode("DeadLetterReason") + encode("why") + encode("DeadLetterErrorDescription") + encode("d" * 300)
    assert delivered(data, dead_letter=mark)[Code.APPLICATION_PROPERTIES] == [
        encode_compound(0xC1, body=expected, count=4)
    ]
    found = delivered(with_properties, dead_letter=mark)
    assert found[Code.APPLICATION_PROPERTIES] == [encode_compound(0xC1, body=own + expected, count=6)]
    assert stale not in b"".join(found[Code.APPLICATION_PROPERTIES])
    assert found[Code.DATA] == [encode(b"x")]


@given(st.binary(max_size=200))
@example(b"\x00" * 100_000)
@example(b"\x00\x53\x75\xb0\xff\xff\xff\xff")
@example(b"\x00\x53\x72\xc1\x02\x01\x40")
def test_rubbish_is_refused_by_name(data: bytes):
    try:
        contents = read_transfer(data, new_id=lambda: "given")
    except MalformedValueError:
        return
    assert len(contents) >= 1


def test_what_is_remembered_of_messages_does_not_grow_with_their_number_or_size():
    for number in range(3_000):
        message = section(Code.HEADER, listed(NULL, NULL, encode(number)))
        message += section(Code.PROPERTIES, listed(encode("id"), encode(str(number).encode()))) + section(
            Code.VALUE, NULL
        )
        assert read_message(message, new_id=lambda: "given").time_to_live == number
    long = section(Code.PROPERTIES, listed(encode("id"), encode(b"x" * 100_000))) + section(Code.VALUE, NULL)
    read_message(long, new_id=lambda: "given")
    for memory in (incoming._HEADERS_READ, incoming._FIELDS_READ):
        assert 0 < len(memory) <= 1024
        assert max(map(len, memory)) <= 256


@pytest.mark.parametrize("announced", [0, 1, 3, 255])
def test_properties_that_announce_another_number_of_fields_are_refused(announced: int):
    fields = encode("id") + NULL
    short = bytes((0xC0, len(fields) + 1, announced)) + fields
    long = b"\xd0" + (len(fields) + 4).to_bytes(4, "big") + announced.to_bytes(4, "big") + fields
    for encoded in (short, long):
        with pytest.raises(MalformedValueError, match=f"{announced} "):
            read_message(section(Code.PROPERTIES, encoded), new_id=lambda: "given")


def test_properties_are_read_in_the_long_form_as_in_the_short():
    fields = [encode("id"), *[NULL] * 5, encode(Symbol(PING)), *[NULL] * 3, encode("session")]
    body = b"".join(fields)
    long = b"\xd0" + (len(body) + 4).to_bytes(4, "big") + len(fields).to_bytes(4, "big") + body
    for encoded in (listed(*fields), long):
        data = section(Code.PROPERTIES, encoded) + section(Code.VALUE, NULL)
        content = read_message(data, new_id=lambda: "given")
        assert (content.session_id, content.ping, content.sections) == ("session", True, data)


@given(
    st.recursive(
        st.one_of(
            st.none(),
            st.booleans(),
            st.integers(-(2**63), 2**63 - 1),
            st.text(max_size=300),
            st.binary(max_size=300),
            st.uuids(),
            st.integers(0, 2**31 - 1).map(Int),
            st.floats(allow_nan=False),
        ),
        lambda inner: st.one_of(st.lists(inner, max_size=5), st.dictionaries(st.text(max_size=5), inner, max_size=5)),
        max_leaves=10,
    )
)
def test_values_of_requests_and_answers_survive_their_encoding(value: Value):
    assert decode(encode(value)) == value


@pytest.mark.parametrize("items", [(), (UUID(int=1), UUID(int=2)), (Timestamp(5),), (1, -1, 2**40)])
def test_arrays_are_read_as_lists(items: tuple[UUID, ...] | tuple[int, ...]):
    assert decode(encode(Array(items))) == list(items)


def test_nesting_without_end_is_refused():
    value: Value = None
    for _ in range(40):
        value = [value]
    with pytest.raises(MalformedValueError, match="nested deeper"):
        decode(encode(value))
