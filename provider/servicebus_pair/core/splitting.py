"""Batches that the service refuses for their mixture (SPEC section 4, batches).

A partitioned entity takes no batch with several session ids, and the documentation asks the same
of entities with sessions; others take any mixture, in much fuller batches. Which kind an entity is,
a sender cannot ask: so batches are mixed until one is refused, and from then on one session each.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any

from azure.servicebus.amqp import AmqpAnnotatedMessage

from servicebus_pair.core.batching import partition_key

__all__ = ["by_session", "is_mixed", "session_key"]


def session_key(message: Any) -> Hashable:
    """Answer what must be alike in a batch for an entity that takes no mixture."""
    properties = message.properties
    return partition_key(message), None if properties is None else properties.group_id


def is_mixed(messages: Sequence[AmqpAnnotatedMessage]) -> bool:
    """Answer whether a refusal of this batch may be due to its mixture."""
    return len({session_key(message) for message in messages}) > 1


def by_session(
    messages: Sequence[AmqpAnnotatedMessage], numbers: Sequence[int]
) -> Iterator[tuple[list[int], list[AmqpAnnotatedMessage]]]:
    """Hand out a refused batch in parts without mixture, each with its numbers; order is kept in each session."""
    parts: dict[Hashable, tuple[list[int], list[AmqpAnnotatedMessage]]] = {}
    for number, message in zip(numbers, messages, strict=True):
        part = parts.setdefault(session_key(message), ([], []))
        part[0].append(number)
        part[1].append(message)
    yield from parts.values()
