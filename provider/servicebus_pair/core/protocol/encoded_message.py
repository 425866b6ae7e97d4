"""Reads single fields of an encoded message without decoding it. Pure."""

from __future__ import annotations

import struct
from typing import Final

from servicebus_pair.core.protocol.amqp_message import PARTITION_KEY
from servicebus_pair.core.protocol.amqp_sections import (
    APPLICATION_PROPERTIES,
    BODY,
    HEADER,
    MESSAGE_ANNOTATIONS,
    NULL,
    PROPERTIES,
    SYMBOL,
    join_list,
    join_map,
    section,
    split,
    text,
    text_of,
    value_end,
)

# Positions in the properties, and their number (AMQP 1.0, section 3.2.4).
MESSAGE_ID, GROUP_ID, PROPERTY_FIELDS = 0, 10, 13
SECTION_PREFIX: Final = b"\x00\x53"
PARTITION_NAME: Final = text(PARTITION_KEY, constructor=SYMBOL)
# Raised for bytes that are not what they should be; the SDK's decoder decides what they are.
DECODING_ERRORS: Final = (ValueError, LookupError, struct.error, OverflowError)


def broker_value(data: bytes, name: str) -> int | None:
    """Return an annotation of the broker, a number or a time in milliseconds; ``None`` if there is none.

    :param data: a message as received.
    """
    encoded_name = text(name, constructor=SYMBOL)
    start = 0
    try:
        while data[start : start + 2] == SECTION_PREFIX and data[start + 2] < BODY:
            end = value_end(data, start + 3)
            if data[start + 2] == MESSAGE_ANNOTATIONS:
                # Looked for before the items are split: one search is much faster, and the name is long.
                return number_behind(encoded_name, data[start:end])
            start = end
    except DECODING_ERRORS:
        pass
    return None


def number_behind(name: bytes, annotations: bytes) -> int | None:
    """Return the number or time that follows a name; ``None`` if there is none."""
    _, found, value = annotations.partition(name)
    return read_number(value) if found else None


def read_number(data: bytes) -> int | None:
    """Return the number or time at the beginning; ``None`` for a value of another type."""
    constructor = data[0]
    if constructor in (0x81, 0x83, 0x54, 0x55, 0x71, 0x80, 0x53, 0x44):
        return int.from_bytes(data[1 : value_end(data, 0)], "big", signed=constructor not in (0x80, 0x53))
    return None


def message_id_of(data: bytes) -> str | None:
    """Return the message id of an encoded message as text; ``None`` if it has none."""
    try:
        properties = _sections_before_body(data)[PROPERTIES]
        return text_of(split(properties)[MESSAGE_ID]) if properties else None
    except DECODING_ERRORS:
        return None


def batch_prefix(first: bytes) -> bytes:
    """Return what precedes the messages of a batch: partition key, message id and session id of the first one.

    :param first: the encoded message.
    """
    found = _sections_before_body(first)
    prefix = b""
    annotations = found[MESSAGE_ANNOTATIONS]
    if PARTITION_NAME in annotations:
        items = split(annotations)
        kept = [
            item
            for name, value in zip(items[::2], items[1::2], strict=True)
            if name == PARTITION_NAME and text_of(value)
            for item in (name, value)
        ]
        prefix = section(MESSAGE_ANNOTATIONS, join_map(kept)) if kept else b""
    fields = [*(split(found[PROPERTIES]) if found[PROPERTIES] else ()), *[NULL] * PROPERTY_FIELDS]
    ids = {index: fields[index] for index in (MESSAGE_ID, GROUP_ID) if fields[index] != NULL}
    if not ids:
        return prefix
    return prefix + section(PROPERTIES, join_list([ids.get(index, NULL) for index in range(PROPERTY_FIELDS)]))


def _sections_before_body(data: bytes) -> dict[int, bytes]:
    start = 0
    found = {HEADER: b"", MESSAGE_ANNOTATIONS: b"", PROPERTIES: b"", APPLICATION_PROPERTIES: b""}
    while start < len(data) and data[start + 2] < BODY:
        end = value_end(data, start + 3)
        found[data[start + 2]] = data[start + 3 : end]
        start = end
    return found
