"""The properties of a message, as rules see them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from servicebus_emulator.engine.sql.values import SqlValue

__all__ = ["SYSTEM_PROPERTIES", "WRITABLE_PROPERTIES", "MessageProperties"]

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
"""The system properties that an action may change: all are texts. ``Subject`` is a second name of ``Label``."""

SYSTEM_PROPERTIES: Final[Mapping[str, str]] = {
    **WRITABLE_PROPERTIES,
    **{name.casefold(): name for name in ("PartitionKey", "ScheduledEnqueueTimeUtc", "TimeToLive")},
}
"""The system properties that an expression may name, by case-folded name."""

_SECOND_NAMES: Final[Mapping[str, str]] = {"subject": "label"}


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageProperties:
    """The properties of one message. Their names are compared without case and keep their spelling.

    :ivar system: by case-folded name of :data:`SYSTEM_PROPERTIES`; what a message does not have is missing.
    :ivar user: the application properties, by name. A value of a type that rules cannot use is None.
    """

    system: Mapping[str, SqlValue] = field(default_factory=dict)
    user: Mapping[str, SqlValue] = field(default_factory=dict)

    def system_value(self, name: str) -> SqlValue:
        """Return a system property, None when the message does not have it."""
        return self.system.get(_system_key(name))

    def spelling(self, name: str) -> str | None:
        """Return an application property's name as the message spells it, None when it is not there."""
        if name in self.user:
            return name
        wanted = name.casefold()
        return next((each for each in self.user if each.casefold() == wanted), None)

    def user_value(self, name: str) -> SqlValue:
        """Return an application property, None when the message does not have it."""
        spelling = self.spelling(name)
        return None if spelling is None else self.user[spelling]

    def with_system(self, name: str, value: SqlValue) -> MessageProperties:
        """Return the properties with a system property set, or cleared by None."""
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
    return _SECOND_NAMES.get(key, key)
