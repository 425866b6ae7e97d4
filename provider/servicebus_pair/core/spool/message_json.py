"""A message as JSON and back, with the Python type of each value. Pure.

JSON's own types stand for themselves; any other value is an object with one key, which names its type.
"""

from __future__ import annotations

import json
import math
import struct
from base64 import b64encode
from binascii import a2b_base64
from collections.abc import Callable, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from servicebus_pair.core.protocol.amqp_message import AmqpMessage, BodyType, Header, Properties
from servicebus_pair.core.protocol.typed_values import TypedValue

_SECTIONS: Final = {"header": Header, "properties": Properties}
_MAPS: Final = ("application_properties", "annotations", "delivery_annotations", "footer")


def to_json(message: AmqpMessage) -> bytes:
    """Return ``message`` as a line of JSON.

    :raises TypeError: a value is of a type that no AMQP type stands for.
    """
    record: dict[str, Any] = {"body": _encode(message.body), "body_type": message.body_type.value}
    for name in _SECTIONS:
        section = getattr(message, name)
        if section is not None:
            fields = {field: getattr(section, field) for field in section.__slots__}
            record[name] = {field: _encode(value) for field, value in fields.items() if value is not None}
    for name in _MAPS:
        values = getattr(message, name)
        if values is not None:
            record[name] = _encode(dict(values))
    return json.dumps(record, separators=(",", ":")).encode()


def from_json(line: bytes | memoryview) -> AmqpMessage:
    """Return the message of :func:`to_json`.

    :raises ValueError: ``line`` is something else.
    """
    try:
        record = json.loads(str(line, "utf-8"))
        sections = {name: kind(**_decode_each(record[name])) for name, kind in _SECTIONS.items() if name in record}
        maps = {name: _decode(record[name]) for name in _MAPS if name in record}
        return _checked(AmqpMessage(_decode(record["body"]), BodyType(record["body_type"]), **sections, **maps))
    except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError, RecursionError, struct.error) as error:
        raise ValueError(f"not a message: {type(error).__name__}: {error}") from error


def _checked(message: AmqpMessage) -> AmqpMessage:
    # What other parts of a send would stumble over, perhaps after the service has taken the message.
    if message.body_type is not BodyType.VALUE and not isinstance(message.body, list):
        raise TypeError("the body is no list of sections")
    if message.body_type is BodyType.DATA and not all(isinstance(each, bytes | str) for each in message.body):
        raise TypeError("a section of the body is no bytes")
    if not all(isinstance(getattr(message, name), dict | None) for name in _MAPS):
        raise TypeError("properties or annotations are no map")
    return message


def _encode(value: Any) -> Any:
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, float):
        # JSON has no infinity, and the payload and sign of a NaN would be lost.
        return value if math.isfinite(value) else {"float": struct.pack(">d", value).hex()}
    if isinstance(value, int):
        return int(value)
    if isinstance(value, list):
        return [_encode(each) for each in value]
    for kind, (name, encode) in _ENCODERS.items():
        if isinstance(value, kind):
            return {name: encode(value)}
    raise TypeError(f"a value of type {type(value).__name__} cannot be kept: AMQP has no such type")


def _encode_map(values: Mapping[Any, Any]) -> list[Any]:
    return [[_encode(key), _encode(each)] for key, each in values.items()]


def _encode_bytes(value: bytes | bytearray) -> str:
    return b64encode(value).decode("ascii")


_ENCODERS: Final[Mapping[type[Any], tuple[str, Callable[[Any], Any]]]] = {
    bytes: ("bytes", _encode_bytes),
    bytearray: ("bytes", _encode_bytes),
    datetime: ("datetime", datetime.isoformat),
    Decimal: ("decimal", str),
    UUID: ("uuid", str),
    tuple: ("tuple", lambda values: [_encode(each) for each in values]),
    TypedValue: ("typed", _encode_map),
    Mapping: ("map", _encode_map),
}


def _decode_map(pairs: Any) -> dict[Any, Any]:
    return {_decode(key): _decode(each) for key, each in pairs}


def _decode(value: Any) -> Any:
    if isinstance(value, list):
        return list(map(_decode, value))
    if not isinstance(value, dict):
        return value
    [(kind, inner)] = value.items()
    return _DECODERS[kind](inner)


_DECODERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    # Unlike b64decode, it makes no copy of the text.
    "bytes": lambda text: a2b_base64(text, strict_mode=True),
    "float": lambda digits: struct.unpack(">d", bytes.fromhex(digits))[0],
    "datetime": datetime.fromisoformat,
    "decimal": Decimal,
    "uuid": UUID,
    "tuple": lambda values: tuple(map(_decode, values)),
    "typed": lambda pairs: TypedValue(_decode_map(pairs)),
    "map": _decode_map,
}


def _decode_each(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _decode(value) for name, value in values.items()}
