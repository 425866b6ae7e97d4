"""Messages that the service accepts from no client are rejected, as it was seen to do (EMULATOR.md section 5)."""

from __future__ import annotations

from typing import Any

import pytest

from servicebus_emulator.amqp.codec.message_checks import check_messages
from servicebus_emulator.amqp.codec.raw_encoding import MalformedValueError
from servicebus_emulator.amqp.codec.sections import SectionCode
from servicebus_emulator.amqp.codec.transfer_decoder import decode_message
from servicebus_emulator.amqp.codec.value_codec import Symbol, encode
from servicebus_emulator.amqp.nodes.request_response import decode_request
from servicebus_emulator.engine.model.errors import InvalidArgument, MessageTooLarge, UnprocessableMessage
from servicebus_emulator.engine.model.message import Content
from tests.emulator.support.encoded_messages import NULL, listed, mapped, section
from tests.emulator.support.hostile_bytes import many_properties_of

KILOBYTE = 1024


def decoded(*properties: bytes, header: bytes = b"", body: bytes = b"x") -> Content:
    application = section(SectionCode.APPLICATION_PROPERTIES, mapped(*properties)) if properties else b""
    data = section(SectionCode.PROPERTIES, listed(encode("id"))) + application + section(SectionCode.DATA, encode(body))
    return decode_message(header + data, new_id=lambda: "given")


def ttl(encoded: bytes) -> bytes:
    return section(SectionCode.HEADER, listed(NULL, NULL, encoded))


@pytest.mark.parametrize("value", ["x" * 32 * KILOBYTE, b"x" * 32 * KILOBYTE], ids=["string", "binary"])
def test_a_property_of_32_kilobytes_is_accepted_and_one_byte_more_is_not(value: Any):
    longer = value + value[:1]
    check_messages([decoded(encode("p"), encode(value))])
    for key in (encode("p"), encode(Symbol("p"))):
        with pytest.raises(UnprocessableMessage, match=r"^The service was unable to process the request; please retry"):
            check_messages([decoded(encode("first"), encode(1), key, encode(longer))])


def test_properties_of_64_kilobytes_are_accepted_and_one_byte_more_is_not():
    def of_size(size: int) -> Content:
        half = [encode("a"), encode(b"x" * 30 * KILOBYTE), encode("b")]
        # The map: constructor, length and count.
        left = size - 9 - sum(map(len, half)) - 5
        rest = [encode(b"x" * (left - 8 - 2 * KILOBYTE)), encode("c"), encode(b"x" * 2 * KILOBYTE)]
        return decoded(*half, *rest)

    check_messages([of_size(64 * KILOBYTE)])
    with pytest.raises(
        MessageTooLarge, match=r"application properties have 65537 bytes, which exceeds the limit \(65536\)"
    ):
        of_size(64 * KILOBYTE + 1)


@pytest.mark.parametrize("claimed", [None, 1, 0xFFFFFFFF])
def test_the_properties_of_requests_are_limited_likewise(claimed: int | None):
    """Those of one client's request took 1.4 seconds to decode, in which no other client was served."""
    with pytest.raises(MessageTooLarge, match=r"exceeds the limit \(65536\)"):
        decode_request(many_properties_of(100_000, claimed=claimed))


def test_a_large_message_has_each_section_once_and_not_too_many():
    annotations = section(SectionCode.MESSAGE_ANNOTATIONS, mapped(encode(Symbol("x")), encode("x" * 40 * KILOBYTE)))
    body = section(SectionCode.DATA, encode(b"x"))
    decode_message(annotations + body + body, new_id=lambda: "given")
    with pytest.raises(MalformedValueError, match="several sections MESSAGE_ANNOTATIONS"):
        decode_message(annotations + section(SectionCode.HEADER, listed()) + annotations + body, new_id=lambda: "given")
    with pytest.raises(MalformedValueError, match="or 100000 of all"):
        decode_message(body * 100_001, new_id=lambda: "given")


@pytest.mark.parametrize("zero", [b"\x43", b"\x52\x00", b"\x70\x00\x00\x00\x00"], ids=["uint0", "smalluint", "uint"])
def test_a_time_to_live_of_zero_is_rejected_in_each_encoding(zero: bytes):
    with pytest.raises(UnprocessableMessage, match="message 1 has a time to live of 0"):
        check_messages([decoded(), decoded(header=ttl(zero))])
    check_messages([decoded(header=ttl(b"\x52\x01")), decoded(header=ttl(NULL)), decoded()])


def test_a_batch_of_4500_messages_is_accepted_and_one_more_is_not():
    check_messages([decoded()] * 4500)
    with pytest.raises(UnprocessableMessage, match="4501 messages; allowed: 4500"):
        check_messages([decoded()] * 4501)


def test_a_large_body_is_no_property():
    check_messages([decoded(encode("p"), encode("x"), body=b"x" * 100 * KILOBYTE)])


def test_malformed_properties_of_a_large_message_are_refused():
    odd = decoded(encode("a"), encode(b"x" * 20 * KILOBYTE), encode("b" * 20 * KILOBYTE))
    with pytest.raises(InvalidArgument, match="application properties of message 0 are malformed"):
        check_messages([odd])
