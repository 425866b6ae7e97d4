"""JSON lines: one message a line, from a text or from a file of any size, local or in an object store."""

from __future__ import annotations

import gzip
import json
import lzma
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, Final, Protocol

from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.operators.messages import MessageReader, MessageSpec

__all__ = ["JsonLines", "LinesFile", "LinesText", "read_lines"]

_BLOCK_BYTES: Final = 1 << 20
# A message has 100 MB at most.
_LONGEST_LINE_BYTES: Final = 128 << 20


class JsonLines(Protocol):
    """Where lines come from; each call of :meth:`lines` begins again."""

    @property
    def name(self) -> str:
        """What errors call it."""

    def lines(self) -> Iterator[bytes]:
        """Answer the lines, without their ends."""


@dataclass(frozen=True, slots=True)
class LinesText:
    """Lines of a text."""

    text: str
    name: str = "json_lines"

    def lines(self) -> Iterator[bytes]:
        """Answer the lines of the text."""
        # Half a character is for the reader of its line to refuse.
        yield from self.text.encode(errors="surrogatepass").split(b"\n")


@dataclass(frozen=True, slots=True)
class LinesFile:
    """Lines of a file; one whose name ends in ``.gz``, ``.bz2``, ``.xz`` or ``.zst`` is read unpacked.

    :param path: a local path, or the address of an object, such as ``s3://bucket/messages.jsonl``.
    :param conn_id: connection of the object store.
    """

    path: str
    conn_id: str | None = None

    @property
    def name(self) -> str:
        """The path; an address may carry a connection's name, and never a secret."""
        return self.path

    def lines(self) -> Iterator[bytes]:
        """Answer the lines, reading a megabyte at a time.

        :raises ConfigurationError: the file does not exist or cannot be opened, or a line is endless.
        """
        from airflow.sdk import ObjectStoragePath

        try:
            place: Any = ObjectStoragePath(self.path, conn_id=self.conn_id)
            file = place.open("rb", compression="infer")
        except (OSError, ValueError, ImportError) as error:
            raise ConfigurationError(f"path {self.path!r} cannot be opened, {type(error).__name__}: {error}") from error
        with file:
            try:
                yield from _split(file)
            except (EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error) as error:
                raise ConfigurationError(
                    f"path {self.path!r} cannot be unpacked, {type(error).__name__}: {error}: it must be whole, and of "
                    "the kind that its name says"
                ) from error


def read_lines(source: JsonLines, reader: MessageReader) -> Iterator[MessageSpec]:
    """Read the message of each line; blank lines are none. A message's place is the number of its line.

    :raises ConfigurationError: naming the line by its number, the field, its value and what is allowed.
    """
    for number, line in enumerate(source.lines(), start=1):
        if not line.strip():
            continue
        where = f"{source.name}, line {number}"
        try:
            value: Any = json.loads(line)
        except (ValueError, RecursionError) as error:
            # Without its cause, which carries the whole line.
            raise ConfigurationError(
                f"{where} is not JSON ({error}): it must be a text in quotes, or an object with a body"
            ) from None
        yield reader.read(value, where=where, place=number)


def _split(file: BinaryIO) -> Iterator[bytes]:
    """Cut a file into lines, whatever its kind: those of object stores cannot bound a line."""
    rest = b""
    while block := file.read(_BLOCK_BYTES):
        *whole, rest = (rest + block).split(b"\n")
        yield from whole
        if len(rest) > _LONGEST_LINE_BYTES:
            raise ConfigurationError(f"a line has more than {_LONGEST_LINE_BYTES} bytes: no message is that long")
    if rest:
        yield rest
