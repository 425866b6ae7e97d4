"""Ledger files that ``compact`` has folded into a Parquet file, and those that are in it and still beside it.

While a list ``NAME.folded`` lies beside ``NAME.parquet``, the files in it may still be there, and readers pass over
them: the list is written before the Parquet file gets its name, and deleted after the files.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from servicebus_pair.core.ledger.segments import ledger_storage

FOLDED: Final = ".parquet"
FOLD_LIST: Final = ".folded"


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
                twice += json.loads(storage.read(name))
    return twice
