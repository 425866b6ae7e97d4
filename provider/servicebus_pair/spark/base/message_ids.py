"""Message ids for rows without one, stable across task attempts. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from hashlib import blake2b
from typing import Any, Final

_MAX_RUN_LENGTH: Final = 64
_DIGEST_BYTES: Final = 16


class MessageIdGenerator:
    """Generates ids for the rows of one task.

    An id consists of run, partition, a digest of the row, and an occurrence number among equal rows. So it does not
    depend on the order of the rows, which may change after a shuffle when a task is retried. Equal rows in different
    partitions must not share an id, because an entity with duplicate detection would drop one of them; ids that do not
    depend on partitions need the whole table, as ``with_message_ids`` has it.

    :param run: unique to the data; for a stream, query id and batch id.
    :ivar name: of the task, the same in each attempt.
    """

    def __init__(self, run: str, partition: int) -> None:
        self.partition: Final = partition
        self.name: Final = f"{id_prefix(run)}-{partition}"
        self._occurrences: Counter[bytes] = Counter()

    def message_id(self, body: bytes | str, other_values: Iterable[Any]) -> str:
        """Return the id of the next row, at most 128 characters.

        :param other_values: all other values of the row, in a fixed order.
        """
        digest = blake2b(repr(tuple(other_values)).encode(), digest_size=_DIGEST_BYTES)
        digest.update(body.encode() if isinstance(body, str) else body)
        occurrence = self._occurrences[digest.digest()]
        self._occurrences[digest.digest()] = occurrence + 1
        message_id = f"{self.name}-{digest.hexdigest()}"
        return f"{message_id}-{occurrence}" if occurrence else message_id


def id_prefix(run: str) -> str:
    """Return the common prefix of a run's ids: its name, or a digest of a long name."""
    if len(run) <= _MAX_RUN_LENGTH:
        return run
    return blake2b(run.encode(), digest_size=_DIGEST_BYTES).hexdigest()
