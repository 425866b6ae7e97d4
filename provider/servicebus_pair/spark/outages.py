"""The incidents that a ledger tells of, found on executors with the pure rule of ``core.incidents``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  the name that Spark's own documentation uses

from servicebus_pair.core.events import Route
from servicebus_pair.core.incidents import QUIET_SECONDS, Incident, Slice, incidents
from servicebus_pair.spark.shape import Shape

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ledger_incidents"]

_INCIDENT: Final = Shape({"entity": "string", "number": "bigint", "began": "double", "ended": "double"})


def ledger_incidents(ledger: DataFrame) -> dict[str, tuple[Incident, ...]]:
    """Answer the incidents of each entity, by folded path, in the order of time.

    :param ledger: what ``read_ledger`` answers.
    """
    slices = (
        ledger.where(F.col("kind") == "sent")
        .groupBy(F.lower("entity").alias("entity"), F.floor(F.col("at") / QUIET_SECONDS).alias("slot"))
        .agg(*_ends("diverted", Route.BACKLOG), *_ends("direct", Route.PRIMARY))
    )
    found: dict[str, tuple[Incident, ...]] = {}
    # A task yields each entity's incidents in their order, and all of one entity are one group.
    for row in slices.groupBy("entity").applyInArrow(_incidents, _INCIDENT.ddl).collect():
        incident = Incident(row["number"], row["began"], row["ended"])
        found[row["entity"]] = (*found.get(row["entity"], ()), incident)
    return found


def _ends(name: str, route: Route) -> tuple[Column, Column]:
    at = F.when(F.col("route") == str(route), F.col("at"))
    return F.min(at).alias(f"{name}_first"), F.max(at).alias(f"{name}_last")


def _incidents(table: pa.Table) -> pa.Table:
    rows = table.sort_by("slot").to_pylist()
    found = incidents(Slice(_span(row, "diverted"), _span(row, "direct")) for row in rows)
    entity = rows[0]["entity"]
    return _INCIDENT.table({"entity": entity, **asdict(incident)} for incident in found)


def _span(row: Mapping[str, Any], name: str) -> tuple[float, float] | None:
    first = row[f"{name}_first"]
    return None if first is None else (first, row[f"{name}_last"])
