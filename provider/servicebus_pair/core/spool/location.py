"""Opens the place where the files of a spool lie: a folder of a mount, or an object store."""

from __future__ import annotations

from urllib.parse import urlsplit

from servicebus_pair.core.model.checks import is_folder
from servicebus_pair.core.model.errors import ConfigurationError
from servicebus_pair.core.spool.folder_storage import PRIVATE, FolderStorage
from servicebus_pair.core.spool.object_storage import ObjectStorage
from servicebus_pair.core.spool.storage import StreamedStorage


def open_storage(location: str, *, what: str = "spool", mode: int = PRIVATE) -> StreamedStorage:
    """Return the storage for a folder, or for the URL of a folder in an object store.

    Nothing is read or written.

    :param location: an absolute path, or a URL that fsspec knows, such as ``s3://bucket/spool``.
    :param what: what errors call it.
    :param mode: of new files in a folder.
    :raises ConfigurationError: it is neither, or its library is not installed.
    """
    if is_folder(location):
        parts = urlsplit(location)
        path = parts.path if parts.scheme else location
        if not path.startswith("/") or parts.netloc not in {"", "localhost"}:
            raise ConfigurationError(f"{what} is {location!r}: it must be an absolute path or a URL")
        return FolderStorage(path, mode=mode)
    return ObjectStorage(location, what=what)
