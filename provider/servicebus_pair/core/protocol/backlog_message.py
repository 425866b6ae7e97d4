"""Convert a message to its backlog copy and back (SPEC section 4). Pure.

The copy carries as application properties what would otherwise take effect on the backlog queue: session, time to live
and schedule. Their names are those of the original .NET feature, so that either implementation can drain the backlog of
the other.

Sent with the Python SDK, the result of :func:`unwrap` equals the original message byte for byte, except for times that
the SDK derives from the time to live while sending. The SDK imposes these limits:

- It does not send a value body that is false (0, "", False, empty), directly or through the backlog. Such a body of
  another sender is sent, except ``False``; that, and a value body of a type that the SDK cannot send (a 64-bit
  integer), is undeliverable.
- It does not report the AMQP type of received properties. Without our type notes, bytes that are UTF-8 become a string,
  and an integer the narrowest type that holds it.
- It cannot receive decimals. Ours are carried as text; another sender's cannot be received at all.
- It cannot send a time to live above 2**32 - 1 ms (49.7 days). A longer one is reduced to that; .NET's
  ``TimeSpan.MaxValue`` means none.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any, Final

from servicebus_pair.core.model.errors import UndeliverableError
from servicebus_pair.core.protocol.amqp_message import (
    SCHEDULED_TIME,
    AmqpMessage,
    BodyType,
    Header,
    Properties,
)
from servicebus_pair.core.protocol.backlog_properties import (
    ESCAPE_PREFIX,
    PATH,
    RESERVED,
    SCHEDULED,
    SESSION_ID,
    TIME_TO_LIVE,
    TYPE_NOTES,
    TypeNotes,
    carried_session_id,
    carried_text,
    carried_time_to_live,
    entity_path,
    read_type_notes,
    scheduled_time,
    time_to_live,
)
from servicebus_pair.core.protocol.typed_values import (
    amqp_typed,
    as_value_body,
    decimals_as_text,
    restore_type,
    text_keys,
    type_note,
    value_body_note,
)

# Set by the broker on every message that it delivers; a sender must not repeat them.
BROKER_ANNOTATIONS: Final = frozenset(
    {
        "x-opt-sequence-number",
        "x-opt-enqueued-time",
        "x-opt-locked-until",
        "x-opt-enqueue-sequence-number",
        "x-opt-partition-id",
        "x-opt-deadletter-source",
        "x-opt-message-state",
        "x-opt-lock-token",
        SCHEDULED_TIME,
    }
)
# Header fields and the property that the broker sets as well; the service ignores an expiry time from a sender.
_BROKER_HEADER: Final = ("delivery_count", "first_acquirer", "time_to_live")
_EXPIRY: Final = "absolute_expiry_time"
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
_PLAIN_ID_TYPES: Final = (str, type(None))


@dataclass(frozen=True, slots=True)
class RestoredMessage:
    """Destination entity and original message of a backlog message."""

    entity: str
    message: AmqpMessage


def wrap(message: AmqpMessage, *, entity: str) -> AmqpMessage:
    """Return the backlog copy of ``message``, which is not changed.

    Body, ids, partition key, other annotations and application properties of every AMQP type are kept.

    :param message: the message as it would be sent to ``entity``.
    :param entity: path of the queue or topic on the primary.
    :raises InvalidMessageError: the session id is not text, or the time to live is negative.
    """
    own = text_keys(message.application_properties)
    sent = text_keys(message.annotations)
    scheduled = sent.get(SCHEDULED_TIME)
    annotations = _without_broker_annotations(sent)
    body, body_note = _carried_body(message)
    properties, header = message.properties, message.header
    notes = _describe_types(message, own, annotations, body_note)
    carried: dict[str, Any] = {
        (ESCAPE_PREFIX + name if _needs_escape(name) else name): decimals_as_text(value) for name, value in own.items()
    }
    carried[PATH] = entity
    if properties is not None and (properties.group_id is not None or properties.absolute_expiry_time is not None):
        if properties.group_id is not None:
            carried[SESSION_ID] = carried_session_id(properties.group_id)
        properties = copy(properties)
        properties.group_id = properties.absolute_expiry_time = None
    if header is not None and header.time_to_live is not None:
        carried[TIME_TO_LIVE] = carried_time_to_live(header.time_to_live)
        header = copy(header)
        header.time_to_live = None
    if header is not None and header.durable is header.priority is header.time_to_live is header.delivery_count is None:
        # Messages created with the SDK have an empty header; dropping it makes encoding cheaper.
        header = header if header.first_acquirer is not None else None
    if scheduled is not None:
        carried[SCHEDULED] = amqp_typed("TIMESTAMP", _untyped(scheduled))
    if notes is not None:
        carried[TYPE_NOTES] = notes
    # Unchanged sections are shared with the message; neither is modified.
    return AmqpMessage(
        body,
        BodyType(message.body_type),
        header,
        properties,
        application_properties=carried,
        annotations={name: decimals_as_text(value) for name, value in annotations.items()} or None,
        footer=decimals_as_text(message.footer) if message.footer else message.footer,
    )


def _describe_types(
    message: AmqpMessage, own: Mapping[str, Any], annotations: Mapping[str, Any], body_note: Any
) -> str | None:
    """Return the type notes as text; most messages need none."""
    properties, ids = message.properties, {}
    if properties is not None:
        ids = {
            name: value for name in _ID_PROPERTIES if type(value := getattr(properties, name)) not in _PLAIN_ID_TYPES
        }
    if not (own or annotations or ids or body_note or message.footer):
        return None
    return TypeNotes(
        # In application properties, and only there, the SDK sends bytes as string.
        properties=_describe_each({name: value for name, value in own.items() if not isinstance(value, bytes)}),
        annotations=_describe_each(annotations),
        footer=_describe_each(text_keys(message.footer)),
        ids=_describe_each(ids),
        body=body_note,
    ).to_json()


def unwrap(message: AmqpMessage) -> RestoredMessage:
    """Restore the original message from a received backlog message.

    Reads our format and that of the .NET original, which stored the time to live as ticks of 100 ns
    (``com.microsoft:timespan``) and the scheduled time as an AMQP timestamp.

    :raises UndeliverableError: the path is missing or not text, a carried property cannot be read, or the SDK cannot
        send the body. Nothing else is raised, whatever the message holds.
    """
    try:
        carried = text_keys(message.application_properties)
        entity = entity_path(carried)
        return RestoredMessage(entity=entity, message=_restore_message(message, carried, read_type_notes(carried)))
    except UndeliverableError:
        raise
    except Exception as error:
        raise unreadable(error) from error


def unreadable(error: Exception) -> UndeliverableError:
    """Return the error of a message whose content raised ``error`` while it was read, restored or encoded."""
    return UndeliverableError("Unreadable", f"the message cannot be restored: {type(error).__name__}: {error}")


def destination_of(message: AmqpMessage) -> str | None:
    """Return the entity that a backlog message is to be delivered to; ``None`` if it can never be delivered."""
    try:
        return unwrap(message).entity
    except UndeliverableError:
        return None


def _restore_message(message: AmqpMessage, carried: Mapping[str, Any], notes: TypeNotes) -> AmqpMessage:
    properties = _decode_properties(_fields(message.properties, Properties), notes)
    header = {**_fields(message.header, Header), **dict.fromkeys(_BROKER_HEADER)}
    annotations = _restore_each(_without_broker_annotations(text_keys(message.annotations)), notes.annotations)
    own = {name.removeprefix(ESCAPE_PREFIX): value for name, value in carried.items() if name not in RESERVED}
    if SESSION_ID in carried:
        properties["group_id"] = carried_text(carried, SESSION_ID)
    if TIME_TO_LIVE in carried:
        header["time_to_live"] = time_to_live(carried[TIME_TO_LIVE])
    if SCHEDULED in carried:
        annotations[SCHEDULED_TIME] = amqp_typed("TIMESTAMP", scheduled_time(carried[SCHEDULED]))
    return AmqpMessage(
        _restore_body(message, notes.body),
        BodyType(message.body_type),
        Header(**header),
        Properties(**properties),
        application_properties=_restore_each(own, notes.properties) or None,
        annotations=annotations or None,
        footer=_restore_each(text_keys(message.footer), notes.footer) or None,
    )


def _fields(section: Header | Properties | None, kind: type[Header | Properties]) -> dict[str, Any]:
    return {} if section is None else {name: getattr(section, name) for name in kind.__slots__}


def _without_broker_annotations(annotations: Mapping[str, Any]) -> dict[str, Any]:
    """Return the annotations that a sender may set; a forwarded message still has those of the broker."""
    return {name: value for name, value in annotations.items() if name not in BROKER_ANNOTATIONS}


def _describe_each(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: note for name, value in values.items() if (note := type_note(value)) is not None}


def _restore_each(values: Mapping[str, Any], notes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: restore_type(value, notes.get(name)) for name, value in values.items()}


def _needs_escape(name: str) -> bool:
    return name in RESERVED or name.startswith(ESCAPE_PREFIX)


def _carried_body(message: AmqpMessage) -> tuple[Any, Any]:
    """Return the body of the copy, and its type note."""
    body = message.body
    match message.body_type:
        case BodyType.VALUE if not body:
            # The SDK omits a false body, so it needs no note; converted to text, it might no longer be false.
            return body, None
        case BodyType.VALUE:
            return _carried_value_body(body), value_body_note(body)
        case BodyType.SEQUENCE:
            rows = [list(row) for row in body]
            return decimals_as_text(rows), type_note(rows)
    return list(body), None


def _carried_value_body(body: Any) -> Any:
    if isinstance(body, dict):
        # In a value body, and only there, the SDK mistakes a typed value for a map.
        return {decimals_as_text(key): decimals_as_text(item) for key, item in body.items()}
    return decimals_as_text(body)


def _restore_body(message: AmqpMessage, note: Any) -> Any:
    body = message.body
    match message.body_type:
        case BodyType.VALUE:
            return as_value_body(restore_type(body, note))
        case BodyType.SEQUENCE:
            return restore_type([list(row) for row in body], note)
    return list(body)


def _decode_properties(properties: dict[str, Any], notes: TypeNotes) -> dict[str, Any]:
    binary = {name for name, note in notes.ids.items() if note == "BINARY"}
    for name in _TEXT_PROPERTIES + _ID_PROPERTIES:
        value = properties.get(name)
        if isinstance(value, bytes) and name not in binary:
            properties[name] = _decode_if_utf8(value)
    properties[_EXPIRY] = None
    return properties


def _decode_if_utf8(value: bytes) -> str | bytes:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


def _untyped(value: Any) -> Any:
    return value["VALUE"] if isinstance(value, Mapping) else value
