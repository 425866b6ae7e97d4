"""Message <-> backlog message (SPEC section 4, the table of travelling properties).

A divertible message is copied; what would act on the backlog queue (session, time to live,
schedule) travels as application property and is put back by :func:`unwrap`. Names are those of the
original .NET feature, so that either side can drain what the other left. Pure: nothing is sent here.

What :func:`unwrap` gives back is, sent with the Python SDK, byte for byte what the message itself
would have been, apart from times that the SDK derives from the time to live while sending. Limits,
all of them the SDK's:

- It never sends a value body that is false (0, "", False, empty), neither directly nor through the
  backlog. Left behind by another sender, such a body is sent all the same, except False: that, and
  a whole value body of a type that the SDK cannot send (a 64-bit integer), is undeliverable.
- It does not tell what type a property of another sender had. Then bytes that are UTF-8 become a
  string, and an integer the narrowest type that holds it.
- It cannot receive a decimal. Ours travel as text; another sender's never get as far as here.
- It cannot send a time to live of more than 2**32 - 1 ms (49.7 days), so a longer one is cut to
  that, and .NET's ``TimeSpan.MaxValue`` means none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageBodyType

from servicebus_pair.core.amqp_types import bare, describe, describe_bare, portable, restore, text, texts, typed
from servicebus_pair.core.durations import format_duration, parse_duration
from servicebus_pair.core.errors import InvalidMessageError, UndeliverableError

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
        "x-opt-partition-id",
        "x-opt-deadletter-source",
        "x-opt-message-state",
        "x-opt-lock-token",
        _SCHEDULED_ANNOTATION,
    }
)
# The same in header and properties; the service ignores an expiry time that it is sent.
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
_NOTHING_TO_NOTE: Final = (str, type(None))
_TICKS_PER_MILLISECOND: Final = 10_000
_MILLISECOND: Final = timedelta(milliseconds=1)
_MAX_TIME_SPAN_MILLISECONDS: Final = 922_337_203_685_477
_MAX_HEADER_MILLISECONDS: Final = 2**32 - 1


@dataclass(frozen=True, slots=True)
class Unwrapped:
    """A backlog message, translated back."""

    entity: str
    message: AmqpAnnotatedMessage


@dataclass(frozen=True, slots=True)
class _Notes:
    """The types that travel beside a message, by section and name."""

    properties: Mapping[str, Any]
    annotations: Mapping[str, Any]
    footer: Mapping[str, Any]
    ids: Mapping[str, Any]
    body: Any

    def to_json(self) -> str | None:
        """Answer the notes as text, or ``None`` when there are none."""
        given = {name: value for name in self.__slots__ if (value := getattr(self, name))}
        return json.dumps(given, separators=(",", ":")) if given else None


def wrap(message: AmqpAnnotatedMessage, *, entity: str) -> AmqpAnnotatedMessage:
    """Return the copy of ``message`` that goes to a backlog queue.

    The message itself is not changed. Body, ids, partition key, other annotations and application
    properties of every AMQP type are kept.

    :param message: the message as it would be sent to ``entity``.
    :param entity: path of the queue or topic on the primary.
    :raises InvalidMessageError: a session id that is no text, or a negative time to live.
    """
    own = texts(message.application_properties)
    sent = texts(message.annotations)
    scheduled = sent.get(_SCHEDULED_ANNOTATION)
    annotations = _not_the_brokers(sent)
    copied, body_note = _copied(message)
    properties, header = message.properties, message.header
    notes = _noted(message, own, annotations, body_note)
    carried: dict[str | bytes, Any] = {
        (OWN + name if _needs_own(name) else name): portable(value) for name, value in own.items()
    }
    carried[PATH] = entity
    if properties is not None and (properties.group_id is not None or properties.absolute_expiry_time is not None):
        if properties.group_id is not None:
            carried[SESSION_ID] = _session_to_carry(properties.group_id)
        properties = copy(properties)
        properties.group_id = properties.absolute_expiry_time = None
    if header is not None and header.time_to_live is not None:
        carried[TIME_TO_LIVE] = _time_to_live_to_carry(header.time_to_live)
        header = copy(header)
        header.time_to_live = None
    if header is not None and header.durable is header.priority is header.time_to_live is header.delivery_count is None:
        # A message made by the SDK has a header in which nothing stands: without it, encoding takes less.
        header = header if header.first_acquirer is not None else None
    if scheduled is not None:
        carried[SCHEDULED] = typed("TIMESTAMP", _value_of(scheduled))
    if notes is not None:
        carried[TYPES] = notes
    # What is unchanged is shared with the message: neither is written to.
    copied.properties, copied.header = properties, header  # type: ignore[assignment]  # both may be None
    copied.application_properties = carried
    copied.annotations = {name: portable(value) for name, value in annotations.items()} or None
    copied.delivery_annotations = None
    copied.footer = portable(message.footer) if message.footer else message.footer
    return copied


def _noted(
    message: AmqpAnnotatedMessage, own: Mapping[str, Any], annotations: Mapping[str, Any], body_note: Any
) -> str | None:
    """What is to be noted of types, as text; of most messages there is nothing."""
    properties, ids = message.properties, {}
    if properties is not None:
        ids = {
            name: value for name in _ID_PROPERTIES if type(value := getattr(properties, name)) not in _NOTHING_TO_NOTE
        }
    if not (own or annotations or ids or body_note or message.footer):
        return None
    return _Notes(
        # The SDK sends bytes as string here, and only here.
        properties=_describe_each({name: value for name, value in own.items() if not isinstance(value, bytes)}),
        annotations=_describe_each(annotations),
        footer=_describe_each(texts(message.footer)),
        ids=_describe_each(ids),
        body=body_note,
    ).to_json()


def unwrap(message: AmqpAnnotatedMessage) -> Unwrapped:
    """Translate a received backlog message back into the message its sender meant.

    Reads our own form and that of the .NET original, which stored the time to live as ticks of
    100 ns (``com.microsoft:timespan``) and the scheduled time as an AMQP timestamp.

    :raises UndeliverableError: no or non-text path, an alias that cannot be read, or a body that
        the SDK cannot send.
    """
    carried = texts(message.application_properties)
    entity = _path(carried)
    notes = _notes(carried)
    try:
        restored = _restored(message, carried, notes)
    except ValueError as error:
        raise UndeliverableError("Unreadable", f"the message for {entity} cannot be restored: {error}") from error
    return Unwrapped(entity=entity, message=restored)


def _restored(message: AmqpAnnotatedMessage, carried: Mapping[str, Any], notes: _Notes) -> AmqpAnnotatedMessage:
    properties = _text_properties(dict(message.properties.items()) if message.properties else {}, notes)
    header = dict(message.header.items()) if message.header is not None else {}
    header.update(dict.fromkeys(_BROKER_HEADER))
    annotations = _restore_each(_not_the_brokers(texts(message.annotations)), notes.annotations)
    own = {name.removeprefix(OWN): value for name, value in carried.items() if name not in _ALIASES}
    if SESSION_ID in carried:
        properties["group_id"] = _text_alias(carried, SESSION_ID)
    if TIME_TO_LIVE in carried:
        header["time_to_live"] = _time_to_live(carried[TIME_TO_LIVE])
    if SCHEDULED in carried:
        annotations[_SCHEDULED_ANNOTATION] = typed("TIMESTAMP", _scheduled(carried[SCHEDULED]))
    return AmqpAnnotatedMessage(
        header=header,
        properties=properties,
        application_properties=_restore_each(own, notes.properties) or None,
        annotations=annotations or None,
        footer=_restore_each(texts(message.footer), notes.footer) or None,
        **_body_restored(message, notes.body),
    )


def _not_the_brokers(annotations: Mapping[str, Any]) -> dict[str, Any]:
    """What a sender may say; a received message that is sent on still bears what the broker said."""
    return {name: value for name, value in annotations.items() if name not in _BROKER_ANNOTATIONS}


def _describe_each(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: note for name, value in values.items() if (note := describe(value)) is not None}


def _restore_each(values: Mapping[str, Any], notes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: restore(value, notes.get(name)) for name, value in values.items()}


def _needs_own(name: str) -> bool:
    return name in _ALIASES or name.startswith(OWN)


def _copied(message: AmqpAnnotatedMessage) -> tuple[AmqpAnnotatedMessage, Any]:
    """A message with the same body, and the note of the body's types."""
    body = message.body
    match message.body_type:
        case AmqpMessageBodyType.VALUE if not body:
            # The SDK will leave it out: nothing to note, and it must not travel as a text that is not false.
            return AmqpAnnotatedMessage(value_body=body), None
        case AmqpMessageBodyType.VALUE:
            return AmqpAnnotatedMessage(value_body=_value_to_carry(body)), describe_bare(body)
        case AmqpMessageBodyType.SEQUENCE:
            rows = [list(row) for row in body]
            return AmqpAnnotatedMessage(sequence_body=portable(rows)), describe(rows)
    # What ``copy`` does for such an object, without asking how: it is done for every message of an outage.
    twin = object.__new__(type(message))
    vars(twin).update(vars(message))
    return twin, None


def _value_to_carry(body: Any) -> Any:
    if isinstance(body, dict):
        # Here, and only here, the SDK takes a typed value for a map.
        return {portable(key): portable(item) for key, item in body.items()}
    return portable(body)


def _body_restored(message: AmqpAnnotatedMessage, note: Any) -> dict[str, Any]:
    body = message.body
    match message.body_type:
        case AmqpMessageBodyType.VALUE:
            return {"value_body": bare(restore(body, note))}
        case AmqpMessageBodyType.SEQUENCE:
            return {"sequence_body": restore([list(row) for row in body], note)}
    return {"data_body": list(body)}


def _session_to_carry(session: Any) -> str:
    try:
        return text(session)
    except UnicodeDecodeError as error:
        raise InvalidMessageError(f"session id is {session!r}: it must be text") from error


def _time_to_live_to_carry(milliseconds: int) -> str:
    try:
        return format_duration(milliseconds * _MILLISECOND)
    except (ValueError, OverflowError) as error:
        raise InvalidMessageError(f"time to live is {milliseconds} ms: it must be 0 ms or more") from error


def _text_properties(properties: dict[str, Any], notes: _Notes) -> dict[str, Any]:
    binary = {name for name, note in notes.ids.items() if note == "BINARY"}
    for name in _TEXT_PROPERTIES + _ID_PROPERTIES:
        value = properties.get(name)
        if isinstance(value, bytes) and name not in binary:
            properties[name] = _text_or_same(value)
    properties[_EXPIRY] = None
    return properties


def _text_or_same(value: bytes) -> str | bytes:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


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


def _time_to_live(value: Any) -> int | None:
    """Milliseconds as the header takes them; ``None`` for the longest TimeSpan, which means no limit."""
    try:
        if isinstance(value, int) and not isinstance(value, bool):
            milliseconds = value // _TICKS_PER_MILLISECOND
        else:
            milliseconds = parse_duration(text(value)) // _MILLISECOND
    except ValueError as error:
        raise UndeliverableError("BadAlias", f"application property {TIME_TO_LIVE} is {value!r}: {error}") from error
    if milliseconds < 0:
        raise UndeliverableError(
            "BadAlias", f"application property {TIME_TO_LIVE} is {value!r}: it must not be negative"
        )
    if milliseconds >= _MAX_TIME_SPAN_MILLISECONDS:
        return None
    return min(milliseconds, _MAX_HEADER_MILLISECONDS)


def _scheduled(value: Any) -> int:
    # A described integer is no timestamp: .NET's DateTimeOffset counts ticks from the year 1.
    if type(value) is int:
        return value
    raise UndeliverableError("BadAlias", f"application property {SCHEDULED} is {value!r}: it must be a timestamp")


def _notes(carried: Mapping[str, Any]) -> _Notes:
    try:
        notes = json.loads(_text_alias(carried, TYPES)) if TYPES in carried else {}
        sections = {name: dict(notes.get(name, {})) for name in ("properties", "annotations", "footer", "ids")}
        return _Notes(**sections, body=notes.get("body"))
    except (ValueError, AttributeError, TypeError) as error:
        raise UndeliverableError("BadAlias", f"application property {TYPES} cannot be read: {error}") from error
