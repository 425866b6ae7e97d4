"""Message ids for rows that have none: the same ones when a task is tried again. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

__all__ = ["Position", "id_prefix"]

_LONGEST_RUN: Final = 64
_DIGEST_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class Position:
    """Where the rows of a task stand: the run, and the number of the partition in it.

    An id is made of run, partition, the row's number, and a digest of the row. A task that is tried again
    reads the same rows, as a rule in the same order, and so repeats their ids. Behind a shuffle the order
    may change; then the digest keeps a row from being taken for another one, which an entity with duplicate
    detection would drop: it is sent again under a new id, and nothing is lost.

    :param run: unique to the data: of a stream, the query and its batch.
    """

    run: str
    partition: int

    def message_id(self, number: int, body: bytes | str, others: Iterable[Any]) -> str:
        """Answer the id of a row, of at most 128 characters.

        :param number: of the row within its partition, from 0.
        :param others: all other values of the row, in a fixed order.
        """
        digest = blake2b(body.encode() if isinstance(body, str) else body, digest_size=_DIGEST_BYTES)
        digest.update(repr(tuple(others)).encode())
        return f"{id_prefix(self.run)}-{self.partition}-{number}-{digest.hexdigest()}"


def id_prefix(run: str) -> str:
    """Answer what ids of a run begin with: its name, unless that is too long for an id."""
    if len(run) <= _LONGEST_RUN:
        return run
    return blake2b(run.encode(), digest_size=_DIGEST_BYTES).hexdigest()
