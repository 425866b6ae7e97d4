"""Rows that can never be sent: which failures say so, and the table to which they are written."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from io import BytesIO
from typing import Any, Final

import pyarrow as pa
from pyarrow import parquet

from servicebus_pair.core.errors import (
    AuthenticationError,
    AuthorizationError,
    ConfigurationError,
    EntityNotFoundError,
    InvalidMessageError,
    MessageTooLargeError,
    RefusedError,
    RejectedError,
    SendError,
)
from servicebus_pair.core.spool import SHARED_MODE, open_storage
from servicebus_pair.spark.base.redaction import SparkTaskError

_ROW_ERRORS: Final = (InvalidMessageError, MessageTooLargeError, RejectedError)
_PERMANENT_ERRORS: Final = (
    InvalidMessageError,
    MessageTooLargeError,
    AuthenticationError,
    AuthorizationError,
    ConfigurationError,
    EntityNotFoundError,
    RefusedError,
)
_ERROR_COLUMN: Final = "error"


def is_permanent(failure: BaseException) -> bool:
    """Return whether another attempt of the task would fail in the same way."""
    return isinstance(_root(failure), _PERMANENT_ERRORS)


def is_verdict_on_row(error: SendError) -> bool:
    """Return whether a send failed because of one of its messages, not because of its entity."""
    return isinstance(_root(error), _ROW_ERRORS)


def _root(failure: BaseException) -> BaseException:
    if isinstance(failure, SendError):
        return _root(failure.cause)
    if isinstance(failure, SparkTaskError) and failure.__cause__ is not None:
        return _root(failure.__cause__)
    return failure


class RejectedRows:
    """The rejected rows of one task, as a Parquet file with the table's columns and the reason.

    Another attempt of the task replaces the file.

    :param folder: the table, or its URL; ``None`` collects nothing.
    :param name: of the task, the same in each attempt.
    """

    def __init__(self, folder: str | None, *, name: str) -> None:
        self._folder = folder
        self._file = f"{blake2b(name.encode(), digest_size=16).hexdigest()}.parquet"
        self._rows: list[dict[str, Any]] = []

    @property
    def collects(self) -> bool:
        """Whether rejected rows are collected."""
        return self._folder is not None

    @property
    def count(self) -> int:
        """Number of rejected rows."""
        return len(self._rows)

    def add(self, row: Mapping[str, Any], reason: str) -> None:
        """Add a row."""
        self._rows.append({**row, _ERROR_COLUMN: reason})

    def write(self, schema: pa.Schema) -> None:
        """Replace the file by all rows added so far. :raises OSError: it cannot be written."""
        if not self._rows or self._folder is None:
            return
        table = pa.Table.from_pylist(self._rows, schema=schema.append(pa.field(_ERROR_COLUMN, pa.string())))
        content = BytesIO()
        parquet.write_table(table, content)
        storage = open_storage(self._folder, what="option errorTable", mode=SHARED_MODE)
        storage.replace(self._file, content.getvalue())
