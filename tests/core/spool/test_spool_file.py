"""A torn or changed file of the spool loses nothing that is whole (SPEC section 10)."""

from __future__ import annotations

import base64
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servicebus_pair.core.model.errors import ConfigurationError, SpoolFullError
from servicebus_pair.core.model.options import Secret
from servicebus_pair.core.protocol.amqp_message import AmqpMessage, BodyType, new_message
from servicebus_pair.core.spool import spool_file
from servicebus_pair.core.spool.spool_file import (
    ForeignFileError,
    SpoolKey,
    WrongKeyError,
    decode_file,
    encode_file,
)
from tests.examples import examples


def key(number: int) -> SpoolKey:
    return SpoolKey(Secret(base64.urlsafe_b64encode(bytes([number]) * 32).decode()))


KEYS = st.sampled_from([None, key(1)])
BODIES = st.lists(st.binary(max_size=40), max_size=5)


def file_of(bodies: list[bytes], with_key: SpoolKey | None) -> bytes:
    return encode_file("flights/ua", [new_message(body) for body in bodies], created_at=1234.5, key=with_key)


def bodies_of(messages: tuple[AmqpMessage, ...]) -> list[bytes]:
    return [b"".join(message.body) for message in messages]


@given(bodies=BODIES, with_key=KEYS)
def test_a_file_holds_entity_time_and_messages_in_order(bodies: list[bytes], with_key: SpoolKey | None) -> None:
    found = decode_file(file_of(bodies, with_key), key=with_key)
    assert (found.entity, found.created_at, bodies_of(found.messages), found.damage) == (
        "flights/ua",
        1234.5,
        bodies,
        None,
    )


@examples(60)
@given(bodies=BODIES.filter(bool), with_key=KEYS, data=st.data())
def test_a_torn_file_keeps_every_record_before_the_tear(
    bodies: list[bytes], with_key: SpoolKey | None, data: st.DataObject
) -> None:
    content = file_of(bodies, with_key)
    kept = data.draw(st.integers(0, len(content) - 1))
    first_line = content.index(b"\n") + 1
    ends = [first_line]
    while ends[-1] < len(content):
        ends.append(ends[-1] + 8 + struct.unpack_from(">I", content, ends[-1])[0])
    whole = sum(end <= kept for end in ends[1:])
    if kept < first_line:
        with pytest.raises(ForeignFileError):
            decode_file(content[:kept], key=with_key)
        return
    found = decode_file(content[:kept], key=with_key)
    assert bodies_of(found.messages) == bodies[:whole]
    assert found.damage is not None


@examples(100)
@given(bodies=BODIES.filter(bool), with_key=KEYS, data=st.data())
def test_a_changed_byte_is_noticed_and_costs_no_other_record(
    bodies: list[bytes], with_key: SpoolKey | None, data: st.DataObject
) -> None:
    content = bytearray(file_of(bodies, with_key))
    records = content.index(b"\n") + 1
    # Not in a length: then the records behind it cannot be found.
    at = data.draw(st.integers(records + 4, len(content) - 1))
    starts, start = [], records
    while start < len(content):
        starts.append(start)
        start += 8 + struct.unpack_from(">I", content, start)[0]
    index = max(number for number, begin in enumerate(starts) if begin <= at)
    if at - starts[index] < 4:
        return
    content[at] ^= data.draw(st.integers(1, 255))
    found = decode_file(bytes(content), key=with_key)
    assert found.damage is not None
    assert bodies_of(found.messages) == bodies[:index] + bodies[index + 1 :]


@pytest.mark.parametrize("with_key", [None, key(1)], ids=["plain", "encrypted"])
def test_a_file_has_no_more_values_than_a_process_has_memory_for(
    with_key: SpoolKey | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another user may have written it: "[]," is a list in three bytes."""
    texts = new_message(b"", application_properties={"text": '[,{"' * 200})  # these are no values
    lists = AmqpMessage([[]] * 100, BodyType.VALUE)
    planted = encode_file("flights", [texts, lists, texts], created_at=1.0, key=with_key)
    monkeypatch.setattr(spool_file, "_MAX_VALUES", 100)

    found = decode_file(planted, key=with_key)
    assert (bodies_of(found.messages), found.damage) == (
        [b"", b""],
        "record 1 is damaged: more than 100 values with it",
    )
    with pytest.raises(SpoolFullError, match="2 messages do not fit into a file of the spool"):
        encode_file("flights", [texts, lists], created_at=1.0, key=with_key)


@given(content=st.binary(max_size=200))
def test_a_foreign_file_is_named_so(content: bytes) -> None:
    with pytest.raises(ForeignFileError, match="not a file of a spool"):
        decode_file(content)


@pytest.mark.parametrize(
    "header",
    [
        b"[]",
        b"{}",
        b"[" * 50_000,
        b'{"entity":5,"format":"servicebus-pair spool 1","created":1,"messages":1}',
        b'{"entity":"flights","format":"servicebus-pair spool 1","created":1,"messages":1e999}',
    ],
    ids=["list", "empty", "deep", "number for a name", "infinite"],
)
def test_another_first_line_is_foreign(header: bytes) -> None:
    with pytest.raises(ForeignFileError, match="not a file of a spool, or its first line is damaged"):
        decode_file(header + b"\n")


@pytest.mark.parametrize("entity", ["fl\\nights", "fl\\u202eights"])
def test_a_file_whose_entity_would_forge_lines_of_logs_is_foreign(entity: str) -> None:
    content = file_of([b"x"], None).replace(b'"entity":"flights/ua"', f'"entity":"{entity}"'.encode())
    with pytest.raises(ForeignFileError):
        decode_file(content)


@pytest.mark.parametrize("version", [b"0", b"2"])
def test_a_file_of_another_version_is_foreign(version: bytes) -> None:
    content = file_of([b"x"], None).replace(b"spool 1", b"spool " + version)
    with pytest.raises(ForeignFileError, match="not a file of a spool of this version"):
        decode_file(content)


def test_records_that_are_missing_or_too_many_are_damage() -> None:
    content, one = file_of([b"x", b"x"], None), file_of([b"x"], None)
    record = one[one.index(b"\n") + 1 :]
    for number, changed in ((1, content[: -len(record)]), (3, content + record)):
        found = decode_file(changed)
        assert (len(found.messages), found.damage) == (number, f"it has {number} of 2 messages")


@pytest.mark.parametrize(
    ("given", "text"), [(None, "none is given"), *((key(n), f"has the id {key(n).id}") for n in (2, 3, 4, 5))]
)
def test_another_key_is_named_by_its_id(given: SpoolKey | None, text: str) -> None:
    with pytest.raises(WrongKeyError, match=f"the key of id {key(1).id}.*{text}"):
        decode_file(file_of([b"x"], key(1)), key=given)


def test_a_file_that_is_not_encrypted_is_not_read_with_a_key() -> None:
    with pytest.raises(WrongKeyError, match=f"not encrypted, and the key of id {key(1).id} is given"):
        decode_file(file_of([b"x"], None), key=key(1))
    assert bodies_of(decode_file(file_of([b"x"], None), key=key(1), plain=True).messages) == [b"x"]


def test_an_encrypted_file_shows_neither_body_nor_key_and_never_the_same_bytes() -> None:
    one, two = (file_of([b"canary-body"], key(1)) for _ in range(2))
    assert b"canary-body" not in one
    assert base64.b64encode(b"canary-body") not in one
    assert bytes([1]) * 32 not in one
    assert one.partition(b"\n")[2] != two.partition(b"\n")[2]


def test_the_first_line_of_an_encrypted_file_cannot_be_changed() -> None:
    content = file_of([b"x"], key(1)).replace(b"flights/ua", b"flights/ub")
    found = decode_file(content, key=key(1))
    assert (found.messages, found.damage) == ((), "record 0 is damaged: it was changed after it was written")


@pytest.mark.parametrize("text", ["", "canary", "canary" * 20, "Ä" * 43])
def test_a_wrong_key_is_refused_without_being_quoted(text: str) -> None:
    with pytest.raises(ConfigurationError, match="the spool's key is not 32 bytes in URL-safe base64") as caught:
        SpoolKey(Secret(text))
    assert "canary" not in str(caught.value)


def test_the_key_of_fernet_is_one() -> None:
    fernet = pytest.importorskip("cryptography.fernet")
    assert len(SpoolKey(Secret(fernet.Fernet.generate_key().decode())).id) == 16


@pytest.mark.parametrize(("damaged", "kept"), [(9_999, 1), (10_000, 0)])
def test_a_file_of_damaged_records_is_not_read_to_its_end(damaged: int, kept: int) -> None:
    content = file_of([b"x"], None)
    header, _, record = content.partition(b"\n")
    torn = struct.pack(">II", 0, 1) * damaged
    found = decode_file(header + b"\n" + torn + record)
    assert (len(found.messages), found.damage) == (kept, f"record {damaged - 1} is damaged: torn")
