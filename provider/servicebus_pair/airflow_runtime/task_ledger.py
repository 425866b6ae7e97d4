"""Opens the ledger of a task (SPEC section 9)."""

from __future__ import annotations

import os
from typing import TypeAlias

from servicebus_pair.core import Ledger
from servicebus_pair.core.errors import ConfigurationError

__all__ = ["StoragePath", "open_ledger"]

StoragePath: TypeAlias = "str | os.PathLike[str]"


def open_ledger(folder: StoragePath, *, run: str) -> Ledger:
    """Open a ledger in a folder.

    :param run: name of the run in the records.
    :raises ConfigurationError: the folder cannot be written.
    """
    try:
        return Ledger(folder, run=run)
    except OSError as error:
        raise ConfigurationError(
            f"ledger {str(folder)!r} cannot be written, {type(error).__name__}: {error.strerror}: it must be a folder "
            "that the worker may write to"
        ) from error
