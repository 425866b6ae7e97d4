"""Pack messages into batches by size, count and partition key, and split rejected batches by session. Pure.

The service accepts or rejects a batch as a whole. It rejects batches of more than 4,500 messages or of several
partition keys, and partitioned entities reject batches of several session ids. Other entities accept mixed sessions,
which makes batches much fuller. A sender cannot query which kind an entity is, so batches mix sessions until one is
rejected, and are split by session from then on. Order is kept within a partition key and within a session.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Generic, Protocol, Self, TypeVar

from servicebus_pair.core.model.errors import MessageTooLargeError
from servicebus_pair.core.protocol.amqp_message import PARTITION_KEY, AmqpMessage
from servicebus_pair.core.protocol.typed_values import text_keys, to_text

MAX_MESSAGES_PER_BATCH: Final = 4500
_MAX_OPEN_BATCHES: Final = 64
# AMQP 1.0, sections 1.6.19 and 3.2.6: a message within a batch is a data section with a length of one byte or of four.
_SHORT_SECTION_BYTES: Final = 5
_LONG_SECTION_BYTES: Final = 8
_SHORT_LIMIT: Final = 256


class Batch(Protocol):
    """A batch under construction that knows its encoded size."""

    def try_add(self, message: Any) -> bool:
        """Add ``message`` and return True, or return False if the batch is full.

        :raises MessageTooLargeError: the message does not fit an empty batch.
        """

    def __len__(self) -> int: ...


BatchT = TypeVar("BatchT", bound=Batch)
MessageT = TypeVar("MessageT")


class SizedBatch(ABC, Generic[MessageT]):
    """What batches of messages have in common that are encoded in different ways; implements :class:`Batch`.

    A message that remains the only one is sent alone. It may then be as large as ``max_message_bytes``, which can be
    more than a batch may have.

    :param max_bytes: maximum size of a batch, from the link.
    :param max_message_bytes: maximum size of a message outside a batch, from the link; at least ``max_bytes``.
    """

    def __init__(self, max_bytes: int, *, max_message_bytes: int = 0) -> None:
        self._max_bytes = max_bytes
        self._max_message_bytes = max(max_bytes, max_message_bytes)
        self._bytes = 0
        self.messages: list[MessageT] = []

    def __len__(self) -> int:
        return len(self.messages)

    @abstractmethod
    def try_add(self, message: MessageT) -> bool:
        """Add ``message``; return False when the batch is full. :raises MessageTooLargeError: it fits no batch."""

    @abstractmethod
    def _envelope_bytes(self) -> int:
        """Return how much the batch takes besides its messages, of which it has one."""

    @abstractmethod
    def _name(self, message: MessageT) -> str:
        """Return the id of a message, for errors."""

    def _append(self, message: MessageT, size: int) -> bool:
        """Add a message of ``size`` bytes; return False when the batch is full.

        :raises MessageTooLargeError: it fits neither a batch nor the link.
        """
        bytes_after = self._bytes + size + (_SHORT_SECTION_BYTES if size < _SHORT_LIMIT else _LONG_SECTION_BYTES)
        if self.messages:
            if len(self.messages) == 1:
                bytes_after += self._envelope_bytes()
            if bytes_after > self._max_bytes:
                return False
        elif size > self._max_message_bytes:
            raise too_large(self._name(message), size, self._max_message_bytes)
        self._bytes = bytes_after
        self.messages.append(message)
        return True

    def split(self) -> list[Self]:
        """Return two batches with half of the messages each, in order."""
        middle = (len(self.messages) + 1) // 2
        return [*self.repack(self.messages[:middle]), *self.repack(self.messages[middle:])]

    def repack(self, messages: Iterable[MessageT]) -> list[Self]:
        """Return some of the messages in batches with the same limits, in order.

        This is one batch, unless its envelope is larger because another message comes first.
        """
        batches = [self._empty()]
        for message in messages:
            if not batches[-1].try_add(message):
                batches.append(self._empty())
                batches[-1].try_add(message)
        return batches

    def _empty(self) -> Self:
        return type(self)(self._max_bytes, max_message_bytes=self._max_message_bytes)


def too_large(message_id: str, size: int, limit: int) -> MessageTooLargeError:
    """Return the error of a message that the link does not take."""
    return MessageTooLargeError(f"message {message_id!r} takes {size} bytes: the link takes {limit}")


def message_bytes(section: int) -> int:
    """Return the size of a message that takes ``section`` bytes within a batch."""
    short = section - _SHORT_SECTION_BYTES
    return short if short < _SHORT_LIMIT else section - _LONG_SECTION_BYTES


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
