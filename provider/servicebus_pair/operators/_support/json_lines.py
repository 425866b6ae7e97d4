"""Reads messages from JSON lines: a text, or a local or remote file of any size."""

from __future__ import annotations

import gzip
import json
import lzma
import re
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from io import BufferedIOBase, BufferedReader, RawIOBase
from pathlib import Path
from typing import Any, BinaryIO, Final, Protocol, cast
from urllib.parse import unquote
from zipfile import BadZipFile, ZipFile

from servicebus_pair.airflow_runtime.message_spec import MessageReader, MessageSpec
from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.core.model import count_values

__all__ = ["JsonLinesFile", "JsonLinesText", "LineSource", "confined_path", "read_messages"]

_READ_BYTES: Final = 1 << 20
# A zstandard block unpacks to 128 KiB at most and has at least 4 bytes: these are 32 MiB.
_ZSTANDARD_BYTES: Final = 1024
_MAX_LINE_BYTES: Final = 128 << 20  # a message has at most 100 MB
_MAX_FILE_BYTES: Final = 16 << 30
_MAX_VALUES: Final = 1_000_000
_LOCAL_SCHEME: Final = re.compile(r"(?:file|local)://", re.IGNORECASE)
# "file:/etc/passwd" and "local:/etc/passwd" are files to a store, and names in the working directory to Python.
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


class LineSource(Protocol):
    """A source of lines that can be read more than once."""

    @property
    def name(self) -> str:
        """What error messages call it."""

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Return the lines without line ends and their numbers from 1; blank lines may be left out."""


@dataclass(frozen=True, slots=True)
class JsonLinesText:
    """The lines of a text."""

    text: str
    name: str = "json_lines"

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Return the lines of the text."""
        # Unpaired surrogates pass here, so that the error can name their line.
        yield from enumerate(self.text.encode(errors="surrogatepass").split(b"\n"), start=1)


@dataclass(frozen=True, slots=True)
class JsonLinesFile:
    """The lines of a file; names ending in ``.gz``, ``.bz2``, ``.xz`` or ``.zst`` are decompressed.

    :param path: a local path, or the URL of an object, such as ``s3://bucket/messages.jsonl``.
    :param conn_id: connection of the object store.
    """

    path: str
    conn_id: str | None = None

    @property
    def name(self) -> str:
        """The path; a URL may contain a connection id but no secret."""
        return self.path

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Return the lines, reading one megabyte at a time.

        :raises ConfigurationError: the file is not below ``[servicebus_pair] files_root``, does not exist, cannot be
            opened or decompressed, has a line of more than 128 MiB, or more than 16 GiB when it is decompressed.
        """
        try:
            file = _open(self.path, self.conn_id)
        except ConfigurationError:
            raise
        except (OSError, ValueError, ImportError, RuntimeError, BadZipFile) as error:  # of zip: encrypted, unknown
            raise ConfigurationError(f"path {self.path!r} cannot be opened, {type(error).__name__}: {error}") from error
        with file:
            try:
                yield from _split_lines(file)
            except Exception as error:
                if not _is_damage(error):
                    raise
                raise ConfigurationError(
                    f"path {self.path!r} cannot be decompressed, {type(error).__name__}: {error}: it must be complete, "
                    "in the format that its name says"
                ) from error


def read_messages(source: LineSource, reader: MessageReader) -> Iterator[MessageSpec]:
    """Read one message per line, skipping blank lines; the position of a message is its line number.

    :raises ConfigurationError: naming the line number, the field, its value and what is allowed.
    """
    for number, line in source.lines():
        if not line.strip():
            continue
        where = f"{source.name}, line {number}"
        if count_values(line, above=_MAX_VALUES, limit=_MAX_VALUES) > _MAX_VALUES:
            raise ConfigurationError(f"{where} has more than {_MAX_VALUES} values: no message has so many")
        try:
            value: Any = json.loads(line)
        except (ValueError, RecursionError) as error:
            # "from None", because the original exception holds the whole line, which may be a body.
            raise ConfigurationError(
                f"{where} is not JSON ({error}): it must be a text in quotes, or an object with a body"
            ) from None
        yield reader.read(value, where=where, position=number)


def _split_lines(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Split a file into lines; not by its own iterator, because fsspec's files cannot limit a line's length."""
    number, total, size = 1, 0, 0
    parts: list[bytes] = []
    while block := file.read(_READ_BYTES):
        total += len(block)
        if total > _MAX_FILE_BYTES:
            raise ConfigurationError(f"the file has more than {_MAX_FILE_BYTES} bytes: send it in several files")
        if b"\n" in block and not block.strip():
            # Blank lines are counted and not split: there may be hundreds of millions of them in a small archive.
            yield number, b"".join(parts)
            number, parts, size = number + block.count(b"\n"), [], 0
            continue
        first, *more = block.split(b"\n")
        parts.append(first)
        size += len(first)
        if size > _MAX_LINE_BYTES:
            raise ConfigurationError(f"a line has more than {_MAX_LINE_BYTES} bytes: no message is that long")
        if more:
            yield number, b"".join(parts)
            yield from enumerate(more[:-1], start=number + 1)
            number, parts, size = number + len(more), more[-1:], len(more[-1])
    if parts:
        yield number, b"".join(parts)


def confined_path(path: str) -> str:
    """Return the path to use for one that a task names; below ``[servicebus_pair] files_root``, if that is set.

    Of a folder it is the absolute path without links: how a store would read the given one makes no difference then.

    :raises ConfigurationError: it does not lie below that root.
    """
    root = _files_root()
    if not root:
        return path
    allowed: str | None = None
    if "://" in root:
        # "%2e%2e" is two dots to a server of HTTP, and what follows "::" would be another store.
        decoded = unquote(path).replace("\\", "/")
        if path.startswith(f"{root}/") and ".." not in decoded.split("/") and "::" not in path:
            allowed = path
    else:
        name = _without_local_scheme(path)
        with suppress(OSError, ValueError, RuntimeError):
            local = Path(name).resolve()
            if local.is_relative_to(Path(root).resolve()) and not _SCHEME.match(name) and "::" not in f"{name}{local}":
                allowed = str(local)
    if allowed is None:
        raise _outside(path, root)
    return allowed


def _open(path: str, conn_id: str | None) -> BinaryIO:
    from airflow.sdk import ObjectStoragePath

    root, confined = _files_root(), confined_path(path)
    location: Any = ObjectStoragePath(confined, conn_id=conn_id)
    if not root or "://" in root:
        if location.protocol in {"", "file", "local"}:
            local = Path(location.path)
            if local.exists() and not (local.is_file() or local.is_dir()):
                raise FileNotFoundError(f"there is no file {local}")  # a pipe would wait for its writer
        return _decompressed(location.open("rb"), confined)
    if not Path(confined).is_file():
        raise FileNotFoundError(f"there is no file {confined}")
    opened = Path(confined).open("rb")  # noqa: SIM115 - the caller closes it
    # A folder on the way may have become a link since it was checked; Linux says where the opened file lies.
    where = Path(f"/proc/self/fd/{opened.fileno()}")
    if where.exists() and not where.readlink().is_relative_to(Path(root).resolve()):
        opened.close()
        raise _outside(path, root)
    return _decompressed(opened, confined)


def _decompressed(file: BinaryIO, path: str) -> BinaryIO:
    from fsspec.compression import compr
    from fsspec.utils import infer_compression

    kind = infer_compression(path)
    if kind is not None:
        # Some stores cannot go back in a file.
        file = BufferedReader(cast("RawIOBase", file))
        if not file.peek(1):
            file.close()
            raise ValueError("it has 0 bytes, which no compressed file has: was it written completely?")
    if kind == "zip" and (members := len(ZipFile(file).namelist())) != 1:
        raise ValueError(f"the archive has {members} members: it must have one")
    if kind == "zstd" and not isinstance(compr[kind], type):
        return cast("BinaryIO", _Zstandard(file))
    return cast("BinaryIO", compr[kind](file, mode="rb"))


class _Zstandard(BufferedIOBase):
    """Frames of zstandard, whose own reader takes a file that was cut off for a complete one."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._rest = b""
        self._frame: Any = None

    def read(self, size: int | None = -1) -> bytes:  # noqa: ARG002  as many bytes as come
        """Return the next bytes, up to 32 MiB. :raises EOFError: the file ends in a frame."""
        import zstandard

        block = b""
        while not block:
            packed = self._rest or self._file.read(_ZSTANDARD_BYTES)
            if not packed and self._frame is not None:
                raise EOFError("the file ended before its last frame")
            if not packed:
                break
            frame = self._frame or zstandard.ZstdDecompressor().decompressobj()
            block = frame.decompress(packed)
            self._frame, self._rest = (None, frame.unused_data) if frame.eof else (frame, b"")
        return block


def _is_damage(error: Exception) -> bool:
    """Return whether a file is damaged; errors of a store, which may pass, are not named like this."""
    return (
        isinstance(error, EOFError | gzip.BadGzipFile | BadZipFile | lzma.LZMAError | zlib.error)
        or type(error).__name__ == "ZstdError"
        or (isinstance(error, OSError) and str(error) == "Invalid data stream")  # of bz2
    )


def _files_root() -> str:
    from servicebus_pair.airflow_runtime.airflow_version import server_conf

    root: str = server_conf.get("servicebus_pair", "files_root", fallback="")
    return _without_local_scheme(root.rstrip("/"))


def _without_local_scheme(path: str) -> str:
    found = _LOCAL_SCHEME.match(path)
    return path if found is None else path[found.end() :]


def _outside(path: str, root: str) -> ConfigurationError:
    return ConfigurationError(
        f"path {path!r} is not below {root!r}, to which [servicebus_pair] files_root confines the files of messages"
    )
