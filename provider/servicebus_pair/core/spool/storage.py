"""Where the files of a spool lie: a folder of a mount, or an object store. Blocking calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urlsplit

from servicebus_pair.core.model.errors import ConfigurationError

__all__ = ["SpoolStorage", "StoredFile", "open_storage"]


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
    """Files by name, which appear as a whole or not at all. Names are relative and use ``/``."""

    def create(self, name: str, content: bytes) -> None:
        """Write a new file durably: when this returns, it survives a crash.

        :raises FileExistsError: there is one of this name; it is unchanged.
        """

    def replace(self, name: str, content: bytes) -> None:
        """Write a file durably, in place of one of this name."""

    def read(self, name: str) -> bytes:
        """:raises FileNotFoundError: there is none."""

    def delete(self, name: str) -> None:
        """Delete a file; do nothing if there is none."""

    def list(self, folder: str = "") -> Sequence[StoredFile]:
        """Return the complete files below ``folder`` in the order of their names."""


def open_storage(location: str) -> SpoolStorage:
    """Return the storage for a folder, or for the URL of a folder in an object store.

    Nothing is read or written.

    :param location: an absolute path, or a URL that fsspec knows, such as ``s3://bucket/spool``.
    :raises ConfigurationError: it is neither, or its library is not installed.
    """
    scheme = urlsplit(location).scheme
    if scheme in {"", "file"}:
        from servicebus_pair.core.spool.folder_storage import FolderStorage

        path = location if scheme == "" else urlsplit(location).path
        if not path.startswith("/"):
            raise ConfigurationError(f"spool is {location!r}: it must be an absolute path or a URL")
        return FolderStorage(path)
    from servicebus_pair.core.spool.object_storage import ObjectStorage

    return ObjectStorage(location)
