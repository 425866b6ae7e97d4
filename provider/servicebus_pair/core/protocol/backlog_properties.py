"""The application properties that a backlog message carries beside those of its original. Pure.

They hold what would otherwise take effect on the backlog queue. Their names are those of the original .NET feature, so
that either implementation can drain the backlog of the other.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from servicebus_pair.core.model.checks import CONTROL_CHARACTERS
from servicebus_pair.core.model.errors import InvalidMessageError, UndeliverableError
from servicebus_pair.core.protocol.amqp_message import MAX_TIME_TO_LIVE, TIMESTAMPS
from servicebus_pair.core.protocol.iso_duration import format_duration, parse_duration
from servicebus_pair.core.protocol.typed_values import to_text

PATH: Final = "x-ms-path"
SESSION_ID: Final = "x-ms-sessionid"
TIME_TO_LIVE: Final = "x-ms-timetolive"
SCHEDULED: Final = "x-ms-scheduledenqueuetimeutc"
# Not part of the original feature: type notes, and the prefix of application properties that clash with these names.
TYPE_NOTES: Final = "x-servicebus-pair-types"
ESCAPE_PREFIX: Final = "x-servicebus-pair-own:"
RESERVED: Final = frozenset({PATH, SESSION_ID, TIME_TO_LIVE, SCHEDULED, TYPE_NOTES})
# Control characters, what an entity's name cannot contain, and segments such as $management or $DeadLetterQueue. Each
# begins with a letter or digit: mappings with keys such as __type, by entity, would be taken for objects of a class.
_NOT_AN_ENTITY: Final = re.compile(rf"{CONTROL_CHARACTERS.pattern}|[?#@\\*]|(^|/)(\$|__)")
_MAX_PATH_CHARACTERS: Final = 260
_TICKS_PER_MILLISECOND: Final = 10_000
_MILLISECOND: Final = timedelta(milliseconds=1)
MAX_TIME_SPAN_MILLISECONDS: Final = 922_337_203_685_477


@dataclass(frozen=True, slots=True)
class TypeNotes:
    """Notes of the AMQP types that the SDK would lose, by section and name."""

    properties: Mapping[str, Any]
    annotations: Mapping[str, Any]
    footer: Mapping[str, Any]
    ids: Mapping[str, Any]
    body: Any

    def to_json(self) -> str | None:
        """Return the notes as JSON, or ``None`` when there are none."""
        given = {name: value for name in self.__slots__ if (value := getattr(self, name))}
        return json.dumps(given, separators=(",", ":")) if given else None


def carried_session_id(session: Any) -> str:
    """Return a session id to be carried. :raises InvalidMessageError: it is not text."""
    try:
        return to_text(session)
    except UnicodeDecodeError as error:
        raise InvalidMessageError(f"session id is {session!r}: it must be text") from error


def carried_time_to_live(milliseconds: int) -> str:
    """Return a time to live to be carried. :raises InvalidMessageError: it is negative."""
    try:
        return format_duration(milliseconds * _MILLISECOND)
    except (ValueError, OverflowError) as error:
        raise InvalidMessageError(f"time to live is {milliseconds} ms: it must be 0 ms or more") from error


def entity_path(carried: Mapping[str, Any]) -> str:
    """Return the destination. :raises UndeliverableError: none is carried, or it is no path of an entity."""
    if PATH not in carried:
        raise UndeliverableError("NoPath", f"the message has no application property {PATH}")
    path = carried_text(carried, PATH)
    if not path:
        raise UndeliverableError("BadPath", f"application property {PATH} is empty: it must name an entity")
    if not names_entity(path):
        # Such an address reaches another node of the service than an entity, which would not keep the message.
        raise UndeliverableError("BadPath", f"application property {PATH} is {path[:300]!r}: it must name an entity")
    return path


def names_entity(path: str) -> bool:
    """Return whether ``path`` can be the path of a queue or topic."""
    return 0 < len(path) <= _MAX_PATH_CHARACTERS and _NOT_AN_ENTITY.search(path) is None


def carried_text(carried: Mapping[str, Any], name: str) -> str:
    """Return a property as text. :raises UndeliverableError: it is none."""
    value = carried[name]
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            pass
    raise UndeliverableError("BadAlias", f"application property {name} is {type(value).__name__}: it must be text")


def time_to_live(value: Any) -> int | None:
    """Return milliseconds for the header; ``None`` for TimeSpan.MaxValue, which means no limit.

    :raises UndeliverableError: the value is neither a duration of ISO 8601 nor ticks of 100 ns, or negative.
    """
    try:
        if isinstance(value, int) and not isinstance(value, bool):
            milliseconds = value // _TICKS_PER_MILLISECOND
        else:
            milliseconds = parse_duration(to_text(value)) // _MILLISECOND
    except ValueError as error:
        raise UndeliverableError("BadAlias", f"application property {TIME_TO_LIVE} is {value!r}: {error}") from error
    if milliseconds < 0:
        raise UndeliverableError(
            "BadAlias", f"application property {TIME_TO_LIVE} is {value!r}: it must not be negative"
        )
    if milliseconds >= MAX_TIME_SPAN_MILLISECONDS:
        return None
    return min(milliseconds, MAX_TIME_TO_LIVE)


def scheduled_time(value: Any) -> int:
    """Return milliseconds since the Unix epoch. :raises UndeliverableError: the value is no timestamp."""
    # Not isinstance: a described integer, such as .NET's DateTimeOffset, counts ticks from the year 1.
    if type(value) is int and value in TIMESTAMPS:
        return value
    raise UndeliverableError(
        "BadAlias", f"application property {SCHEDULED} is {value!r}: it must be a timestamp of the years 1 to 9999"
    )


def read_type_notes(carried: Mapping[str, Any]) -> TypeNotes:
    """Return the notes that a message carries. :raises UndeliverableError: they cannot be read."""
    try:
        notes = json.loads(carried_text(carried, TYPE_NOTES)) if TYPE_NOTES in carried else {}
        sections = {name: dict(notes.get(name, {})) for name in ("properties", "annotations", "footer", "ids")}
        return TypeNotes(**sections, body=notes.get("body"))
    except (ValueError, AttributeError, TypeError, RecursionError) as error:
        raise UndeliverableError("BadAlias", f"application property {TYPE_NOTES} cannot be read: {error}") from error
