"""What a spool needs of the place where its files lie. Blocking calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import BinaryIO, Final, Protocol
from urllib.parse import quote

from servicebus_pair.core.model.regular_files import IrregularFileError

MAX_FILE_BYTES: Final = 144 << 20
"""Largest file: what is larger is none of a spool, since a message has at most 100 MiB, or 133 MiB in base64."""
MAX_SMALL_FILE_BYTES: Final = 65_536
"""Largest file that holds no messages, such as a claim."""


def folder_name(entity: str) -> str:
    """Return the name of a folder or file that stands for an entity in any case."""
    name = quote(entity.casefold(), safe="")
    # These are places of their own.
    return name.replace(".", "%2E") if name in {".", ".."} else name


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file that was written completely.

    :param name: relative to the spool, with ``/``.
    :param modified_at: Unix time in seconds.
    """

    name: str
    size_bytes: int
    modified_at: float


class SpoolStorage(Protocol):
    """Files by name, which appear as a whole or not at all. Names are relative and use ``/``.

    :ivar place: where that is, to people: ``on HOST in FOLDER``, or ``in URL``.
    :ivar listing_seconds: how much longer than other calls one that lists may take.
    """

    place: str
    listing_seconds: float

    def create(self, name: str, content: bytes) -> None:
        """Write a new file durably: when this returns, it survives a crash.

        :raises FileExistsError: there is one of this name with another content; it is unchanged.
        """

    def replace(self, name: str, content: bytes) -> None:
        """Write a file durably, in place of one of this name."""

    def read(self, name: str, limit: int = MAX_FILE_BYTES) -> bytes:
        """Return the content of a file.

        :raises FileNotFoundError: there is none.
        :raises IrregularFileError: it is no file, or has more than ``limit`` bytes.
        """

    def delete(self, name: str) -> None:
        """Delete a file; do nothing if there is none."""

    def move(self, name: str, target: str) -> None:
        """Give a file another name, in place of one that has it; do nothing if there is none. It is not read."""

    def list(self, folder: str = "") -> Sequence[StoredFile]:
        """Return the complete files below ``folder`` in the order of their names."""

    def walk(self, folder: str = "") -> Iterator[StoredFile]:
        """Yield what :meth:`list` returns, in any order; each step blocks."""

    def names(self, folder: str) -> Sequence[str]:
        """Return the names in a folder, in no order, and perhaps of incomplete files; quicker than :meth:`list`."""

    def problem(self) -> str | None:
        """Return why nothing could be written, as far as that can be told without writing, or raise it."""


class StreamedStorage(SpoolStorage, Protocol):
    """Files that can also be read piece by piece."""

    def open(self, name: str) -> AbstractContextManager[BinaryIO]:
        """Open a file for reading. :raises FileNotFoundError: there is none."""


def holds(storage: SpoolStorage, name: str, content: bytes) -> bool:
    """Return whether there is a file of this name and content now."""
    try:
        return storage.read(name, len(content)) == content
    except (FileNotFoundError, IrregularFileError):
        return False
