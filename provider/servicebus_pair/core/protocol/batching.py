"""Pack messages into batches by size, count and partition key, and split rejected batches by session. Pure.

The service accepts or rejects a batch as a whole. It rejects batches of more than 4,500 messages or of several
partition keys, and partitioned entities reject batches of several session ids. Other entities accept mixed sessions,
which makes batches much fuller. A sender cannot query which kind an entity is, so batches mix sessions until one is
rejected, and are split by session from then on. Order is kept within a partition key and within a session.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

from servicebus_pair.core.protocol.amqp_message import PARTITION_KEY, AmqpMessage
from servicebus_pair.core.protocol.typed_values import text_keys, to_text

__all__ = [
    "MAX_MESSAGES_PER_BATCH",
    "Batch",
    "BatchPacker",
    "is_mixed",
    "partition_key",
    "session_key",
    "split_by_session",
]

MAX_MESSAGES_PER_BATCH: Final = 4500
_MAX_OPEN_BATCHES: Final = 64


class Batch(Protocol):
    """A batch under construction that knows its encoded size."""

    def try_add(self, message: Any) -> bool:
        """Add ``message`` and return True, or return False if the batch is full.

        :raises MessageTooLargeError: the message does not fit an empty batch.
        """

    def __len__(self) -> int: ...


BatchT = TypeVar("BatchT", bound=Batch)


class BatchPacker(Generic[BatchT]):
    """Fills one open batch per partition key and returns each when it is full.

    Memory is bounded: at most 64 batches are open; beyond that the oldest is returned.

    :param open_batch: creates an empty batch with the link's size limit.
    :param key: returns the partition key of a message; messages of different keys never share a batch.
    """

    def __init__(self, open_batch: Callable[[], BatchT], *, key: Callable[[Any], Hashable]) -> None:
        self._open_batch = open_batch
        self._key = key
        self._open: dict[Hashable, BatchT] = {}

    def add(self, message: Any) -> BatchT | None:
        """Pack a message; return a batch that is now ready to send, if any.

        :raises MessageTooLargeError: the message fits no batch; it is not packed, and open batches are unchanged.
        """
        key = self._key(message)
        batch = self._open.get(key)
        if batch is not None and len(batch) < MAX_MESSAGES_PER_BATCH and batch.try_add(message):
            return None
        new = self._open_batch()
        new.try_add(message)
        self._open.pop(key, None)
        self._open[key] = new
        if batch is None and len(self._open) > _MAX_OPEN_BATCHES:
            oldest = next(iter(self._open))
            return self._open.pop(oldest)
        return batch

    def flush(self) -> Iterator[BatchT]:
        """Yield the open batches, oldest first."""
        while self._open:
            yield self._open.pop(next(iter(self._open)))

    @property
    def is_empty(self) -> bool:
        """Whether no batch is open."""
        return not self._open

    def open_batches(self) -> tuple[BatchT, ...]:
        """The batches not returned yet."""
        return tuple(self._open.values())


def partition_key(message: Any) -> str | None:
    """Return the partition key of an AMQP message, or ``None``."""
    if not message.annotations:
        return None
    key = text_keys(message.annotations).get(PARTITION_KEY)
    if isinstance(key, Mapping):
        key = key["VALUE"]
    return None if key is None else to_text(key)


def session_key(message: Any) -> Hashable:
    """Return the partition key and session id, the batching key of an entity that accepts no mixed sessions."""
    properties = message.properties
    return partition_key(message), None if properties is None else properties.group_id


def is_mixed(messages: Sequence[AmqpMessage]) -> bool:
    """Return whether this batch may have been rejected because it mixes sessions."""
    return len({session_key(message) for message in messages}) > 1


def split_by_session(messages: Sequence[AmqpMessage]) -> list[list[AmqpMessage]]:
    """Return the messages of a rejected batch by session, each part in order."""
    parts: dict[Hashable, list[AmqpMessage]] = {}
    for message in messages:
        parts.setdefault(session_key(message), []).append(message)
    return list(parts.values())
