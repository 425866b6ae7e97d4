"""The Parquet files into which ``compact`` folds ledger files, and the folded files that still lie beside them.

While a list ``NAME.folded`` lies beside ``NAME.parquet``, the files in it may still be there, and readers pass over
them: the list is written before the Parquet file gets its name, and deleted after the files.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, BinaryIO, Final

from servicebus_pair.core.ledger.parquet_pages import page_sizes
from servicebus_pair.core.ledger.segments import ledger_storage
from servicebus_pair.core.model.errors import ConfigurationError
from servicebus_pair.core.model.regular_files import parse_json
from servicebus_pair.core.spool.storage import StreamedStorage

FOLDED: Final = ".parquet"
FOLD_LIST: Final = ".folded"
_MAX_LIST_BYTES: Final = 64 << 20
_BLOCK_BYTES: Final = 512  # of st_blocks, whatever the file system's are
# What ``compact`` writes at once has 32 MB as JSON.
_MAX_GROUP_BYTES: Final = 1 << 28
# pyarrow begins a new page after a megabyte, which it looks for every 1024 records.
_MAX_PAGE_BYTES: Final = 16 << 20
# Of ids that have a hundred characters in common, which are packed best, it is about sixty.
_MAX_RATIO: Final = 256
_MAX_FOOTER_BYTES: Final = 64 << 20
_FOOTER_END: Final = 8
_MAGIC: Final = b"PAR1"
_PAGE_BYTES: Final = 1024
_NAME: Final = re.compile(r"[^/\x00-\x1f\x7f]+\.jsonl")


def folded_problem(metadata: Any, file: BinaryIO) -> str | None:
    """Return why a Parquet file is none that ``compact`` wrote: one of a few bytes may hold up its readers for hours.

    :param metadata: of the file, as pyarrow reads it.
    """
    size_bytes = _stored_bytes(file)
    groups = map(metadata.row_group, range(metadata.num_row_groups))
    if any(each.total_byte_size > _MAX_GROUP_BYTES for each in groups):
        return "has a larger part than compact writes"
    # Each record has an id of its own, which takes some bytes however it is compressed.
    if metadata.num_rows > size_bytes:
        return f"has {metadata.num_rows} records in {size_bytes} bytes, more than compact writes"
    # In a store all of it would be read twice.
    return _page_problem(file, metadata, size_bytes) if _is_file(file) else None


def _page_problem(file: BinaryIO, metadata: Any, size_bytes: int) -> str | None:
    # A column has a page for 20,000 records, of which each takes a byte or more, and one for its dictionary.
    limit = 2 * metadata.num_columns * metadata.num_row_groups + size_bytes // _PAGE_BYTES
    try:
        sizes = list(islice(page_sizes(file, metadata), limit + 1))
    except ValueError as error:
        return f"is damaged: {error}"
    is_written = len(sizes) <= limit and max(sizes, default=0) <= _MAX_PAGE_BYTES
    is_written &= sum(sizes) <= _MAX_GROUP_BYTES + _MAX_RATIO * size_bytes
    return None if is_written else "has larger or more pages than compact writes"


def footer_problem(file: BinaryIO) -> str | None:
    """Return why the metadata at the end of a Parquet file must not be read: all of it would be in memory."""
    file.seek(max(0, file.seek(0, os.SEEK_END) - _FOOTER_END))
    size_bytes = int.from_bytes(file.read(_FOOTER_END)[: -len(_MAGIC)], "little")
    file.seek(0)
    return None if size_bytes <= _MAX_FOOTER_BYTES else f"is damaged: it has {size_bytes} bytes of metadata"


def _is_file(file: BinaryIO) -> bool:
    try:
        file.fileno()
    except (OSError, AttributeError):
        return False
    return True


def _stored_bytes(file: BinaryIO) -> int:
    """Return how large a file is; of a sparse one, how much of it is stored."""
    if not _is_file(file):
        return file.seek(0, os.SEEK_END)
    status = os.fstat(file.fileno())
    # Some file systems do not count blocks.
    return min(status.st_size, status.st_blocks * _BLOCK_BYTES or status.st_size)


def folded_twice(location: str | os.PathLike[str], folders: Sequence[str] = ("",)) -> list[str]:
    """Return the names of files that are in a Parquet file already, after an interrupted fold.

    :param location: of the ledger.
    :param folders: below it, to be searched.
    """
    storage = ledger_storage(location)
    names = {each.name for folder in folders for each in storage.list(folder)}
    twice: list[str] = []
    for name in names:
        if name.endswith(FOLD_LIST) and name.removesuffix(FOLD_LIST) + FOLDED in names:
            with suppress(FileNotFoundError):  # the fold was completed meanwhile
                twice += read_fold_list(storage, name)
    return twice


def read_fold_list(storage: StreamedStorage, name: str) -> list[str]:
    """Return the names in a list. :raises ConfigurationError: ``compact`` did not write it."""
    with storage.open(name) as file:
        content = file.read(_MAX_LIST_BYTES)
    try:
        listed = parse_json(content)  # the beginning of a longer one is no JSON
    except ValueError:
        listed = None
    # The files are deleted: a name that leads elsewhere would delete what is there.
    if not isinstance(listed, list) or not all(isinstance(each, str) and _NAME.fullmatch(each) for each in listed):
        raise ConfigurationError(f"{name!r} is not a list of ledger files, as compact writes them: delete it")
    return listed
