"""The name of a spool: an id, and the place where its first message was written; kept in a file of the spool.

Two machines may have different folders at the same path. The ledger names the spool, so that nobody
takes an empty folder for the one in which a message waits.
"""

from __future__ import annotations

import uuid
from contextlib import suppress
from typing import Final

from servicebus_pair.core.model.regular_files import IrregularFileError
from servicebus_pair.core.spool.storage import MAX_SMALL_FILE_BYTES, SpoolStorage

NAME_FILE: Final = "name"
_MAX_CHARACTERS: Final = 1000


def read_name(storage: SpoolStorage) -> str | None:
    """Return the name of a spool; ``None`` while nothing was written to it."""
    try:
        content = storage.read(NAME_FILE, MAX_SMALL_FILE_BYTES)
    except (FileNotFoundError, IrregularFileError):
        return None
    # Whoever may write to the folder may write this file, too; its text goes to logs and reports.
    text = " ".join(content.decode(errors="replace").split())[:_MAX_CHARACTERS]
    return "".join(each for each in text if each.isprintable()) or None


def obtain_name(storage: SpoolStorage) -> str:
    """Return the name of a spool, and give it one if it has none; processes that do so at once agree on it."""
    name = read_name(storage)
    if name is None:
        with suppress(FileExistsError):
            storage.create(NAME_FILE, f"{uuid.uuid4().hex[:12]} {storage.place}\n".encode())
        name = read_name(storage)
    # An empty file cannot be ours; it is still the only name that others will read.
    return f"without a name {storage.place}" if name is None else name
