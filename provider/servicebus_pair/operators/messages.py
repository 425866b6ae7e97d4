"""Messages as DAG authors write them: text, or a mapping of a body and properties."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import pendulum

from servicebus_pair.core.errors import ConfigurationError

if TYPE_CHECKING:
    from azure.servicebus import ServiceBusMessage

__all__ = ["MessageSpec", "read_messages"]

_TEXTS: Final = ("message_id", "session_id", "subject", "content_type", "correlation_id")
_ALLOWED: Final = ("body", *_TEXTS, "time_to_live", "scheduled_enqueue_time", "application_properties")


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageSpec:
    """One message to send, checked."""

    body: str = field(repr=False)
    message_id: str
    session_id: str | None = None
    subject: str | None = None
    content_type: str | None = None
    correlation_id: str | None = None
    time_to_live: timedelta | None = None
    scheduled_enqueue_time: datetime | None = None
    application_properties: Mapping[str | bytes, Any] | None = field(default=None, repr=False)

    def build(self) -> ServiceBusMessage:
        """Return the SDK's message."""
        from azure.servicebus import ServiceBusMessage

        return ServiceBusMessage(
            self.body,
            message_id=self.message_id,
            session_id=self.session_id,
            subject=self.subject,
            content_type=self.content_type,
            correlation_id=self.correlation_id,
            time_to_live=self.time_to_live,
            scheduled_enqueue_time_utc=self.scheduled_enqueue_time,
            application_properties=None if self.application_properties is None else dict(self.application_properties),
        )


def read_messages(values: object, *, seed: str) -> list[MessageSpec]:
    """Check and read a list of messages; nothing has been sent when this raises.

    A message without an id gets one that depends only on ``seed`` and its place in the list, so that
    a retried task sends the same ids again and duplicate detection can work.

    :param values: texts, or mappings with ``body`` and any of ``message_id``, ``session_id``,
        ``subject``, ``content_type``, ``correlation_id``, ``time_to_live`` (seconds),
        ``scheduled_enqueue_time`` (ISO 8601 with an offset, or UTC), ``application_properties``.
    :param seed: what identifies the task instance.
    :raises ConfigurationError: naming the message by its index, the field, and what is allowed.
    """
    if isinstance(values, str | bytes) or not isinstance(values, Sequence):
        raise ConfigurationError(f"messages is {type(values).__name__}: it must be a list of texts or mappings")
    return [_read(value, f"messages[{index}]", f"{seed}/{index}") for index, value in enumerate(values)]


def _read(value: object, where: str, seed: str) -> MessageSpec:
    given = {"body": value} if isinstance(value, str) else value
    if not isinstance(given, Mapping):
        raise ConfigurationError(f"{where} is {type(value).__name__}: it must be a text or a mapping")
    unknown = sorted(str(name) for name in given if name not in _ALLOWED)
    if unknown:
        raise ConfigurationError(f"{where}: field {unknown[0]!r} is unknown: allowed are {', '.join(_ALLOWED)}")
    body = given.get("body")
    if not isinstance(body, str):
        raise ConfigurationError(f"{where}: body is {type(body).__name__}: it must be a text")
    texts = {name: _text(given.get(name), f"{where}: {name}") for name in _TEXTS}
    message_id = texts.pop("message_id")
    return MessageSpec(
        body=body,
        message_id=uuid.uuid5(uuid.NAMESPACE_OID, seed).hex if message_id is None else message_id,
        time_to_live=_seconds(given.get("time_to_live"), f"{where}: time_to_live"),
        scheduled_enqueue_time=_time(given.get("scheduled_enqueue_time"), f"{where}: scheduled_enqueue_time"),
        application_properties=_properties(given.get("application_properties"), f"{where}: application_properties"),
        **texts,
    )


def _text(value: object, where: str) -> str | None:
    if value is None or (isinstance(value, str) and value):
        return value
    raise ConfigurationError(f"{where} is {value!r}: it must be a text of at least one character")


def _seconds(value: object, where: str) -> timedelta | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        raise ConfigurationError(f"{where} is {value!r}: it must be a number of seconds above 0")
    return timedelta(seconds=value)


def _time(value: object, where: str) -> datetime | None:
    if value is None:
        return None
    try:
        time = value if isinstance(value, datetime) else pendulum.parse(str(value), strict=True)
    except ValueError as error:
        raise ConfigurationError(f"{where} is {value!r}: it must be an ISO 8601 date and time") from error
    if not isinstance(time, datetime):
        raise ConfigurationError(f"{where} is {value!r}: it must be an ISO 8601 date and time")
    return pendulum.instance(time).in_timezone("UTC")


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
    return value
