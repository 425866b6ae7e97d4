"""Messages as the page shows and sends them: decoded, as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from math import isfinite
from struct import error as StructError  # noqa: N812 - `error` alone would be ambiguous here
from typing import Any, Final
from uuid import uuid4

from servicebus_emulator.amqp.codec.property_codec import AmqpPropertyCodec
from servicebus_emulator.amqp.codec.raw_encoding import (
    NULL,
    MalformedValueError,
    encode_list,
    encode_map,
    encode_string,
    encode_symbol,
)
from servicebus_emulator.amqp.codec.sections import SectionCode, data_section_body, encode_section, sections
from servicebus_emulator.amqp.codec.transfer_decoder import decode_message
from servicebus_emulator.amqp.codec.value_codec import decode, encode
from servicebus_emulator.engine.model.errors import InvalidArgument
from servicebus_emulator.engine.model.message import Content, Message
from servicebus_emulator.engine.sql.errors import SqlEvaluationError

_SHOWN_BYTES: Final = 4096
_CODEC: Final = AmqpPropertyCodec()
_FIELDS: Final = ("message_id", "subject", "content_type", "session_id", "body", "properties")


def message_document(message: Message) -> dict[str, Any]:
    """Return what is shown of a message: at most 4,096 bytes of its body."""
    reason, description = (None, None) if message.dead_letter is None else message.dead_letter
    try:
        properties = _CODEC.read(message.content)
        system, user = dict(properties.system), {name: _shown(value) for name, value in properties.user.items()}
    except SqlEvaluationError:
        system, user = {}, {}
    return {
        "sequence_number": message.sequence_number,
        "state": "locked" if message.lock is not None else message.state.name.lower(),
        "enqueued": _time(message.enqueued_at),
        "due": None if message.due is None else _time(message.due),
        "delivery_count": message.delivery_count,
        "size": message.content.size,
        "message_id": _shown(system.get("messageid")),
        "session_id": message.content.session_id,
        "subject": _shown(system.get("label")),
        "content_type": _shown(system.get("contenttype")),
        "dead_letter_reason": reason,
        "dead_letter_description": description,
        "properties": user,
        "body": _body(message.content.sections),
    }


def content_of(document: Mapping[str, object]) -> tuple[Content, int]:
    """Return the message that a client describes, and its encoded size.

    :param document: texts, of which only ``body`` is required, and ``properties``: texts, numbers or booleans by name.
    :raises InvalidArgument: when a member is of another kind.
    """
    texts = {name: _text(document, name) for name in _FIELDS if name != "properties"}
    properties = document.get("properties") or {}
    if not isinstance(properties, dict) or not all(
        isinstance(each, str | bool | int | float) for each in properties.values()
    ):
        raise InvalidArgument("properties is no object of texts, numbers and booleans")
    fields = [NULL] * 11
    try:
        fields[0] = encode_string(texts["message_id"] or uuid4().hex)
        for position, name in ((3, "subject"), (10, "session_id")):
            fields[position] = encode(texts[name])
        fields[6] = NULL if texts["content_type"] is None else encode_symbol(texts["content_type"])
        pairs = [each for name, value in properties.items() for each in (encode_string(name), encode(value))]
        body = (texts["body"] or "").encode()
    except (ValueError, StructError) as error:
        raise InvalidArgument(f"a text, the content type or a property cannot be encoded: {error}") from error
    encoded = (
        encode_section(SectionCode.PROPERTIES, encode_list(fields))
        + (encode_section(SectionCode.APPLICATION_PROPERTIES, encode_map(pairs)) if len(pairs) > 0 else b"")
        + encode_section(SectionCode.DATA, encode(body))
    )
    return decode_message(encoded, new_id=lambda: uuid4().hex), len(encoded)


def _text(document: Mapping[str, object], name: str) -> str | None:
    value = document.get(name)
    if value is not None and not isinstance(value, str):
        raise InvalidArgument(f"{name} is {value!r}; allowed: a text")
    return value or None


def _body(data: bytes) -> str:
    parts: list[bytes] = []
    try:
        for code, _, start, end in sections(data):
            if code == SectionCode.DATA:
                parts.append(data_section_body(data, start, end))
            elif code in {SectionCode.VALUE, SectionCode.SEQUENCE}:
                value = decode(data[start:end])
                parts.append(value if isinstance(value, bytes) else str(value).encode())
    except (MalformedValueError, IndexError):
        return "(cannot be decoded)"
    body = b"".join(parts)
    shown = body[:_SHOWN_BYTES]
    try:
        # Of a character that was cut, at most three bytes are left over.
        text = shown.decode(errors="strict" if len(body) <= _SHOWN_BYTES else "ignore")
    except UnicodeDecodeError:
        text = shown.hex(" ")
    return text if len(body) <= _SHOWN_BYTES else f"{text} ... ({len(body)} bytes)"


def _shown(value: object) -> str | bool | int | float | None:
    # JSON has no numbers that are not finite: a browser would read nothing of the answer.
    if isinstance(value, float) and not isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, str | bool | int | float) else str(value)


def _time(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, tz=UTC).isoformat(timespec="milliseconds")
