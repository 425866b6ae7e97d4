"""The Parquet files into which ``compact`` folds ledger files, and the folded files that still lie beside them.

While a list ``NAME.folded`` lies beside ``NAME.parquet``, the files in it may still be there, and readers pass over
them: the list is written before the Parquet file gets its name, and deleted after the files.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from servicebus_pair.core.ledger.segments import ledger_storage
from servicebus_pair.core.model.errors import ConfigurationError
from servicebus_pair.core.spool.storage import StreamedStorage

FOLDED: Final = ".parquet"
FOLD_LIST: Final = ".folded"
_MAX_LIST_BYTES: Final = 64 << 20
_NAME: Final = re.compile(r"[^/\x00-\x1f\x7f]+\.jsonl")


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
        listed = json.loads(content)  # the beginning of a longer one is no JSON
    except (ValueError, RecursionError):
        listed = None
    # The files are deleted: a name that leads elsewhere would delete what is there.
    if not isinstance(listed, list) or not all(isinstance(each, str) and _NAME.fullmatch(each) for each in listed):
        raise ConfigurationError(f"{name!r} is not a list of ledger files, as compact writes them: delete it")
    return listed
