"""A spool in a folder, such as one of a mount: files are complete and on the disk before they have their name."""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import takewhile
from pathlib import Path
from typing import BinaryIO, Final

from servicebus_pair.core.model.logs import get_logger
from servicebus_pair.core.model.regular_files import open_regular, read_regular
from servicebus_pair.core.spool.storage import MAX_FILE_BYTES, StoredFile, holds

PRIVATE: Final = 0o600
SHARED_MODE: Final = 0o666  # what the process's mask allows: other programs read it

# Of files that are being written; they have no message that was confirmed.
_INCOMPLETE: Final = ".incomplete-"
# Ledgers and spools have two levels of folders.
_MAX_DEPTH: Final = 16
_MAX_WARNINGS: Final = 100
_log = get_logger(__name__)


class FolderStorage:
    """Files below ``folder``, which is created with the first one.

    :param folder: an absolute path.
    :param mode: of new files.
    """

    listing_seconds = 0.0

    def __init__(self, folder: str, *, mode: int = PRIVATE) -> None:
        self._folder = Path(folder)
        self._mode = mode
        # Folders whose own name is on the disk; another process may have created one and not got so far.
        self._durable: set[Path] = set()
        self._unreadable: set[str] = set()
        self.place = f"on {socket.gethostname()} in {folder}"

    def create(self, name: str, content: bytes) -> None:
        """Write a new file; see ``SpoolStorage``."""
        with self._written(name, content) as (folder, incomplete):
            try:
                # Unlike a rename, this fails if there is a file of the name.
                os.link(incomplete, Path(name).name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
            except FileExistsError:
                # The answer to a link on a network mount may be lost; then it is made twice.
                if not holds(self, name, content):
                    raise

    def replace(self, name: str, content: bytes) -> None:
        """Write a file in place of another; see ``SpoolStorage``."""
        with self._written(name, content) as (folder, incomplete):
            os.replace(incomplete, Path(name).name, src_dir_fd=folder, dst_dir_fd=folder)

    def read(self, name: str, limit: int = MAX_FILE_BYTES) -> bytes:
        """Return the content of a file."""
        with self._folder_of(name) as folder:
            return read_regular(self._path(name), limit=limit, folder=folder)

    def open(self, name: str) -> BinaryIO:
        """Open a file for reading."""
        with self._folder_of(name) as folder:
            return open_regular(self._path(name), folder=folder)

    def delete(self, name: str) -> None:
        """Delete a file if there is one; the folder stays."""
        path = self._path(name)
        with suppress(FileNotFoundError), self._folder_of(name) as folder:
            os.unlink(path.name, dir_fd=folder)

    def move(self, name: str, target: str) -> None:
        """Give a file another name; see ``SpoolStorage``."""
        with self._changed_folder_of(target) as there, suppress(FileNotFoundError), self._folder_of(name) as folder:
            os.rename(Path(name).name, Path(target).name, src_dir_fd=folder, dst_dir_fd=there)

    def list(self, folder: str = "") -> list[StoredFile]:
        """Return the complete files below ``folder``, in the order of their names."""
        return sorted(self.walk(folder), key=lambda each: each.name)

    def walk(self, folder: str = "") -> Iterator[StoredFile]:
        """Yield the complete files below ``folder``, in any order."""
        return (each for each in self._walk(folder) if isinstance(each, StoredFile))

    def passed_over(self, folder: str = "") -> Iterator[str]:
        """Yield the links, and the folders that cannot be read or lie too deep, which :meth:`list` passes over."""
        return (each for each in self._walk(folder) if isinstance(each, str))

    def names(self, folder: str) -> Sequence[str]:
        """Return the names in a folder; see ``SpoolStorage``."""
        try:
            return os.listdir(self._without_links(folder))  # noqa: PTH208 - paths of all files would take longer
        except FileNotFoundError:
            return []

    def problem(self) -> str | None:
        """Return what is wrong with the folder; see ``SpoolStorage``. The first message creates it, not its parent."""
        existing = self._folder if os.path.lexists(self._folder) else self._folder.parent
        if not existing.exists():
            return f"{existing} does not exist; is it on a mount that is missing?"
        if not existing.is_dir():
            return f"{existing} is not a folder"
        return (
            None if os.access(existing, os.R_OK | os.W_OK | os.X_OK) else f"{existing} cannot be written by this user"
        )

    def _walk(self, folder: str) -> Iterator[StoredFile | str]:
        """Yield the files below a folder, and the names of what is passed over.

        Others may have planted what lies there: their folders hold up no reader.
        """
        self._without_links(folder)
        pending = [(f"{folder}/" if folder else "", 0)]
        while pending:
            # Names are put together as text, since there may be many.
            prefix, depth = pending.pop()
            try:
                entries = list(os.scandir(self._path(prefix)))
            except (FileNotFoundError, NotADirectoryError):
                continue
            except PermissionError:
                if depth == 0:
                    raise
                self._warn_of_unreadable(prefix)
                yield prefix
                continue
            for entry in entries:
                name = f"{prefix}{entry.name}"
                if entry.is_dir(follow_symlinks=False) and depth < _MAX_DEPTH:
                    pending.append((f"{name}/", depth + 1))
                elif entry.is_symlink() or entry.is_dir():
                    yield name
                elif entry.is_file() and not entry.name.startswith(_INCOMPLETE):
                    try:
                        status = entry.stat(follow_symlinks=False)
                    except FileNotFoundError:
                        continue  # deleted meanwhile
                    yield StoredFile(name, status.st_size, status.st_mtime)

    def _warn_of_unreadable(self, name: str) -> None:
        if name not in self._unreadable and len(self._unreadable) < _MAX_WARNINGS:
            self._unreadable.add(name)
            _log.warning("folder %s cannot be read by this user: what lies in it is passed over", self._path(name))

    def _path(self, name: str) -> Path:
        return self._folder / name

    @contextmanager
    def _folder_of(self, name: str, *, make: bool = False) -> Iterator[int]:
        """Open the folder of a file without following links: another user may put one there at any time.

        :param make: the folders that are missing, and put the names of all on the disk.
        """
        path, flags = self._folder, os.O_RDONLY | os.O_DIRECTORY
        opened = os.open(path, flags)
        try:
            for part in Path(name).parent.parts:
                path /= part
                if make and path not in self._durable:
                    with suppress(FileExistsError):
                        os.mkdir(part, dir_fd=opened)
                    os.fsync(opened)
                try:
                    below = os.open(part, flags | os.O_NOFOLLOW, dir_fd=opened)
                except OSError:
                    self._without_links(Path(name).parent.as_posix())
                    raise
                os.close(opened)
                opened = below
                if make:
                    self._durable.add(path)
            yield opened
        finally:
            os.close(opened)

    @contextmanager
    def _changed_folder_of(self, name: str) -> Iterator[int]:
        """Open the folder of a file, which is made if it is missing; in the end what it has is on the disk."""
        if not self._path(name).parent.is_dir():
            self._refuse_missing_mount()
            self._durable.clear()
        if self._folder not in self._durable:
            self._make_root()
        with self._folder_of(name, make=True) as folder:
            yield folder
            # POSIX: fsync of a file does not include its entry in the folder.
            os.fsync(folder)

    @contextmanager
    def _written(self, name: str, content: bytes) -> Iterator[tuple[int, str]]:
        """Write a file next to ``name``, which the caller gives that name; nothing is left of one that failed."""
        incomplete = f"{_INCOMPLETE}{uuid.uuid4().hex}"
        with self._changed_folder_of(name) as folder:
            try:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
                descriptor = os.open(incomplete, flags, self._mode, dir_fd=folder)
                try:
                    remaining = memoryview(content)
                    while remaining:
                        remaining = remaining[os.write(descriptor, remaining) :]
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)
                yield folder, incomplete
            finally:
                with suppress(FileNotFoundError):
                    os.unlink(incomplete, dir_fd=folder)

    def _without_links(self, folder: str) -> Path:
        """Return the path of a folder. :raises OSError: it, or one above it, is a link, which would lead elsewhere."""
        path = self._folder
        for part in Path(folder).parts:
            path /= part
            if path.is_symlink():
                raise OSError(f"{path} is a link")
        return path

    def _refuse_missing_mount(self) -> None:
        # What is written below it would be hidden once the mount is back.
        if self._folder in self._durable and not (self._folder.is_dir() and any(self._folder.iterdir())):
            raise OSError(f"{self._folder} is missing or empty, and was neither before; was its mount removed?")

    def _make_root(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        made: set[Path] = set()
        for each in takewhile(lambda path: path not in self._durable, (self._folder, *self._folder.parents)):
            try:
                _sync_folder(each.parent)
            except OSError:
                # What lies above the spool belongs to others and need not be readable.
                if each != self._folder:
                    break
                raise
            made.add(each)
        self._durable |= made


def replace_file(path: str | os.PathLike[str], text: str) -> None:
    """Write a file that readers see as a whole or not at all; a link that another user has planted is not followed.

    :raises OSError: it cannot be written.
    """
    target = Path(path).absolute()
    FolderStorage(str(target.parent), mode=SHARED_MODE).replace(target.name, text.encode())


def _sync_folder(folder: Path) -> None:
    """Make the names in ``folder`` durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
