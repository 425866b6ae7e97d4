"""The bytes of a message, exactly those of the SDK (7.15), by a shorter way where there is one.

A send of many small messages spends most of its time in the SDK's encoder, and that most of its own
on building a description of each field before it writes it. What nearly every message consists of
is written directly here, as AMQP 1.0 (parts 1.6 and 3.2) lays it down and with the SDK's choices
of width: properties that are text, application properties that are text, and data. Every other
section, or one with any other value in it, is the SDK's encoder's; its name is not promised to
stay, and without it this module cannot be imported. The tests compare the bytes with those of the
SDK's public batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from servicebus_pair.core.sdk_names import unusable

try:
    from azure.servicebus._pyamqp._encode import encode_payload
    from azure.servicebus._pyamqp.message import Message
except ImportError as error:
    raise unusable(error) from error

__all__ = ["Message", "encode"]

_PROPERTIES: Final = b"\x00\x53\x73"
_APPLICATION_PROPERTIES: Final = b"\x00\x53\x74"
_DATA: Final = b"\x00\x53\x75"
_NULL: Final = 0x40
# The constructors of values of up to 255 bytes; those of longer ones are 16 higher.
_BINARY: Final = 0xA0
_STRING: Final = 0xA1
_SYMBOL: Final = 0xA3
_LIST: Final = 0xC0
_MAP: Final = 0xC1
_LONGER: Final = 0x10
_SHORT: Final = 256
# Of the properties, in their order, the constructor of a text; None for what is no text.
_TEXTS: Final = (
    _STRING,  # message id
    None,  # user id
    _STRING,  # to
    _STRING,  # subject
    _STRING,  # reply-to
    _STRING,  # correlation id
    _SYMBOL,  # content type
    _SYMBOL,  # content encoding
    None,  # expiry time
    None,  # creation time
    _STRING,  # group id
    None,  # group sequence
    _STRING,  # reply-to group id
)


def encode(output: bytearray, message: Message) -> None:
    """Append the bytes of ``message``, in the SDK's inner form, to ``output``.

    :raises ValueError, TypeError, OverflowError, struct.error: a value has no AMQP encoding.
    """
    header, delivery, annotations, properties, own, data, sequence, value, footer = message
    if header is not None or annotations:
        encode_payload(output, Message(header=header, message_annotations=annotations))
    if properties is not None and not _put_properties(output, properties):
        encode_payload(output, Message(properties=properties))
    if own and not _put_texts(output, own):
        encode_payload(output, Message(application_properties=own))
    if data and not _put_data(output, data):
        encode_payload(output, Message(data=data))
    if sequence or value or footer or delivery:
        encode_payload(output, Message(sequence=sequence, value=value, footer=footer, delivery_annotations=delivery))


def _put_properties(output: bytearray, properties: Iterable[Any]) -> bool:
    fields = bytearray()
    count = 0
    for value, constructor in zip(properties, _TEXTS, strict=True):
        count += 1
        if value is None:
            fields.append(_NULL)
        elif type(value) is str and constructor is not None:
            _put(fields, constructor, value.encode())
        else:
            return False
    output += _PROPERTIES
    _put_compound(output, _LIST, count, fields)
    return True


def _put_texts(output: bytearray, own: Mapping[Any, Any]) -> bool:
    pairs = bytearray()
    for name, value in own.items():
        if type(name) is not str or type(value) is not str:
            return False
        _put(pairs, _STRING, name.encode())
        _put(pairs, _STRING, value.encode())
    output += _APPLICATION_PROPERTIES
    _put_compound(output, _MAP, 2 * len(own), pairs)
    return True


def _put_data(output: bytearray, data: Iterable[Any]) -> bool:
    if any(type(part) is not bytes for part in data):
        return False
    for part in data:
        output += _DATA
        _put(output, _BINARY, part)
    return True


def _put(output: bytearray, constructor: int, value: bytes) -> None:
    length = len(value)
    if length < _SHORT:
        output.append(constructor)
        output.append(length)
    else:
        output.append(constructor + _LONGER)
        output += length.to_bytes(4, "big")
    output += value


def _put_compound(output: bytearray, constructor: int, count: int, items: bytearray) -> None:
    # The size that is written includes that of the count.
    size = len(items) + 1
    if size < _SHORT and count < _SHORT:
        output += bytes((constructor, size, count))
    else:
        output.append(constructor + _LONGER)
        output += (size + 3).to_bytes(4, "big")
        output += count.to_bytes(4, "big")
    output += items
