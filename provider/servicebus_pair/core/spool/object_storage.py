"""A spool in an object store, by fsspec: an object appears when its upload has ended."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from io import BufferedReader
from typing import Any, BinaryIO

from servicebus_pair.core.model.errors import ConfigurationError
from servicebus_pair.core.model.regular_files import IrregularFileError
from servicebus_pair.core.spool.storage import MAX_FILE_BYTES, StoredFile, holds


class ObjectStorage:
    """Objects below a URL.

    :param url: such as ``s3://bucket/spool``; credentials are those that its fsspec library finds.
    :param what: what errors call it.
    :param files: the file system of the URL, if it has credentials of its own.
    :raises ConfigurationError: fsspec does not know the URL, or its library is not installed.
    """

    # All pages of a listing, of a thousand objects each, are one call to its library.
    listing_seconds = 25.0

    def __init__(self, url: str, *, what: str = "spool", files: Any = None) -> None:
        scheme = url.partition("://")[0]
        try:
            from fsspec.core import url_to_fs

            files, path = url_to_fs(url) if files is None else (files, url.partition("://")[2])
        except Exception as error:  # of a store's library, which may raise anything
            raise ConfigurationError(f"{what} is a URL of {scheme!r}, which cannot be opened: {error}") from error
        self._files: Any = files
        self._root = path.rstrip("/")
        self.place = f"in {url}"

    def create(self, name: str, content: bytes) -> None:
        """Upload a new object; see ``SpoolStorage``. Stores without conditional writes ask first and then write."""
        path = self._path(name)
        try:
            self._files.pipe_file(path, content, mode="create")
        except FileExistsError:
            # The answer to an upload may be lost; its library then repeats it.
            if not holds(self, name, content):
                raise
        except (NotImplementedError, TypeError):
            self._files.invalidate_cache()
            if self._files.exists(path):
                raise FileExistsError(path) from None
            self._files.pipe_file(path, content)

    def replace(self, name: str, content: bytes) -> None:
        """Upload an object in place of another."""
        self._files.pipe_file(self._path(name), content)

    def read(self, name: str, limit: int = MAX_FILE_BYTES) -> bytes:
        """Return the content of an object. :raises IrregularFileError: it has more than ``limit`` bytes."""
        path = self._path(name)
        # A listing that its library remembers does not know what another process has written since.
        self._files.invalidate_cache()
        size, content = self._files.size(path), b""
        if size is None or 0 < size <= limit:  # of an empty object, stores refuse to read a part
            # It may be replaced by a larger one meanwhile.
            content = bytes(self._files.cat_file(path, start=0, end=limit + 1))
        if max(size or 0, len(content)) > limit:
            raise IrregularFileError(errno.EFBIG, f"larger than {limit} bytes", name)
        return content

    def open(self, name: str) -> AbstractContextManager[BinaryIO]:
        """Open an object for reading."""
        # The files of most stores, as S3's, read lines without a limit only.
        return BufferedReader(self._files.open(self._path(name), "rb"))

    def delete(self, name: str) -> None:
        """Delete an object if there is one."""
        try:
            self._files.rm_file(self._path(name))
        except FileNotFoundError:
            return

    def move(self, name: str, target: str) -> None:
        """Give an object another name; see ``SpoolStorage``."""
        try:
            self._files.mv(self._path(name), self._path(target))
        except FileNotFoundError:
            return

    def list(self, folder: str = "") -> list[StoredFile]:
        """Return the objects below ``folder``, in the order of their names."""
        self._files.invalidate_cache()
        try:
            found = self._files.find(self._path(folder) if folder else self._root, detail=True)
        except FileNotFoundError:
            return []
        files = (each for each in found.values() if each.get("type") != "directory")
        return sorted(
            (
                StoredFile(each["name"].removeprefix(self._root).strip("/"), each.get("size") or 0, _modified(each))
                for each in files
            ),
            key=lambda each: each.name,
        )

    def walk(self, folder: str = "") -> Iterator[StoredFile]:
        """Yield the objects below ``folder``."""
        yield from self.list(folder)

    def names(self, folder: str) -> Sequence[str]:
        """Return the names in a folder; see ``SpoolStorage``."""
        return [each.name.rpartition("/")[2] for each in self.list(folder)]

    def problem(self) -> None:
        """Raise what the store answers to a listing that fails."""
        self.list("claims")

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"


def _modified(details: dict[str, Any]) -> float:
    """Return the time of an object's upload, 0 if the store does not tell; each library names it differently."""
    for name in ("mtime", "LastModified", "last_modified", "updated", "created"):
        match details.get(name):
            case datetime() as time:
                return time.timestamp()
            case int() | float() as seconds:
                return float(seconds)
    return 0.0
