"""Message ids for rows without one, stable across task attempts. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

__all__ = ["MessageIdGenerator", "id_prefix"]

_MAX_RUN_LENGTH: Final = 64
_DIGEST_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class MessageIdGenerator:
    """Generates ids for the rows of one task.

    An id consists of run, partition, row number and a digest of the row. A task that is retried normally reads the
    same rows in the same order, so it repeats their ids. After a shuffle the order may change; the digest then
    prevents a row from getting the id of another row, which an entity with duplicate detection would drop. Such a
    row is sent again under a new id, and nothing is lost.

    :param run: unique to the data; for a stream, query id and batch id.
    """

    run: str
    partition: int

    def message_id(self, row_number: int, body: bytes | str, other_values: Iterable[Any]) -> str:
        """Return the id of a row, at most 128 characters.

        :param row_number: position of the row within its partition, from 0.
        :param other_values: all other values of the row, in a fixed order.
        """
        digest = blake2b(body.encode() if isinstance(body, str) else body, digest_size=_DIGEST_BYTES)
        digest.update(repr(tuple(other_values)).encode())
        return f"{id_prefix(self.run)}-{self.partition}-{row_number}-{digest.hexdigest()}"


def id_prefix(run: str) -> str:
    """Return the common prefix of a run's ids: its name, or a digest of a long name."""
    if len(run) <= _MAX_RUN_LENGTH:
        return run
    return blake2b(run.encode(), digest_size=_DIGEST_BYTES).hexdigest()
