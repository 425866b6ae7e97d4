"""The shape of rows that a task yields, said once for Spark and for Arrow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

__all__ = ["Shape"]

_ARROW: Final = {"string": pa.string(), "bigint": pa.int64(), "double": pa.float64(), "boolean": pa.bool_()}


@dataclass(frozen=True, slots=True)
class Shape:
    """Columns by name; types are ``string``, ``bigint``, ``double`` and ``boolean``."""

    columns: Mapping[str, str]

    @property
    def ddl(self) -> str:
        """The schema as Spark reads it."""
        return ", ".join(f"{name} {kind}" for name, kind in self.columns.items())

    def batch(self, rows: Iterable[Mapping[str, Any]]) -> pa.RecordBatch:
        """Answer rows as one Arrow batch."""
        return pa.RecordBatch.from_pylist(list(rows), schema=self._schema())

    def table(self, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
        """Answer rows as an Arrow table."""
        return pa.Table.from_pylist(list(rows), schema=self._schema())

    def _schema(self) -> pa.Schema:
        return pa.schema([(name, _ARROW[kind]) for name, kind in self.columns.items()])
