"""Parses messages as DAG authors write them: text, bytes, or a mapping of a body and properties."""

from __future__ import annotations

import math
import reprlib
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypedDict, TypeVar

import pendulum

from servicebus_pair.core.errors import ConfigurationError

if TYPE_CHECKING:
    from azure.servicebus import ServiceBusMessage

__all__ = ["MessageDefaults", "MessageFields", "MessageReader", "MessageSpec", "MessageValue"]


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

    body: str | bytes
    message_id: str


ValueT = TypeVar("ValueT")
MessageValue: TypeAlias = str | bytes | MessageFields | Mapping[str, Any]

_TEXT_FIELDS: Final = (
    *("session_id", "subject", "content_type", "correlation_id"),
    *("partition_key", "reply_to", "reply_to_session_id", "to"),
)
_DEFAULT_FIELDS: Final = (*_TEXT_FIELDS, "time_to_live", "scheduled_enqueue_time", "application_properties")
_MESSAGE_FIELDS: Final = ("body", "message_id", *_DEFAULT_FIELDS)
# The service's limits, in characters.
_MAX_LENGTHS: Final = {"message_id": 128, "session_id": 128, "partition_key": 128, "reply_to_session_id": 128}
_INTEGER_LIMIT: Final = 2**63
# The SDK truncates to whole seconds and encodes milliseconds in 32 bits.
_MIN_TIME_TO_LIVE: Final = timedelta(seconds=1)
_MAX_TIME_TO_LIVE: Final = timedelta(seconds=2**32 // 1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageSpec:
    """One validated message; ``texts`` are its text fields by name."""

    body: str | bytes = field(repr=False)
    message_id: str
    texts: Mapping[str, str] = field(default_factory=dict)
    time_to_live: timedelta | None = None
    scheduled_enqueue_time: datetime | None = None
    application_properties: Mapping[str | bytes, Any] | None = field(default=None, repr=False)

    def build(self) -> ServiceBusMessage:
        """Build the SDK's message."""
        from azure.servicebus import ServiceBusMessage

        properties = self.application_properties
        return ServiceBusMessage(
            self.body,
            message_id=self.message_id,
            time_to_live=self.time_to_live,
            scheduled_enqueue_time_utc=self.scheduled_enqueue_time,
            application_properties=None if properties is None else dict(properties),
            **self.texts,
        )


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

        :param value: text, bytes, or a mapping with ``body`` and any of ``message_id``, ``session_id``,
            ``subject``, ``content_type``, ``correlation_id``, ``partition_key``, ``reply_to``,
            ``reply_to_session_id``, ``to``, ``time_to_live`` (seconds), ``scheduled_enqueue_time`` (ISO 8601 with an
            offset, or UTC), ``application_properties``.
        :param where: what error messages call it.
        :param position: its position among the messages of the task.
        :raises ConfigurationError: naming the field, its value and what is allowed; never the body.
        """
        fields = {"body": value} if isinstance(value, str | bytes) else value
        if not isinstance(fields, Mapping):
            raise ConfigurationError(f"{where} is {type(value).__name__}: it must be a text or a mapping")
        own = _parse_fields(fields, where, allowed=_MESSAGE_FIELDS)
        body = fields.get("body")
        if not isinstance(body, str | bytes):
            raise ConfigurationError(f"{where}: body is {type(body).__name__}: it must be a text")
        _check_unicode(body, f"{where}: body")
        message_id = _text(fields.get("message_id"), f"{where}: message_id", max_length=_MAX_LENGTHS["message_id"])
        merged = own.with_defaults(self._defaults)
        _check_partition_key(merged.texts, where)
        return MessageSpec(
            body=body,
            message_id=uuid.uuid5(uuid.NAMESPACE_OID, f"{self._seed}/{position}").hex
            if message_id is None
            else message_id,
            texts=merged.texts,
            time_to_live=merged.time_to_live,
            scheduled_enqueue_time=merged.scheduled_enqueue_time,
            application_properties=merged.application_properties,
        )

    def read_all(self, values: object) -> list[MessageSpec]:
        """Validate a list of messages.

        :raises ConfigurationError: as :meth:`read`, naming the message by its index, or the value is not a list.
        """
        if isinstance(values, str | bytes) or not isinstance(values, Sequence):
            raise ConfigurationError(f"messages is {type(values).__name__}: it must be a list of texts or mappings")
        return [self.read(value, where=f"messages[{index}]", position=index) for index, value in enumerate(values)]


@dataclass(frozen=True, slots=True)
class _ParsedFields:
    texts: Mapping[str, str]
    time_to_live: timedelta | None
    scheduled_enqueue_time: datetime | None
    application_properties: Mapping[str | bytes, Any] | None

    def with_defaults(self, defaults: _ParsedFields) -> _ParsedFields:
        properties = self.application_properties
        if defaults.application_properties is not None:
            properties = {**defaults.application_properties, **({} if properties is None else properties)}
        return _ParsedFields(
            texts={**defaults.texts, **self.texts},
            time_to_live=_first_set(self.time_to_live, defaults.time_to_live),
            scheduled_enqueue_time=_first_set(self.scheduled_enqueue_time, defaults.scheduled_enqueue_time),
            application_properties=properties,
        )


def _first_set(value: ValueT | None, default: ValueT | None) -> ValueT | None:
    return default if value is None else value


def _parse_fields(value: object, where: str, *, allowed: Sequence[str]) -> _ParsedFields:
    if not isinstance(value, Mapping):
        raise ConfigurationError(f"{where} is {type(value).__name__}: it must be a mapping of fields")
    unknown = sorted(str(name) for name in value if name not in allowed)
    if unknown:
        raise ConfigurationError(f"{where}: field {unknown[0]!r} is unknown: allowed are {', '.join(allowed)}")
    texts = {
        name: _text(value[name], f"{where}: {name}", max_length=_MAX_LENGTHS.get(name))
        for name in _TEXT_FIELDS
        if name in value
    }
    return _ParsedFields(
        texts={name: text for name, text in texts.items() if text is not None},
        time_to_live=_time_to_live(value.get("time_to_live"), f"{where}: time_to_live"),
        scheduled_enqueue_time=_parse_time(value.get("scheduled_enqueue_time"), f"{where}: scheduled_enqueue_time"),
        application_properties=_properties(value.get("application_properties"), f"{where}: application_properties"),
    )


def _check_partition_key(texts: Mapping[str, str], where: str) -> None:
    key, session = texts.get("partition_key"), texts.get("session_id")
    if key is not None and session is not None and key != session:
        raise ConfigurationError(
            f"{where}: partition_key is {reprlib.repr(key)} and session_id is {reprlib.repr(session)}: "
            "they must be equal when both are set"
        )


def _text(value: object, where: str, *, max_length: int | None = None) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or not value:
        raise ConfigurationError(f"{where} is {reprlib.repr(value)}: it must be a text of at least one character")
    if max_length is not None and len(value) > max_length:
        raise ConfigurationError(f"{where} has {len(value)} characters: at most {max_length} are allowed")
    _check_unicode(value, where)
    return value


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


def _time_to_live(value: object, where: str) -> timedelta | None:
    if value is None:
        return None
    parsed = value if isinstance(value, timedelta) else _timedelta(value)
    if parsed is None or not _MIN_TIME_TO_LIVE <= parsed <= _MAX_TIME_TO_LIVE:
        raise ConfigurationError(
            f"{where} is {reprlib.repr(value)}: it must be a number of seconds from "
            f"{_MIN_TIME_TO_LIVE.total_seconds():g} to {_MAX_TIME_TO_LIVE.total_seconds():.0f}"
        )
    return parsed


def _timedelta(value: object) -> timedelta | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    try:
        return timedelta(seconds=value)
    except OverflowError:
        return None


def _parse_time(value: object, where: str) -> datetime | None:
    if value is None:
        return None
    try:
        time = value if isinstance(value, datetime) else pendulum.parse(str(value), strict=True)
        if isinstance(time, datetime):
            return pendulum.instance(time).in_timezone("UTC")
    except (ValueError, OverflowError):
        pass  # raised below, as for values of another type
    raise ConfigurationError(f"{where} is {reprlib.repr(value)}: it must be an ISO 8601 date and time")


def _properties(value: object, where: str) -> Mapping[str | bytes, Any] | None:
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise ConfigurationError(f"{where} is {type(value).__name__}: it must be a mapping of names to values")
    for name, each in value.items():
        if not isinstance(name, str) or not isinstance(each, str | bool | int | float):
            raise ConfigurationError(
                f"{where}: {name!r} is {type(each).__name__}: allowed are texts, numbers, booleans"
            )
        for text in (name, each):
            _check_unicode(text, f"{where}: {reprlib.repr(name)}")
        if isinstance(each, int) and not -_INTEGER_LIMIT <= each < _INTEGER_LIMIT:
            raise ConfigurationError(f"{where}: {name!r} is {reprlib.repr(each)}: a whole number must fit 64 bits")
    return value
