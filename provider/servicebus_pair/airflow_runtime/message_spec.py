"""Parses messages as DAG authors write them: text, bytes, or a mapping of a body and properties."""

from __future__ import annotations

import json
import math
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias, TypedDict

import pendulum

from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.core.model import scrub
from servicebus_pair.core.protocol import AmqpMessage, amqp_typed, new_message


class MessageDefaults(TypedDict, total=False):
    """Fields that a task can set for all of its messages."""

    session_id: str
    subject: str
    content_type: str
    correlation_id: str
    partition_key: str
    reply_to: str
    reply_to_session_id: str
    to: str
    time_to_live: float | timedelta
    scheduled_enqueue_time: str | datetime
    application_properties: Mapping[str, Any]


class MessageFields(MessageDefaults, total=False):
    """One message: ``body`` and any other fields."""

    body: str | bytes | Mapping[str, Any] | list[Any]
    message_id: str


MessageValue: TypeAlias = str | bytes | MessageFields | Mapping[str, Any]

_PROPERTIES: Final = "application_properties"
_PROPERTY_TYPES: Final = (str, bool, int, float, bytes, uuid.UUID, datetime)
_JSON: Final = "application/json"
_DEFAULT_FIELDS: Final = tuple(MessageDefaults.__annotations__)
_MESSAGE_FIELDS: Final = ("body", "message_id", *_DEFAULT_FIELDS)
# The service's limits, in characters.
_MAX_LENGTHS: Final = {"message_id": 128, "session_id": 128, "partition_key": 128, "reply_to_session_id": 128}
_INTEGER_LIMIT: Final = 2**63
# With their names the 65,536 elements that a map of a received message may have; Azure takes 64 KB of them.
_MAX_PROPERTIES: Final = 32_768
_MAX_SHOWN: Final = 30
# AMQP counts milliseconds in 32 bits.
_MIN_TIME_TO_LIVE: Final = timedelta(seconds=1)
_MAX_TIME_TO_LIVE: Final = timedelta(seconds=2**32 // 1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageSpec:
    """One validated message; ``fields`` are the others that are set, by their names in ``MessageFields``."""

    body: str | bytes = field(repr=False)
    message_id: str
    fields: Mapping[str, Any] = field(repr=False)

    def build(self) -> AmqpMessage:
        """Build the message to send."""
        return new_message(self.body, message_id=self.message_id, **self.fields)


class MessageReader:
    """Validates the messages of one task and applies its defaults.

    A message without an id gets one that depends only on ``seed`` and the message's position, so a retried task sends
    the same ids again and duplicate detection works.

    :param seed: identifies the task instance.
    :param defaults: values for fields that a message does not set, except ``body`` and ``message_id``;
        ``application_properties`` are merged by name.
    :raises ConfigurationError: naming the field of ``defaults``, its value, and what is allowed.
    """

    def __init__(self, *, seed: str, defaults: object = None) -> None:
        self._seed = seed
        self._defaults = _parse_fields({} if defaults is None else defaults, "defaults", allowed=_DEFAULT_FIELDS)

    def read(self, value: object, *, where: str, position: int) -> MessageSpec:
        """Validate one message.

        :param value: text, bytes, or a mapping as in ``MessageFields``, with ``body``. A body that is a mapping or a
            list is sent as JSON, with the content type ``application/json`` unless another is given.
        :param where: what error messages call it.
        :param position: its position among the messages of the task.
        :raises ConfigurationError: naming the field, its value and what is allowed; never the body.
        """
        fields = {"body": value} if isinstance(value, str | bytes) else value
        if not isinstance(fields, Mapping):
            raise ConfigurationError(f"{where} is {type(value).__name__}: it must be a text or a mapping")
        own = _parse_fields(fields, where, allowed=_MESSAGE_FIELDS)
        body = fields.get("body")
        merged = {**self._defaults, **own}
        if isinstance(body, Mapping | list | tuple):
            body = _json(body, f"{where}: body")
            merged.setdefault("content_type", _JSON)
        if not isinstance(body, str | bytes):
            raise ConfigurationError(
                f"{where}: body is {type(body).__name__}: it must be a text, bytes, or a mapping or list that JSON can "
                "hold"
            )
        _check_unicode(body, f"{where}: body")
        if _PROPERTIES in merged:
            merged[_PROPERTIES] = {**self._defaults.get(_PROPERTIES, {}), **own.get(_PROPERTIES, {})}
        _check_partition_key(merged, where)
        message_id = merged.pop("message_id", None)
        if message_id is None:
            message_id = uuid.uuid5(uuid.NAMESPACE_OID, f"{self._seed}/{position}").hex
        return MessageSpec(body=body, message_id=message_id, fields=merged)

    def read_all(self, values: object) -> list[MessageSpec]:
        """Validate a list of messages.

        :raises ConfigurationError: as :meth:`read`, naming the message by its index, or the value is not a list.
        """
        if isinstance(values, str | bytes) or not isinstance(values, Sequence):
            raise ConfigurationError(f"messages is {type(values).__name__}: it must be a list of texts or mappings")
        return [self.read(value, where=f"messages[{index}]", position=index) for index, value in enumerate(values)]


def _parse_fields(value: object, where: str, *, allowed: Sequence[str]) -> dict[str, Any]:
    """Return the parsed fields except the body, without those that are ``None``."""
    if not isinstance(value, Mapping):
        raise ConfigurationError(f"{where} is {type(value).__name__}: it must be a mapping of fields")
    unknown = sorted(str(name) for name in value if name not in allowed)
    if unknown:
        raise ConfigurationError(f"{where}: field {unknown[0]!r} is unknown: allowed are {', '.join(allowed)}")
    given = {name: each for name, each in value.items() if each is not None and name != "body"}
    return {name: _parse_field(name, each, f"{where}: {name}") for name, each in given.items()}


def _parse_field(name: str, value: object, where: str) -> Any:
    match name:
        case "time_to_live":
            return _time_to_live(value, where)
        case "scheduled_enqueue_time":
            return _parse_time(value, where)
        case "application_properties":
            return _properties(value, where)
    return _text(value, where, max_length=_MAX_LENGTHS.get(name))


def _check_partition_key(fields: Mapping[str, Any], where: str) -> None:
    key, session = fields.get("partition_key"), fields.get("session_id")
    if key is not None and session is not None and key != session:
        raise ConfigurationError(
            f"{where}: partition_key is {_shown(key)} and session_id is {_shown(session)}: "
            "they must be equal when both are set"
        )


def _text(value: object, where: str, *, max_length: int | None) -> str:
    if not isinstance(value, str) or not value:
        raise ConfigurationError(f"{where} is {_shown(value)}: it must be a text of at least one character")
    if max_length is not None and len(value) > max_length:
        raise ConfigurationError(f"{where} has {len(value)} characters: at most {max_length} are allowed")
    _check_unicode(value, where)
    return value


def _shown(value: object) -> str:
    """Return the beginning of a value; masked first, because a part of a secret has no shape."""
    text = scrub(repr(value))
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


def _check_unicode(value: object, where: str) -> None:
    """Reject unpaired surrogates, which JSON can escape but AMQP's UTF-8 cannot encode."""
    if not isinstance(value, str):
        return
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ConfigurationError(
            f"{where} has an unpaired surrogate at position {error.start}: the text must be valid Unicode"
        ) from None


def _time_to_live(value: object, where: str) -> timedelta:
    parsed = value if isinstance(value, timedelta) else _timedelta(value)
    if parsed is None or not _MIN_TIME_TO_LIVE <= parsed <= _MAX_TIME_TO_LIVE:
        raise ConfigurationError(
            f"{where} is {_shown(value)}: it must be a number of seconds from "
            f"{_MIN_TIME_TO_LIVE.total_seconds():g} to {_MAX_TIME_TO_LIVE.total_seconds():.0f}"
        )
    return parsed


def _timedelta(value: object) -> timedelta | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return timedelta(seconds=value) if math.isfinite(value) else None
    except OverflowError:
        return None


def _parse_time(value: object, where: str) -> datetime:
    try:
        time = value if isinstance(value, datetime) else pendulum.parse(str(value), strict=True)
        if isinstance(time, datetime):
            return pendulum.instance(time).in_timezone("UTC")
    except (ValueError, OverflowError):
        pass  # raised below, as for values of another type
    raise ConfigurationError(f"{where} is {_shown(value)}: it must be an ISO 8601 date and time")


def _properties(value: object, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigurationError(f"{where} is {type(value).__name__}: it must be a mapping of names to values")
    if len(value) > _MAX_PROPERTIES:
        raise ConfigurationError(f"{where} has {len(value)} entries: at most {_MAX_PROPERTIES} are allowed")
    for name, each in value.items():
        if not isinstance(name, str) or not isinstance(each, _PROPERTY_TYPES):
            raise ConfigurationError(
                f"{where}: {name!r} is {type(each).__name__}: allowed are texts, numbers, booleans, bytes, UUIDs and "
                "times"
            )
        for text in (name, each):
            if isinstance(text, str) and not text.isascii():
                _check_unicode(text, f"{where}: {_shown(name)}")
        if isinstance(each, int) and not -_INTEGER_LIMIT <= each < _INTEGER_LIMIT:
            raise ConfigurationError(f"{where}: {name!r} is {_shown(each)}: a whole number must fit 64 bits")
    return {name: _property(each, where) for name, each in value.items()}


def _property(value: object, where: str) -> object:
    if isinstance(value, datetime):
        return _parse_time(value, where)
    # The SDK writes bytes as text.
    return amqp_typed("BINARY", value) if isinstance(value, bytes) else value


def _json(body: object, where: str) -> str:
    try:
        return json.dumps(body, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        # "from None", because the original exception may hold the body.
        raise ConfigurationError(f"{where} cannot be written as JSON, {type(error).__name__}: {error}") from None
