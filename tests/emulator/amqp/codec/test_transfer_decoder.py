"""Deliveries are decoded into messages whose sections keep their bytes; malformed ones are refused."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from servicebus_emulator.amqp.codec import transfer_decoder as incoming
from servicebus_emulator.amqp.codec.raw_encoding import MalformedValueError, compound_items
from servicebus_emulator.amqp.codec.sections import SectionCode
from servicebus_emulator.amqp.codec.transfer_decoder import decode_message, decode_transfer
from servicebus_emulator.amqp.codec.value_codec import Symbol, encode
from tests.emulator.support.encoded_messages import NULL, delivered, encoded_values, listed, mapped, scalars, section

strings = st.text(max_size=40).map(encode)
PING = "application/vnd.ms-servicebus-ping"


@given(
    header=st.lists(scalars, max_size=5),
    own=st.lists(st.tuples(st.sampled_from(["x-own", "x-opt-partition-key"]).map(Symbol), encoded_values), max_size=3),
    properties=st.lists(scalars, min_size=1, max_size=10),
    application=st.lists(st.tuples(strings, encoded_values), max_size=4),
    body=st.lists(st.binary(max_size=300), min_size=1, max_size=3),
    footer=encoded_values,
)
def test_sections_are_preserved_byte_for_byte(
    *,
    header: list[bytes],
    own: list[tuple[Symbol, bytes]],
    properties: list[bytes],
    application: list[tuple[bytes, bytes]],
    body: list[bytes],
    footer: bytes,
):
    message_id = encode(UUID(int=1))
    rest = section(SectionCode.PROPERTIES, listed(message_id, *properties))
    rest += section(SectionCode.APPLICATION_PROPERTIES, mapped(*(each for pair in application for each in pair)))
    for data in body:
        rest += section(SectionCode.DATA, encode(data))
    rest += section(SectionCode.FOOTER, mapped(encode(Symbol("f")), footer))
    annotations = [each for name, value in own for each in (encode(name), value)]
    found = delivered(
        section(SectionCode.HEADER, listed(*header))
        + section(SectionCode.DELIVERY_ANNOTATIONS, mapped(encode(Symbol("hop")), NULL))
        + section(SectionCode.MESSAGE_ANNOTATIONS, mapped(*annotations))
        + rest
    )
    fields = compound_items(found[SectionCode.HEADER][0])
    assert fields[:4] == (header + [NULL] * 4)[:4]
    assert fields[4] == b"\x43"
    assert compound_items(found[SectionCode.MESSAGE_ANNOTATIONS][0])[: len(annotations)] == annotations
    assert SectionCode.DELIVERY_ANNOTATIONS not in found
    kept = b"".join(
        section(SectionCode(code), value)
        for code in (SectionCode.PROPERTIES, SectionCode.APPLICATION_PROPERTIES, SectionCode.DATA, SectionCode.FOOTER)
        for value in found[code]
    )
    assert kept == rest


@given(st.lists(st.binary(max_size=600), min_size=1, max_size=5))
def test_a_batch_envelope_is_decoded_into_its_messages(bodies: list[bytes]):
    inner = [
        section(SectionCode.PROPERTIES, listed(encode("id"))) + section(SectionCode.DATA, encode(body))
        for body in bodies
    ]
    envelope = section(SectionCode.PROPERTIES, listed(encode("id"))) + b"".join(
        section(SectionCode.DATA, encode(m)) for m in inner
    )
    assert [content.sections for content in decode_transfer(envelope, batch=True, new_id=lambda: "given")] == inner


@pytest.mark.parametrize(
    "envelope", [b"", section(SectionCode.VALUE, NULL), section(SectionCode.DATA, encode(b"\x00"))]
)
def test_a_batch_without_messages_is_malformed(envelope: bytes):
    with pytest.raises(MalformedValueError):
        decode_transfer(envelope, batch=True, new_id=lambda: "given")


@pytest.mark.parametrize(
    "body", [b"", b"\x00", b"\x00\x53\x75\xa0\x05x", b"\x00\x53\x01\x40", section(SectionCode.DATA, encode(b"x"))]
)
def test_data_that_is_a_message_is_the_body_of_one(body: bytes):
    data = section(SectionCode.PROPERTIES, listed(encode("id"))) + section(SectionCode.DATA, encode(body))
    (content,) = decode_transfer(data, batch=False, new_id=lambda: "given")
    assert content.sections == data


@given(data=st.binary(max_size=200), batch=st.booleans())
@example(data=b"\x00" * 100_000, batch=False)
@example(data=b"\x00\x53\x75\xb0\xff\xff\xff\xff", batch=False)
@example(data=b"\x00\x53\x72\xc1\x02\x01\x40", batch=False)
def test_malformed_messages_raise_malformed_value_error(data: bytes, batch: bool):
    try:
        contents = decode_transfer(data, batch=batch, new_id=lambda: "given")
    except MalformedValueError:
        return
    assert len(contents) >= 1


def test_decode_caches_are_limited_in_entries_and_length():
    for number in range(3_000):
        message = section(SectionCode.HEADER, listed(NULL, NULL, encode(number)))
        message += section(SectionCode.PROPERTIES, listed(encode("id"), encode(str(number).encode()))) + section(
            SectionCode.VALUE, NULL
        )
        assert decode_message(message, new_id=lambda: "given").time_to_live == number
    long = section(SectionCode.PROPERTIES, listed(encode("id"), encode(b"x" * 100_000))) + section(
        SectionCode.VALUE, NULL
    )
    decode_message(long, new_id=lambda: "given")
    for memory in (incoming._HEADERS, incoming._OTHER_FIELDS):
        assert 0 < len(memory) <= 1024
        assert max(map(len, memory)) <= 256


@pytest.mark.parametrize("announced", [0, 1, 3, 255])
def test_properties_with_a_wrong_field_count_are_refused(announced: int):
    fields = encode("id") + NULL
    short = bytes((0xC0, len(fields) + 1, announced)) + fields
    long = b"\xd0" + (len(fields) + 4).to_bytes(4, "big") + announced.to_bytes(4, "big") + fields
    for encoded in (short, long):
        with pytest.raises(MalformedValueError, match=f"{announced} "):
            decode_message(section(SectionCode.PROPERTIES, encoded), new_id=lambda: "given")


def test_properties_are_decoded_in_the_long_and_the_short_form():
    fields = [encode("id"), *[NULL] * 5, encode(Symbol(PING)), *[NULL] * 3, encode("session")]
    body = b"".join(fields)
    long = b"\xd0" + (len(body) + 4).to_bytes(4, "big") + len(fields).to_bytes(4, "big") + body
    for encoded in (listed(*fields), long):
        data = section(SectionCode.PROPERTIES, encoded) + section(SectionCode.VALUE, NULL)
        content = decode_message(data, new_id=lambda: "given")
        assert (content.session_id, content.ping, content.sections) == ("session", True, data)
