"""Packing messages into batches: by bytes, by count and by partition key. Pure.

The service takes a batch whole or refuses it whole, refuses more than 4,500 messages in one, and
refuses one with several partition keys. Order is kept within a partition key.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any, Final, Generic, Protocol, TypeVar

from servicebus_pair.core.amqp_types import text, texts

__all__ = ["MAX_MESSAGES_PER_BATCH", "Batch", "Packer", "partition_key"]

MAX_MESSAGES_PER_BATCH: Final = 4500
_MAX_OPEN_BATCHES: Final = 64


class Batch(Protocol):
    """A batch under construction that knows its own size, such as one around the SDK's."""

    def try_add(self, message: Any) -> bool:
        """Add ``message`` and answer True, or leave the batch as it was and answer False when full.

        :raises MessageTooLargeError: the message does not fit even an empty batch.
        """

    def __len__(self) -> int: ...


BatchT = TypeVar("BatchT", bound=Batch)


class Packer(Generic[BatchT]):
    """Fills one open batch per partition key and hands each out when it is full.

    Memory is bounded: at most 64 batches are open; beyond that the oldest is handed out as it is.

    :param open_batch: makes an empty batch with the link's limit.
    :param key: partition key of a message; messages of different keys never share a batch.
    """

    def __init__(self, open_batch: Callable[[], BatchT], *, key: Callable[[Any], Hashable]) -> None:
        self._open_batch = open_batch
        self._key = key
        self._open: dict[Hashable, BatchT] = {}

    def add(self, message: Any) -> BatchT | None:
        """Pack one message; answer a batch that is now ready to be sent, if any.

        :raises MessageTooLargeError: the message fits no batch; it is not packed, what was stays.
        """
        key = self._key(message)
        batch = self._open.get(key)
        if batch is not None and len(batch) < MAX_MESSAGES_PER_BATCH and batch.try_add(message):
            return None
        fresh = self._open_batch()
        fresh.try_add(message)
        self._open.pop(key, None)
        self._open[key] = fresh
        if batch is None and len(self._open) > _MAX_OPEN_BATCHES:
            oldest = next(iter(self._open))
            return self._open.pop(oldest)
        return batch

    def rest(self) -> Iterator[BatchT]:
        """Hand out the batches still open, oldest first."""
        while self._open:
            yield self._open.pop(next(iter(self._open)))

    @property
    def is_empty(self) -> bool:
        """True when no batch is open."""
        return not self._open

    def open_batches(self) -> tuple[BatchT, ...]:
        """The batches not handed out yet."""
        return tuple(self._open.values())


def partition_key(message: Any) -> str | None:
    """Answer the partition key of an AMQP message, or ``None``."""
    if not message.annotations:
        return None
    key = texts(message.annotations).get("x-opt-partition-key")
    if isinstance(key, Mapping):
        key = key["VALUE"]
    return None if key is None else text(key)
