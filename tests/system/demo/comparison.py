"""Compares the contents of the queues with the expected messages, field by field, without the product's counters."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta

Key = tuple[str, str]
"""Entity path in lower case, message id."""


@dataclass(frozen=True, slots=True)
class Content:
    """Everything that the sender set on a message, except the id."""

    body: bytes
    content_type: str | None
    subject: str | None
    correlation_id: str | None = None
    reply_to: str | None = None
    to: str | None = None
    partition_key: str | None = None
    session_id: str | None = None
    time_to_live: timedelta | None = None
    scheduled_for: datetime | None = None
    properties: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Found:
    """A message found in a queue or subscription."""

    place: str  # queue or subscription, such as ``delays/Subscriptions/all`` or ``flights/$DeadLetterQueue``
    key: Key
    content: Content
    stored: float = 0.0  # enqueued time, seconds since the epoch


@dataclass(frozen=True, slots=True)
class Difference:
    """A field of a delivered message that differs from what was sent."""

    key: Key
    field: str
    expected: object
    actual: object


@dataclass(frozen=True, slots=True)
class Comparison:
    expected: int
    delivered: int  # expected messages found at their entity
    duplicates: Mapping[Key, int]  # number of extra copies at the entity
    lost: tuple[Key, ...]  # expected, but found nowhere
    stranded: Mapping[Key, str]  # expected, but found only at this other place
    unexpected: tuple[Key, ...]  # found at an entity, but not expected there
    differences: tuple[Difference, ...]

    @property
    def is_exact(self) -> bool:
        """Whether exactly the expected messages arrived, unchanged; duplicates are ignored."""
        return self.delivered == self.expected and not (self.lost or self.unexpected or self.differences)


def compare(expected: Mapping[Key, Content], found: Iterable[Found], *, destinations: Mapping[str, str]) -> Comparison:
    """Compare the expected messages with those found.

    :param expected: by entity and message id.
    :param found: messages of all queues, including dead-letter and backlog queues.
    :param destinations: for each entity, the queue or subscription where its messages arrive.
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
        unexpected=tuple(key for key in copies if key not in expected),
        differences=tuple(
            difference
            for key, contents in copies.items()
            if key in expected
            for content in contents
            for difference in differences(key, expected[key], content)
        ),
    )


def differences(key: Key, expected: Content, actual: Content) -> list[Difference]:
    pairs = [(each.name, getattr(expected, each.name), getattr(actual, each.name)) for each in fields(Content)]
    return [
        Difference(key, name, sent, arrived)
        for name, sent, arrived in pairs
        if sent != arrived or types(sent) != types(arrived)
    ]


def types(value: object) -> object:
    """Return the type of a value; for properties, the type of each value."""
    return {name: type(item) for name, item in value.items()} if isinstance(value, dict) else type(value)
