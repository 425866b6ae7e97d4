"""Properties of encoded messages are decoded and rewritten for rules."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servicebus_emulator.amqp.codec.property_codec import AmqpPropertyCodec, decode_property, property_value
from servicebus_emulator.amqp.codec.raw_encoding import compound_items, encode_compound, encode_long, encode_symbol
from servicebus_emulator.amqp.codec.sections import SectionCode, sections
from servicebus_emulator.amqp.codec.value_codec import encode
from servicebus_emulator.engine.model.timespan import TimeSpan
from servicebus_emulator.engine.sql.errors import SqlEvaluationError
from servicebus_emulator.engine.sql.properties import MessageProperties
from servicebus_emulator.engine.sql.values import SqlValue
from tests.emulator.support.engine import content

CODEC = AmqpPropertyCodec()
BODY = b"\x00\x53\x75\xa0\x04body"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.text(max_size=30),
    st.binary(max_size=300),
    st.uuids(),
    st.integers(0, 253_402_300_799_999).map(lambda each: EPOCH + timedelta(milliseconds=each)),
    st.integers(-(2**63), 2**63 - 1).map(TimeSpan),
)
users = st.dictionaries(st.text(max_size=10), values, max_size=6)
systems = st.dictionaries(st.sampled_from(["label", "to", "replyto", "sessionid", "messageid"]), st.text(max_size=10))


def known(properties: MessageProperties) -> tuple[dict[str, SqlValue], dict[str, SqlValue]]:
    return {name: value for name, value in properties.system.items() if value is not None}, dict(properties.user)


@given(users, systems, users, systems)
def test_changed_properties_are_read_back_and_the_body_is_kept(
    user: dict[str, SqlValue],
    system: dict[str, SqlValue],
    new_user: dict[str, SqlValue],
    new_system: dict[str, SqlValue],
):
    empty = content(BODY)
    first = MessageProperties(system=system, user=user)
    second = MessageProperties(system=new_system, user=new_user)

    written = CODEC.rewrite(empty, before=CODEC.read(empty), after=first)
    assert known(CODEC.read(written)) == (system, user)
    again = CODEC.rewrite(written, before=CODEC.read(written), after=second)

    assert known(CODEC.read(again)) == (new_system, new_user)
    assert again.sections.endswith(BODY)
    assert again.session_id == new_system.get("sessionid")


@given(users, st.text(min_size=1, max_size=5), values)
def test_an_unchanged_application_property_keeps_its_bytes(user: dict[str, SqlValue], name: str, value: SqlValue):
    items = [part for key, each in user.items() for part in (encode(key), encode(property_value(each)))]
    items += [encode("odd"), b"\x74\x00\x00\x00\x05", encode("wide"), b"\x83" + bytes(8)]
    section = b"\x00\x53\x74" + encode_compound(0xC1, body=b"".join(items), count=len(items))
    sent = content(section + BODY)
    before = CODEC.read(sent)

    revised = CODEC.rewrite(sent, before=before, after=before.with_user(f"new {name}", value))

    (encoded,) = (
        revised.sections[value:end]
        for code, _, value, end in sections(revised.sections)
        if code == SectionCode.APPLICATION_PROPERTIES
    )
    kept = compound_items(encoded)
    assert kept[: len(items)] == items


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"\x50\x05", 5),
        (b"\x44", 0),
        (b"\x80" + b"\xff" * 8, 2**64 - 1),
        (b"\x72\x3f\x00\x00\x00", 0.5),
        (b"\x73\x00\x00\x00\x41", "A"),
        (b"\xa3\x01x", "x"),
        (b"\x00" + encode_symbol("com.microsoft:uri") + encode("http://x"), "http://x"),
        (b"\x00" + encode_symbol("com.microsoft:datetime-offset") + encode_long(621_355_968_000_000_000), EPOCH),
        (b"\x00" + encode_symbol("of.another:type") + encode("x"), None),
        (b"\x83" + (2**62).to_bytes(8, "big"), None),
        (b"\x94" + bytes(16), None),
        (b"\xc0\x01\x00", None),
    ],
)
def test_values_of_every_type_are_decoded_or_none(data: bytes, value: SqlValue):
    assert decode_property(data) == value


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x53\x74\xc1\x06\x02\xa1\x01n\x73\x7f",
        b"\x00\x53\x74\xc1\x09\x02\xa1\x01n\x73\x7f\x00\x00\x00",
        b"\x00\x53\x73\x40",
        b"\x00\x53\x74\xc1\x06\x02\xa1\x01\xff\x50\x01",
    ],
)
def test_a_malformed_message_is_an_evaluation_error(data: bytes):
    with pytest.raises(SqlEvaluationError, match="cannot be decoded"):
        CODEC.read(content(data))


@pytest.mark.parametrize("value", [2**64 - 1, "\ud800"])
def test_a_value_without_amqp_encoding_is_an_evaluation_error(value: SqlValue):
    sent = content(BODY)
    before = CODEC.read(sent)

    with pytest.raises(SqlEvaluationError, match="a property cannot be set"):
        CODEC.rewrite(sent, before=before, after=before.with_user("n", value))
