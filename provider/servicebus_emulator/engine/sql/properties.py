"""The message properties that rules can use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from servicebus_emulator.engine.sql.values import SqlValue

WRITABLE_PROPERTIES: Final[Mapping[str, str]] = {
    name.casefold(): name
    for name in (
        "ContentType",
        "CorrelationId",
        "Label",
        "MessageId",
        "ReplyTo",
        "ReplyToSessionId",
        "SessionId",
        "Subject",
        "To",
    )
}
"""The system properties that an action may change, all strings. ``Subject`` is an alias of ``Label``."""

SYSTEM_PROPERTIES: Final[Mapping[str, str]] = {
    **WRITABLE_PROPERTIES,
    **{name.casefold(): name for name in ("PartitionKey", "ScheduledEnqueueTimeUtc", "TimeToLive")},
}
"""The system properties that an expression may use, by case-folded name."""

_ALIASES: Final[Mapping[str, str]] = {"subject": "label"}


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageProperties:
    """The properties of one message. Names are case-insensitive and keep their spelling.

    :ivar system: by case-folded name of :data:`SYSTEM_PROPERTIES`, without those that the message does not have.
    :ivar user: the application properties by name. Values of unsupported types are None.
    """

    system: Mapping[str, SqlValue] = field(default_factory=dict)
    user: Mapping[str, SqlValue] = field(default_factory=dict)

    def system_value(self, name: str) -> SqlValue:
        """Return a system property, or None when the message does not have it."""
        return self.system.get(_system_key(name))

    def spelling(self, name: str) -> str | None:
        """Return the name of an application property in the message's spelling, or None when the message lacks it."""
        if name in self.user:
            return name
        wanted = name.casefold()
        return next((each for each in self.user if each.casefold() == wanted), None)

    def user_value(self, name: str) -> SqlValue:
        """Return an application property, or None when the message does not have it."""
        spelling = self.spelling(name)
        return None if spelling is None else self.user[spelling]

    def with_system(self, name: str, value: SqlValue) -> MessageProperties:
        """Return the properties with a system property set; None clears it."""
        return MessageProperties(system={**self.system, _system_key(name): value}, user=self.user)

    def with_user(self, name: str, value: SqlValue) -> MessageProperties:
        """Return the properties with an application property set."""
        return MessageProperties(system=self.system, user={**self.user, self.spelling(name) or name: value})

    def without_user(self, name: str) -> MessageProperties:
        """Return the properties without an application property."""
        spelling = self.spelling(name)
        kept = {each: value for each, value in self.user.items() if each != spelling}
        return MessageProperties(system=self.system, user=kept)


def _system_key(name: str) -> str:
    key = name.casefold()
    return _ALIASES.get(key, key)
