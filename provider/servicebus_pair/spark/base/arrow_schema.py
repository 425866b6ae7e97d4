"""A row schema defined once for both Spark (DDL) and Arrow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

_ARROW_TYPES: Final = {
    "string": pa.string(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}


@dataclass(frozen=True, slots=True)
class RowSchema:
    """Spark's names of the column types, by column."""

    columns: Mapping[str, str]

    @property
    def ddl(self) -> str:
        """The schema as a Spark DDL string."""
        return ", ".join(f"`{name}` {kind}" for name, kind in self.columns.items())

    def batch(self, rows: Iterable[Mapping[str, Any]]) -> pa.RecordBatch:
        """Return the rows as one Arrow record batch."""
        return pa.RecordBatch.from_pylist(list(rows), schema=self._arrow_schema())

    def from_columns(self, columns: Iterable[list[Any]]) -> pa.RecordBatch:
        """Return the values of each column as one Arrow record batch."""
        schema = self._arrow_schema()
        arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def table(self, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
        """Return the rows as an Arrow table."""
        return pa.Table.from_pylist(list(rows), schema=self._arrow_schema())

    def _arrow_schema(self) -> pa.Schema:
        return pa.schema([(name, _ARROW_TYPES[kind]) for name, kind in self.columns.items()])
