"""Message <-> backlog message (SPEC section 4, the table of travelling properties).

A divertible message is copied; what would act on the backlog queue (session, time to live,
schedule) travels as application property and is put back by :func:`unwrap`. Names are those of the
original .NET feature, so that either side can drain what the other left. Pure: nothing is sent here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageBodyType

from servicebus_pair.core.amqp_types import describe, restore, text, texts, typed
from servicebus_pair.core.durations import format_duration, parse_duration
from servicebus_pair.core.errors import UndeliverableError

__all__ = ["Unwrapped", "unwrap", "wrap"]

PATH: Final = "x-ms-path"
SESSION_ID: Final = "x-ms-sessionid"
TIME_TO_LIVE: Final = "x-ms-timetolive"
SCHEDULED: Final = "x-ms-scheduledenqueuetimeutc"
# Ours alone: AMQP types that the SDK would forget, and aliases that the message had as its own.
TYPES: Final = "x-servicebus-pair-types"
OWN: Final = "x-servicebus-pair-own:"
_ALIASES: Final = frozenset({PATH, SESSION_ID, TIME_TO_LIVE, SCHEDULED, TYPES})

_SCHEDULED_ANNOTATION: Final = "x-opt-scheduled-enqueue-time"
# Set by the broker on every message it delivers; sending them back would be wrong.
_BROKER_ANNOTATIONS: Final = frozenset(
    {
        "x-opt-sequence-number",
        "x-opt-enqueued-time",
        "x-opt-locked-until",
        "x-opt-enqueue-sequence-number",
        "x-opt-deadletter-source",
        "x-opt-message-state",
        "x-opt-lock-token",
        _SCHEDULED_ANNOTATION,
    }
)
_TEXT_PROPERTIES: Final = (
    "to",
    "subject",
    "reply_to",
    "content_type",
    "content_encoding",
    "group_id",
    "reply_to_group_id",
)
_ID_PROPERTIES: Final = ("message_id", "correlation_id")
_TICKS_PER_MILLISECOND: Final = 10_000
_MILLISECOND: Final = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Unwrapped:
    """A backlog message, translated back."""

    entity: str
    message: AmqpAnnotatedMessage


def wrap(message: AmqpAnnotatedMessage, *, entity: str) -> AmqpAnnotatedMessage:
    """Return the copy of ``message`` that goes to a backlog queue.

    The message itself is not changed. Body, ids, partition key, other annotations and application
    properties of every AMQP type are kept.

    :param message: the message as it would be sent to ``entity``.
    :param entity: path of the queue or topic on the primary.
    """
    own = texts(message.application_properties)
    notes = {name: note for name, value in own.items() if (note := describe(value)) is not None}
    carried = {(OWN + name if name in _ALIASES else name): value for name, value in own.items()}
    carried[PATH] = entity
    properties = dict(message.properties.items()) if message.properties is not None else {}
    if properties.get("group_id") is not None:
        carried[SESSION_ID] = _as_text(properties["group_id"])
        properties["group_id"] = None
    header = dict(message.header.items()) if message.header is not None else {}
    if header.get("time_to_live"):
        carried[TIME_TO_LIVE] = format_duration(header["time_to_live"] * _MILLISECOND)
        header["time_to_live"] = None
        # The SDK derives both from the time to live when it sends.
        properties["absolute_expiry_time"] = properties["creation_time"] = None
    annotations = texts(message.annotations)
    scheduled = annotations.pop(_SCHEDULED_ANNOTATION, None)
    if scheduled is not None:
        carried[SCHEDULED] = typed("TIMESTAMP", _value_of(scheduled))
    body, body_note = _body_to_carry(message)
    if notes or body_note is not None:
        carried[TYPES] = json.dumps({"properties": notes, "body": body_note}, separators=(",", ":"))
    return AmqpAnnotatedMessage(
        header=header or None,
        properties=properties or None,
        application_properties=carried,
        annotations=annotations or None,
        footer=message.footer,
        **body,
    )


def unwrap(message: AmqpAnnotatedMessage) -> Unwrapped:
    """Translate a received backlog message back into the message its sender meant.

    Reads our own form and that of the .NET original, which stored the time to live as ticks of
    100 ns (``com.microsoft:timespan``) and the scheduled time as an AMQP timestamp.

    :raises UndeliverableError: no or non-text path, or an alias that cannot be read.
    """
    carried = texts(message.application_properties)
    entity = _path(carried)
    notes = _notes(carried)
    properties = _text_properties(dict(message.properties.items()) if message.properties else {})
    header = dict(message.header.items()) if message.header is not None else {}
    header["delivery_count"] = header["first_acquirer"] = None
    annotations = {
        name: restore(value, None)
        for name, value in texts(message.annotations).items()
        if name not in _BROKER_ANNOTATIONS
    }
    if SESSION_ID in carried:
        properties["group_id"] = _text_alias(carried, SESSION_ID)
    if TIME_TO_LIVE in carried:
        header["time_to_live"] = _time_to_live(carried[TIME_TO_LIVE]) // _MILLISECOND
    if SCHEDULED in carried:
        annotations[_SCHEDULED_ANNOTATION] = typed("TIMESTAMP", _scheduled(carried[SCHEDULED]))
    own = {
        name.removeprefix(OWN): restore(value, notes["properties"].get(name.removeprefix(OWN)))
        for name, value in carried.items()
        if name not in _ALIASES
    }
    restored = AmqpAnnotatedMessage(
        header=header or None,
        properties=properties or None,
        application_properties=own or None,
        annotations=annotations or None,
        footer=message.footer,
        **_body_restored(message, notes["body"]),
    )
    return Unwrapped(entity=entity, message=restored)


def _body_to_carry(message: AmqpAnnotatedMessage) -> tuple[dict[str, Any], Any]:
    body = message.body
    match message.body_type:
        case AmqpMessageBodyType.VALUE:
            return {"value_body": body}, describe(body)
        case AmqpMessageBodyType.SEQUENCE:
            rows = [list(row) for row in body]
            return {"sequence_body": rows}, describe(rows)
    return {"data_body": list(body)}, None


def _body_restored(message: AmqpAnnotatedMessage, note: Any) -> dict[str, Any]:
    body = message.body
    match message.body_type:
        case AmqpMessageBodyType.VALUE:
            return {"value_body": restore(body, note)}
        case AmqpMessageBodyType.SEQUENCE:
            return {"sequence_body": restore([list(row) for row in body], note)}
    return {"data_body": list(body)}


def _text_properties(properties: dict[str, Any]) -> dict[str, Any]:
    for name in _TEXT_PROPERTIES + _ID_PROPERTIES:
        if isinstance(properties.get(name), bytes):
            properties[name] = _as_text(properties[name])
    return properties


def _as_text(value: Any) -> str:
    return text(value)


def _value_of(value: Any) -> Any:
    return value["VALUE"] if isinstance(value, Mapping) else value


def _path(carried: Mapping[str, Any]) -> str:
    if PATH not in carried:
        raise UndeliverableError("NoPath", f"the message has no application property {PATH}")
    path = _text_alias(carried, PATH)
    if not path:
        raise UndeliverableError("BadPath", f"application property {PATH} is empty: it must name an entity")
    return path


def _text_alias(carried: Mapping[str, Any], name: str) -> str:
    value = carried[name]
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            pass
    raise UndeliverableError("BadAlias", f"application property {name} is {type(value).__name__}: it must be text")


def _time_to_live(value: Any) -> timedelta:
    if isinstance(value, int):
        return (value // _TICKS_PER_MILLISECOND) * _MILLISECOND
    try:
        return parse_duration(value.decode() if isinstance(value, bytes) else value)
    except (ValueError, AttributeError, TypeError) as error:
        raise UndeliverableError("BadAlias", f"application property {TIME_TO_LIVE} is {value!r}: {error}") from error


def _scheduled(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value)
    raise UndeliverableError("BadAlias", f"application property {SCHEDULED} is {value!r}: it must be a timestamp")


def _notes(carried: Mapping[str, Any]) -> dict[str, Any]:
    if TYPES not in carried:
        return {"properties": {}, "body": None}
    try:
        notes = json.loads(_text_alias(carried, TYPES))
        return {"properties": dict(notes["properties"]), "body": notes["body"]}
    except (ValueError, KeyError, TypeError) as error:
        raise UndeliverableError("BadAlias", f"application property {TYPES} cannot be read: {error}") from error
