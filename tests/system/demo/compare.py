"""What should be in the queues against what is there: by message, by field, without any counter of the product."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime, timedelta

__all__ = ["Comparison", "Content", "Difference", "Found", "Key", "compare"]

Key = tuple[str, str]
"""Entity path in lower case, message id."""


@dataclass(frozen=True, slots=True)
class Content:
    """All of a message that its sender chose, the id aside."""

    body: bytes
    content_type: str | None
    subject: str | None
    correlation_id: str | None
    reply_to: str | None
    to: str | None
    partition_key: str | None
    session_id: str | None
    time_to_live: timedelta | None
    scheduled_for: datetime | None
    properties: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Found:
    """A message as it sits in a queue or subscription."""

    place: str  # where it was peeked, such as ``delays/Subscriptions/all`` or ``flights/$DeadLetterQueue``
    key: Key
    content: Content
    stored: float = 0.0  # when the queue took it, in seconds since the epoch


@dataclass(frozen=True, slots=True)
class Difference:
    """A field of a delivered message that is not what was sent."""

    key: Key
    field: str
    expected: object
    actual: object


@dataclass(frozen=True, slots=True)
class Comparison:
    """The verdict on one run."""

    expected: int
    delivered: int  # expected messages that are at their entity
    duplicates: Mapping[Key, int]  # extra copies of a message at its entity
    lost: tuple[Key, ...]  # expected, and found nowhere
    stranded: Mapping[Key, str]  # expected, not at their entity, but found elsewhere, and where
    strangers: tuple[Key, ...]  # at an entity, and not expected there
    differences: tuple[Difference, ...]

    @property
    def is_exact(self) -> bool:
        """Whether every expected message arrived as it was sent and nothing else did; extra copies aside."""
        return self.delivered == self.expected and not (self.lost or self.strangers or self.differences)


def compare(expected: Mapping[Key, Content], found: Iterable[Found], *, destinations: Mapping[str, str]) -> Comparison:
    """Compare what must have been sent with all that was found.

    :param expected: what was to be sent, by entity and message id.
    :param found: every message of every place, dead letters and backlog queues included.
    :param destinations: the place where each entity's messages arrive, by entity.
    """
    copies: dict[Key, list[Content]] = defaultdict(list)
    elsewhere: dict[Key, str] = {}
    for item in found:
        if item.place == destinations.get(item.key[0]):
            copies[item.key].append(item.content)
        else:
            elsewhere[item.key] = item.place
    missing = [key for key in expected if key not in copies]
    return Comparison(
        expected=len(expected),
        delivered=len(expected) - len(missing),
        duplicates=Counter({key: len(contents) - 1 for key, contents in copies.items() if len(contents) > 1}),
        lost=tuple(key for key in missing if key not in elsewhere),
        stranded={key: elsewhere[key] for key in missing if key in elsewhere},
        strangers=tuple(key for key in copies if key not in expected),
        differences=tuple(
            difference
            for key, contents in copies.items()
            if key in expected
            for content in contents
            for difference in differences(key, expected[key], content)
        ),
    )


def differences(key: Key, expected: Content, actual: Content) -> list[Difference]:
    """Return every field that is not as it was sent; a value of another type is another value."""
    pairs = [(field.name, getattr(expected, field.name), getattr(actual, field.name)) for field in fields(Content)]
    return [
        Difference(key, name, sent, arrived)
        for name, sent, arrived in pairs
        if sent != arrived or types(sent) != types(arrived)
    ]


def types(value: object) -> object:
    """Return the type of a value, and for properties the type of each."""
    return {name: type(item) for name, item in value.items()} if isinstance(value, dict) else type(value)
