"""Decodes the properties of messages for subscription rules, and rewrites those that rule actions change.

Unchanged properties keep their bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from struct import Struct
from struct import error as MalformedNumberError  # noqa: N812 - `error` alone would be ambiguous here
from typing import Final
from uuid import UUID

from servicebus_emulator.amqp.codec.raw_encoding import (
    NULL,
    compound_items,
    decode_integer,
    decode_text,
    encode_list,
    encode_map,
    encode_string,
    encode_symbol,
    encoded_items,
    value_end,
)
from servicebus_emulator.amqp.codec.sections import SectionCode, encode_section, sections
from servicebus_emulator.amqp.codec.value_codec import Described, Symbol, Timestamp, Value, encode
from servicebus_emulator.engine.model.message import Content
from servicebus_emulator.engine.model.timespan import TimeSpan
from servicebus_emulator.engine.sql.errors import SqlEvaluationError
from servicebus_emulator.engine.sql.properties import MessageProperties
from servicebus_emulator.engine.sql.values import SqlValue

_TIMESTAMP, _DESCRIBED = 0x83, 0x00
_TICKS_PER_MILLISECOND: Final = 10_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_YEAR_ONE: Final = datetime(1, 1, 1, tzinfo=UTC)
_FIELDS: Final[Mapping[str, int]] = {
    "messageid": 0,
    "to": 2,
    "label": 3,
    "replyto": 4,
    "correlationid": 5,
    "contenttype": 6,
    "sessionid": 10,
    "replytosessionid": 12,
}
_SYMBOLS: Final = frozenset({"contenttype"})
_PARTITION_KEY: Final = "x-opt-partition-key"
_DOUBLE: Final = 0x82
_TIME_SPAN: Final = Symbol("com.microsoft:timespan")
_UUID: Final = 0x98

_double = Struct(">d")
_float = Struct(">f")


class AmqpPropertyCodec:
    """Reads and changes the properties of encoded messages (AMQP 1.0 part 3)."""

    def read(self, content: Content) -> MessageProperties:
        """Return the properties of a message.

        :raises SqlEvaluationError: when its sections cannot be decoded.
        """
        try:
            fields, pairs, _ = _split(content.sections)
            system = {name: _text(fields[at]) for name, at in _FIELDS.items() if len(fields) > at}
            system["partitionkey"] = _partition_key(content.annotations)
            user = {name: decode_property(value) for name, value in _by_name(pairs)}
        except (ValueError, IndexError, MalformedNumberError) as error:
            raise SqlEvaluationError(f"the properties of a message cannot be decoded: {error}") from error
        return MessageProperties(system={**system, **_times(content)}, user=user)

    def rewrite(self, content: Content, *, before: MessageProperties, after: MessageProperties) -> Content:
        """Return a message with the differences between `before` and `after` applied.

        :raises SqlEvaluationError: when a new value has no AMQP encoding.
        """
        fields, pairs, rest = _split(content.sections)
        try:
            _update_fields(fields, before=before.system, after=after.system)
            body = _updated_items(pairs, before=before.user, after=after.user)
        except (ValueError, MalformedNumberError) as error:
            raise SqlEvaluationError(f"a property cannot be set: {error}") from error
        written = encode_section(SectionCode.PROPERTIES, encode_list(fields))
        if len(body) > 0:
            written += encode_section(SectionCode.APPLICATION_PROPERTIES, encode_map(body))
        session_id = after.system.get("sessionid")
        return content._replace(sections=written + rest, session_id=session_id if isinstance(session_id, str) else None)


def decode_property(data: bytes) -> SqlValue:
    """Decode an application property; None for null and for types that rules do not support.

    :raises MalformedValueError: when the bytes are not an AMQP value.
    """
    if data[0] == _DESCRIBED:
        return _decode_described(data)
    decoder = _DECODERS.get(data[0])
    if decoder is not None:
        return decoder(data)
    text = decode_text(data)
    return decode_integer(data) if text is None else text


def property_value(value: SqlValue) -> Value:
    """Return the AMQP value of a property: a timestamp for a datetime, .NET's described type for a time span."""
    match value:
        case datetime():
            return Timestamp((value - _EPOCH) // timedelta(milliseconds=1))
        case TimeSpan():
            return Described(_TIME_SPAN, value.ticks)
        case _:
            return value


def _split(data: bytes) -> tuple[list[bytes], list[bytes], bytes]:
    """Return the fields of the properties, the items of the application properties, and the sections after them."""
    fields: list[bytes] = []
    items: list[bytes] = []
    rest = len(data)
    for code, start, value, end in sections(data):
        if code == SectionCode.PROPERTIES:
            fields = compound_items(data[value:end])
        elif code == SectionCode.APPLICATION_PROPERTIES:
            items = compound_items(data[value:end])
        else:
            rest = start
            break
    return fields, items, data[rest:]


def _by_name(items: list[bytes]) -> Iterator[tuple[str, bytes]]:
    # strict=False: ignore a key without a value, which no client sends.
    for key, value in zip(items[::2], items[1::2], strict=False):
        name = decode_text(key)
        if name is not None:
            yield name, value


def _update_fields(fields: list[bytes], *, before: Mapping[str, SqlValue], after: Mapping[str, SqlValue]) -> None:
    for name, at in _FIELDS.items():
        value = after.get(name)
        if value != before.get(name):
            fields += [NULL] * (at + 1 - len(fields))
            fields[at] = _field(name, value)


def _updated_items(items: list[bytes], *, before: Mapping[str, SqlValue], after: Mapping[str, SqlValue]) -> list[bytes]:
    updated: list[bytes] = []
    for key, value in zip(items[::2], items[1::2], strict=False):
        name = decode_text(key)
        if name is None or name not in before:
            updated += (key, value)
        elif name in after:
            unchanged = type(before[name]) is type(after[name]) and before[name] == after[name]
            updated += (key, value if unchanged else encode(property_value(after[name])))
    for name in after.keys() - before.keys():
        updated += (encode_string(name), encode(property_value(after[name])))
    return updated


def _field(name: str, value: SqlValue) -> bytes:
    if not isinstance(value, str):
        return NULL
    return encode_symbol(value) if name in _SYMBOLS and value.isascii() else encode_string(value)


def _text(data: bytes) -> SqlValue:
    """Decode a message id or similar as text; AMQP also permits numbers, UUIDs and binary."""
    value = decode_property(data)
    return None if value is None else value.hex() if isinstance(value, bytes) else str(value)


def _times(content: Content) -> Mapping[str, SqlValue]:
    times: dict[str, SqlValue] = {}
    if content.time_to_live is not None:
        times["timetolive"] = TimeSpan(content.time_to_live * _TICKS_PER_MILLISECOND)
    if content.scheduled_for is not None:
        times["scheduledenqueuetimeutc"] = _datetime(content.scheduled_for)
    return times


def _partition_key(annotations: bytes) -> SqlValue:
    items = encoded_items(annotations, 0)
    return next((decode_text(value) for name, value in _by_name(items) if name == _PARTITION_KEY), None)


def _datetime(milliseconds: int | None) -> SqlValue:
    try:
        return None if milliseconds is None else _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        # Beyond the year 9999, which .NET cannot represent either.
        return None


def _decode_described(data: bytes) -> SqlValue:
    start = value_end(data, 1)
    value = data[start:]
    match decode_text(data[1:start]):
        case "com.microsoft:timespan":
            ticks = decode_integer(value)
            return None if ticks is None else TimeSpan(ticks)
        case "com.microsoft:datetime-offset":
            ticks = decode_integer(value)
            return None if ticks is None else _datetime_of_ticks(ticks)
        case "com.microsoft:uri":
            return decode_text(value)
        case _:
            return None


def _datetime_of_ticks(ticks: int) -> SqlValue:
    try:
        return _YEAR_ONE + timedelta(microseconds=ticks // 10)
    except OverflowError:
        return None


_DECODERS: Final[Mapping[int, Callable[[bytes], SqlValue]]] = {
    0x41: lambda _: True,
    0x42: lambda _: False,
    0x56: lambda data: data[1] != 0,
    0x72: lambda data: float(_float.unpack(data[1:])[0]),
    0x73: lambda data: chr(int.from_bytes(data[1:], "big")),
    _DOUBLE: lambda data: float(_double.unpack(data[1:])[0]),
    _TIMESTAMP: lambda data: _datetime(decode_integer(data)),
    _UUID: lambda data: UUID(bytes=data[1:]),
    0xA0: lambda data: data[2:],
    0xB0: lambda data: data[5:],
}
