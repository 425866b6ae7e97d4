"""Reads files that others may have written: regular files only, and no more of them than a limit.

A pipe would wait for its writer, and a device never ends: whoever may write to a folder could stop those who read it.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

from servicebus_pair.core.model.logs import get_logger

# A list of a manifest's files has 41 bytes for each value, and "[]," takes memory sixty times its size.
_MAX_VALUES: Final = 2_000_000
# Ledgers, spools and manifests have two levels of folders.
_MAX_DEPTH: Final = 16
_STRING: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_STRINGS: Final = re.compile(rb'(?:[^"]*+"[^"\\]*+(?:\\.[^"\\]*+)*+"){1,4096}+', re.DOTALL)

_log: Final = get_logger(__name__)


class IrregularFileError(OSError):
    """It is a link, a folder, a pipe, a socket or a device, or larger than what it should be."""


def files_below(
    folder: str | os.PathLike[str], suffixes: tuple[str, ...], *, hidden: str | tuple[str, ...] = ()
) -> Iterator[Path]:
    """Yield the files with a name that ends so, but not those in linked folders.

    A warning names a folder that is closed to this user or too deep.

    :param hidden: beginnings of names of files and folders that are passed over.
    """
    for parent, folders, names in os.walk(folder, onerror=_warn_of_closed):
        folders[:] = sorted(each for each in folders if not each.startswith(hidden))
        if folders and len(Path(parent).relative_to(folder).parts) >= _MAX_DEPTH:
            _log.warning("folder %r is passed over: it lies too deep", str(Path(parent, folders[0])))
            folders.clear()
        yield from (
            Path(parent, each) for each in sorted(names) if each.endswith(suffixes) and not each.startswith(hidden)
        )


def open_regular(path: str | os.PathLike[str], *, follow: bool = False, folder: int | None = None) -> BinaryIO:
    """Open a file to read it.

    :param follow: follow a link, as for a file that a person names; Kubernetes mounts secrets as links.
    :param folder: descriptor of the folder that the last part of the path is looked up in.
    :raises IrregularFileError: it is none.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW)
    try:
        descriptor = os.open(path if folder is None else os.path.basename(path), flags, dir_fd=folder)  # noqa: PTH119
    except OSError as error:
        if error.errno not in {errno.ELOOP, errno.ENXIO}:
            raise
        raise _irregular(path) from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _irregular(path)
    return os.fdopen(descriptor, "rb")


def read_regular(path: str | os.PathLike[str], *, limit: int, follow: bool = False, folder: int | None = None) -> bytes:
    """Return the content of a file. :raises IrregularFileError: it is none, or has more than ``limit`` bytes."""
    with open_regular(path, follow=follow, folder=folder) as file:
        # Of a sparse file the size is larger than the disk; another one may grow meanwhile.
        too_large = os.fstat(file.fileno()).st_size > limit
        content = b"" if too_large else file.read(limit + 1)
    if too_large or len(content) > limit:
        raise IrregularFileError(errno.EFBIG, f"larger than {limit} bytes", os.fspath(path))
    return content


def load_json(path: str | os.PathLike[str], *, limit: int, follow: bool = False) -> Any:
    """Return what a JSON file holds. :raises OSError: it cannot be read. :raises ValueError: it is not JSON."""
    return parse_json(read_regular(path, limit=limit, follow=follow))


def parse_json(content: bytes) -> Any:
    """Return what JSON says that others may have written. :raises ValueError: it is none, too deep or too much."""
    if count_values(content, above=_MAX_VALUES, limit=_MAX_VALUES) > _MAX_VALUES:
        raise ValueError(f"it has more than {_MAX_VALUES} values")
    try:
        return json.loads(content)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def count_values(text: bytes, *, above: int, limit: int) -> int:
    """Return about how many values a JSON text has: each takes memory many times its size.

    :param above: up to so many, separators in its strings count as well, which is quicker.
    :param limit: beyond it, counting ends.
    """
    count = _separators(text)
    if count <= above:
        return count
    # Piece by piece: what is left of a text between millions of strings takes memory as well.
    count = position = 0
    while count <= limit and (piece := _STRINGS.match(text, position)) is not None:
        rest, strings = _STRING.subn(b"", piece[0])
        # A JSON text has a separator for two strings at least.
        count += max(_separators(rest), strings // 2 - 1)
        position = piece.end()
    return count if count > limit else count + _separators(_STRING.sub(b"", text[position:]))


def _separators(text: bytes) -> int:
    return text.count(b",") + text.count(b"[") + text.count(b"{")


def _warn_of_closed(error: OSError) -> None:
    if isinstance(error, PermissionError):
        _log.warning("folder %r is passed over: it cannot be read by this user", str(error.filename))


def _irregular(path: str | os.PathLike[str]) -> IrregularFileError:
    return IrregularFileError(errno.EINVAL, "not a regular file", os.fspath(path))
