"""Delivered messages carry the annotations of the broker."""

from __future__ import annotations

from typing import Any

from servicebus_emulator.amqp.codec.raw_encoding import encode_compound
from servicebus_emulator.amqp.codec.sections import SectionCode
from servicebus_emulator.amqp.codec.value_codec import Symbol, decode, encode
from servicebus_emulator.engine.model.message import DeadLetterInfo, Lock, MessageState
from tests.emulator.support.encoded_messages import NULL, delivered, listed, mapped, section


def test_delivered_messages_have_the_brokers_annotations():
    lock = Lock(b"t" * 16, 99, None)
    found = delivered(
        section(SectionCode.MESSAGE_ANNOTATIONS, mapped(encode(Symbol("x-opt-sequence-number")), encode(1)))
        + section(SectionCode.DATA, encode(b"x")),
        lock=lock,
        delivery_count=3,
        enqueued_sequence_number=2,
        state=MessageState.DEFERRED,
    )
    assert decode(found[SectionCode.MESSAGE_ANNOTATIONS][0]) == {
        "x-opt-sequence-number": 7,
        "x-opt-enqueued-time": 5,
        "x-opt-enqueue-sequence-number": 2,
        "x-opt-locked-until": 99,
        "x-opt-message-state": 1,
    }
    header: Any = decode(found[SectionCode.HEADER][0])
    assert header[4] == 3
    assert decode(found[SectionCode.PROPERTIES][0]) == ["given"]


def test_a_dead_letter_has_its_reason_and_the_senders_properties():
    properties = section(SectionCode.PROPERTIES, listed(encode("id")))
    own = encode("own") + b"\x84" + bytes(8)
    stale = section(SectionCode.APPLICATION_PROPERTIES, mapped(own[:5], own[5:], encode("DeadLetterReason"), NULL))
    body = section(SectionCode.DATA, encode(b"x"))
    info = DeadLetterInfo("why", "d" * 300)
    added = encode("DeadLetterReason") + encode("why") + encode("DeadLetterErrorDescription") + encode("d" * 300)
    for data, expected, count in ((properties + body, added, 4), (properties + stale + body, own + added, 6)):
        found = delivered(data, dead_letter=info)
        assert found[SectionCode.APPLICATION_PROPERTIES] == [encode_compound(0xC1, body=expected, count=count)]
        assert found[SectionCode.DATA] == [encode(b"x")]
