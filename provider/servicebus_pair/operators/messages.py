"""Messages as DAG authors write them: text, bytes, or a mapping of a body and properties."""

from __future__ import annotations

import math
import reprlib
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypedDict

import pendulum

from servicebus_pair.core.errors import ConfigurationError

if TYPE_CHECKING:
    from azure.servicebus import ServiceBusMessage

__all__ = ["MessageDefaults", "MessageFields", "MessageReader", "MessageSpec", "MessageValue"]


class MessageDefaults(TypedDict, total=False):
    """What all messages of a task can have in common."""

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
    """One message: ``body``, and whatever else it needs."""

    body: str | bytes
    message_id: str


MessageValue: TypeAlias = str | bytes | MessageFields | Mapping[str, Any]

_TEXTS: Final = (
    *("session_id", "subject", "content_type", "correlation_id"),
    *("partition_key", "reply_to", "reply_to_session_id", "to"),
)
_COMMON: Final = (*_TEXTS, "time_to_live", "scheduled_enqueue_time", "application_properties")
_ALLOWED: Final = ("body", "message_id", *_COMMON)
# The service's limits, in characters.
_LONGEST: Final = {"message_id": 128, "session_id": 128, "partition_key": 128, "reply_to_session_id": 128}
_LARGEST_INTEGER: Final = 2**63
# The SDK writes whole seconds, as milliseconds in 32 bits.
_SHORTEST_LIFE: Final = timedelta(seconds=1)
_LONGEST_LIFE: Final = timedelta(seconds=2**32 // 1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageSpec:
    """One message to send, checked. ``texts`` are those of its fields that are texts, by name."""

    body: str | bytes = field(repr=False)
    message_id: str
    texts: Mapping[str, str] = field(default_factory=dict)
    time_to_live: timedelta | None = None
    scheduled_enqueue_time: datetime | None = None
    application_properties: Mapping[str | bytes, Any] | None = field(default=None, repr=False)

    def build(self) -> ServiceBusMessage:
        """Return the SDK's message."""
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
    """Checks and reads messages that have some fields in common; it sends nothing.

    A message without an id gets one that depends only on ``seed`` and its place, so that a retried
    task sends the same ids again and duplicate detection can work.

    :param seed: what identifies the task instance.
    :param defaults: fields that a message has unless it has its own; of ``application_properties`` each name
        by itself. All but ``body`` and ``message_id``.
    :raises ConfigurationError: naming the field of ``defaults``, its value, and what is allowed.
    """

    def __init__(self, *, seed: str, defaults: object = None) -> None:
        self._seed = seed
        self._defaults = _common({} if defaults is None else defaults, "defaults", allowed=_COMMON)

    def read(self, value: object, *, where: str, place: int) -> MessageSpec:
        """Read one message.

        :param value: a text, bytes, or a mapping with ``body`` and any of ``message_id``, ``session_id``,
            ``subject``, ``content_type``, ``correlation_id``, ``partition_key``, ``reply_to``,
            ``reply_to_session_id``, ``to``, ``time_to_live`` (seconds), ``scheduled_enqueue_time`` (ISO 8601 with an
            offset, or UTC), ``application_properties``.
        :param where: what errors call it.
        :param place: its number among the messages of the task.
        :raises ConfigurationError: naming the field, its value and what is allowed; never the body.
        """
        given = {"body": value} if isinstance(value, str | bytes) else value
        if not isinstance(given, Mapping):
            raise ConfigurationError(f"{where} is {type(value).__name__}: it must be a text or a mapping")
        own = _common(given, where, allowed=_ALLOWED)
        body = given.get("body")
        if not isinstance(body, str | bytes):
            raise ConfigurationError(f"{where}: body is {type(body).__name__}: it must be a text")
        _check_characters(body, f"{where}: body")
        message_id = _text(given.get("message_id"), f"{where}: message_id", longest=_LONGEST["message_id"])
        together = own.over(self._defaults)
        _check_keys(together.texts, where)
        return MessageSpec(
            body=body,
            message_id=uuid.uuid5(uuid.NAMESPACE_OID, f"{self._seed}/{place}").hex
            if message_id is None
            else message_id,
            texts=together.texts,
            time_to_live=together.time_to_live,
            scheduled_enqueue_time=together.scheduled_enqueue_time,
            application_properties=together.application_properties,
        )

    def read_all(self, values: object) -> list[MessageSpec]:
        """Read a list of messages.

        :raises ConfigurationError: as :meth:`read`, naming the message by its index; or it is no list.
        """
        if isinstance(values, str | bytes) or not isinstance(values, Sequence):
            raise ConfigurationError(f"messages is {type(values).__name__}: it must be a list of texts or mappings")
        return [self.read(value, where=f"messages[{index}]", place=index) for index, value in enumerate(values)]


@dataclass(frozen=True, slots=True)
class _Common:
    texts: Mapping[str, str]
    time_to_live: timedelta | None
    scheduled_enqueue_time: datetime | None
    application_properties: Mapping[str | bytes, Any] | None

    def over(self, defaults: _Common) -> _Common:
        """What of ``defaults`` is not said here is taken from there."""
        life, time, properties = self.time_to_live, self.scheduled_enqueue_time, self.application_properties
        if defaults.application_properties is not None:
            properties = {**defaults.application_properties, **({} if properties is None else properties)}
        return _Common(
            texts={**defaults.texts, **self.texts},
            time_to_live=defaults.time_to_live if life is None else life,
            scheduled_enqueue_time=defaults.scheduled_enqueue_time if time is None else time,
            application_properties=properties,
        )


def _common(value: object, where: str, *, allowed: Sequence[str]) -> _Common:
    if not isinstance(value, Mapping):
        raise ConfigurationError(f"{where} is {type(value).__name__}: it must be a mapping of fields")
    unknown = sorted(str(name) for name in value if name not in allowed)
    if unknown:
        raise ConfigurationError(f"{where}: field {unknown[0]!r} is unknown: allowed are {', '.join(allowed)}")
    texts = {
        name: _text(value[name], f"{where}: {name}", longest=_LONGEST.get(name)) for name in _TEXTS if name in value
    }
    return _Common(
        texts={name: text for name, text in texts.items() if text is not None},
        time_to_live=_seconds(value.get("time_to_live"), f"{where}: time_to_live"),
        scheduled_enqueue_time=_time(value.get("scheduled_enqueue_time"), f"{where}: scheduled_enqueue_time"),
        application_properties=_properties(value.get("application_properties"), f"{where}: application_properties"),
    )


def _check_keys(texts: Mapping[str, str], where: str) -> None:
    key, session = texts.get("partition_key"), texts.get("session_id")
    if key is not None and session is not None and key != session:
        raise ConfigurationError(
            f"{where}: partition_key is {reprlib.repr(key)} and session_id is {reprlib.repr(session)}: "
            "they must be the same where both are given"
        )


def _text(value: object, where: str, *, longest: int | None = None) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or not value:
        raise ConfigurationError(f"{where} is {reprlib.repr(value)}: it must be a text of at least one character")
    if longest is not None and len(value) > longest:
        raise ConfigurationError(f"{where} has {len(value)} characters: allowed are {longest}")
    _check_characters(value, where)
    return value


def _check_characters(value: object, where: str) -> None:
    """Refuse halves of characters, which JSON can write and UTF-8, in which texts travel, cannot."""
    if not isinstance(value, str):
        return
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ConfigurationError(
            f"{where} has half a character at position {error.start}: allowed is what UTF-8 can write"
        ) from None


def _seconds(value: object, where: str) -> timedelta | None:
    if value is None:
        return None
    life = value if isinstance(value, timedelta) else _timedelta(value)
    if life is None or not _SHORTEST_LIFE <= life <= _LONGEST_LIFE:
        raise ConfigurationError(
            f"{where} is {reprlib.repr(value)}: it must be a number of seconds from {_SHORTEST_LIFE.total_seconds():g} "
            f"to {_LONGEST_LIFE.total_seconds():.0f}"
        )
    return life


def _timedelta(value: object) -> timedelta | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    try:
        return timedelta(seconds=value)
    except OverflowError:
        return None


def _time(value: object, where: str) -> datetime | None:
    if value is None:
        return None
    try:
        time = value if isinstance(value, datetime) else pendulum.parse(str(value), strict=True)
        if isinstance(time, datetime):
            return pendulum.instance(time).in_timezone("UTC")
    except (ValueError, OverflowError):
        pass  # told below, as what is no date and time at all
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
            _check_characters(text, f"{where}: {reprlib.repr(name)}")
        if isinstance(each, int) and not -_LARGEST_INTEGER <= each < _LARGEST_INTEGER:
            raise ConfigurationError(f"{where}: {name!r} is {reprlib.repr(each)}: a whole number must fit 64 bits")
    return value
