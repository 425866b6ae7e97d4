"""The properties of encoded messages, read and changed for the rules of subscriptions.

What a change does not concern keeps its bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from struct import Struct
from struct import error as MalformedNumberError  # noqa: N812 - the name says what it is here
from typing import Final
from uuid import UUID

from servicebus_emulator.amqp.encoding import (
    NULL,
    compound_items,
    decode_integer,
    decode_text,
    encode_compound,
    encode_string,
    encode_symbol,
    encoded_items,
    value_end,
)
from servicebus_emulator.amqp.sections import Code, sections
from servicebus_emulator.amqp.values import Described, Symbol, Timestamp, Value, encode
from servicebus_emulator.engine.message import Content
from servicebus_emulator.engine.sql.errors import SqlEvaluationError
from servicebus_emulator.engine.sql.properties import MessageProperties
from servicebus_emulator.engine.sql.values import SqlValue
from servicebus_emulator.engine.timespan import TimeSpan

__all__ = ["AmqpProperties", "decode_property", "property_value"]

_LIST, _MAP, _TIMESTAMP, _DESCRIBED = 0xC0, 0xC1, 0x83, 0x00
_TICKS_PER_MILLISECOND: Final = 10_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_YEAR_ONE: Final = datetime(1, 1, 1, tzinfo=UTC)
_PROPERTIES: Final = b"\x00\x53\x73"
_APPLICATION_PROPERTIES: Final = b"\x00\x53\x74"
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


class AmqpProperties:
    """Reads and changes messages as AMQP 1.0 part 3 encodes them."""

    def read(self, content: Content) -> MessageProperties:
        """Return the properties of a message.

        :raises SqlEvaluationError: when its sections cannot be read.
        """
        try:
            fields, pairs, _ = _split(content.sections)
            system = {name: _text(fields[at]) for name, at in _FIELDS.items() if len(fields) > at}
            system["partitionkey"] = _partition_key(content.annotations)
            user = {name: decode_property(value) for name, value in _named(pairs)}
        except (ValueError, IndexError, MalformedNumberError) as error:
            raise SqlEvaluationError(f"the properties of a message cannot be read: {error}") from error
        return MessageProperties(system={**system, **_times(content)}, user=user)

    def revise(self, content: Content, *, before: MessageProperties, after: MessageProperties) -> Content:
        """Return a message in which what differs between `before` and `after` was changed, and nothing else.

        :raises SqlEvaluationError: when a new value has no form in AMQP.
        """
        fields, pairs, rest = _split(content.sections)
        try:
            _revise_fields(fields, before=before.system, after=after.system)
            body = _revised_pairs(pairs, before=before.user, after=after.user)
        except (ValueError, MalformedNumberError) as error:
            raise SqlEvaluationError(f"a property cannot be set: {error}") from error
        written = _PROPERTIES + encode_compound(_LIST, body=b"".join(fields), count=len(fields))
        if len(body) > 0:
            written += _APPLICATION_PROPERTIES + encode_compound(_MAP, body=b"".join(body), count=len(body))
        session_id = after.system.get("sessionid")
        return content._replace(sections=written + rest, session_id=session_id if isinstance(session_id, str) else None)


def decode_property(data: bytes) -> SqlValue:
    """Return the value of an encoded application property; None for null and for types that rules cannot use.

    :raises MalformedValueError: when the bytes are no value.
    """
    if data[0] == _DESCRIBED:
        return _decode_described(data)
    decoder = _DECODERS.get(data[0])
    if decoder is not None:
        return decoder(data)
    text = decode_text(data)
    return decode_integer(data) if text is None else text


def property_value(value: SqlValue) -> Value:
    """Return a value as an application property: a point in time as a timestamp, a duration as .NET's time span."""
    match value:
        case datetime():
            return Timestamp((value - _EPOCH) // timedelta(milliseconds=1))
        case TimeSpan():
            return Described(_TIME_SPAN, value.ticks)
        case _:
            return value


def _split(data: bytes) -> tuple[list[bytes], list[bytes], bytes]:
    """Return the fields of the properties, the items of the application properties, and what follows them."""
    fields: list[bytes] = []
    items: list[bytes] = []
    rest = len(data)
    for code, start, value, end in sections(data):
        if code == Code.PROPERTIES:
            fields = compound_items(data[value:end])
        elif code == Code.APPLICATION_PROPERTIES:
            items = compound_items(data[value:end])
        else:
            rest = start
            break
    return fields, items, data[rest:]


def _named(items: list[bytes]) -> Iterator[tuple[str, bytes]]:
    # strict=False: a key without a value, which no client sends, is no property.
    for key, value in zip(items[::2], items[1::2], strict=False):
        name = decode_text(key)
        if name is not None:
            yield name, value


def _revise_fields(fields: list[bytes], *, before: Mapping[str, SqlValue], after: Mapping[str, SqlValue]) -> None:
    for name, at in _FIELDS.items():
        value = after.get(name)
        if value != before.get(name):
            fields += [NULL] * (at + 1 - len(fields))
            fields[at] = _field(name, value)


def _revised_pairs(items: list[bytes], *, before: Mapping[str, SqlValue], after: Mapping[str, SqlValue]) -> list[bytes]:
    revised: list[bytes] = []
    for key, value in zip(items[::2], items[1::2], strict=False):
        name = decode_text(key)
        if name is None or name not in before:
            revised += (key, value)
        elif name in after:
            revised += (key, value if _same(before[name], after[name]) else encode(property_value(after[name])))
    for name in after.keys() - before.keys():
        revised += (encode_string(name), encode(property_value(after[name])))
    return revised


def _same(one: SqlValue, other: SqlValue) -> bool:
    return type(one) is type(other) and one == other


def _field(name: str, value: SqlValue) -> bytes:
    if not isinstance(value, str):
        return NULL
    return encode_symbol(value) if name in _SYMBOLS and value.isascii() else encode_string(value)


def _text(data: bytes) -> SqlValue:
    """Return a message id or the like as text: AMQP lets it be a number or a UUID, too."""
    value = decode_property(data)
    return None if value is None else value.hex() if isinstance(value, bytes) else str(value)


def _times(content: Content) -> Mapping[str, SqlValue]:
    times: dict[str, SqlValue] = {}
    if content.time_to_live is not None:
        times["timetolive"] = TimeSpan(content.time_to_live * _TICKS_PER_MILLISECOND)
    if content.scheduled_for is not None:
        times["scheduledenqueuetimeutc"] = _moment(content.scheduled_for)
    return times


def _partition_key(annotations: bytes) -> SqlValue:
    items = encoded_items(annotations, 0)
    return next((decode_text(value) for name, value in _named(items) if name == _PARTITION_KEY), None)


def _moment(milliseconds: int | None) -> SqlValue:
    try:
        return None if milliseconds is None else _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        # A time beyond the calendar, which .NET cannot hold either.
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
            return None if ticks is None else _moment_of_ticks(ticks)
        case "com.microsoft:uri":
            return decode_text(value)
        case _:
            return None


def _moment_of_ticks(ticks: int) -> SqlValue:
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
    _TIMESTAMP: lambda data: _moment(decode_integer(data)),
    _UUID: lambda data: UUID(bytes=data[1:]),
    0xA0: lambda data: data[2:],
    0xB0: lambda data: data[5:],
}
