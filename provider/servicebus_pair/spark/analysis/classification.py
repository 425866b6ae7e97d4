"""Runs the pure rules of ``core.ledger.reconcile`` and ``core.ledger.incidents`` on executors.

Every message is classified on its own; the incidents of an entity are found from its time slots.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  the name that Spark's own documentation uses

from servicebus_pair.core.events import Route
from servicebus_pair.core.ledger import (
    INCIDENT_GAP_SECONDS,
    Found,
    History,
    Incident,
    LedgerSlice,
    Location,
    Outcome,
    Sent,
    Syphoned,
    Totals,
    Verdict,
    classify,
    find_incidents,
)
from servicebus_pair.spark.analysis.observations import FOUND
from servicebus_pair.spark.base.arrow_schema import RowSchema

__all__ = ["VERDICT_SCHEMA", "classify_messages", "find_ledger_incidents", "sum_by_incident"]

VERDICT_SCHEMA: Final = RowSchema(
    {
        "entity": "string",
        "message_id": "string",
        "outcome": "string",
        "route": "string",
        "syphoned": "boolean",
        "copies": "bigint",
        "duplicates": "bigint",
        "duplicates_predicted": "bigint",
        "wait_seconds": "double",
        "sent_at": "double",
        "moved_at": "double",
        "incident": "bigint",
    }
)
_TOTALS_SCHEMA: Final = RowSchema(
    {"entity": "string", "incident": "bigint"}
    | {each.name: "double" if each.name.endswith("seconds") else "bigint" for each in fields(Totals)}
)
_INCIDENT_SCHEMA: Final = RowSchema({"entity": "string", "number": "bigint", "began": "double", "ended": "double"})


def classify_messages(
    observations: DataFrame,
    *,
    paths: Mapping[str, tuple[str, ...]],
    incidents: Mapping[str, Sequence[Incident]],
    run: str | None,
) -> DataFrame:
    """Return one verdict per message of the entities in ``paths``.

    :param observations: result of ``combine_observations``.
    :param paths: where the messages of each entity arrive, by lower-case entity.
    :param incidents: the incidents of each entity, by lower-case entity.
    :param run: classify only messages that this run sent, and messages without a record of a send.
    """
    histories = (
        observations.where(F.col("entity").isin(*paths))
        .groupBy("entity", "id")
        .agg(F.collect_list(F.struct("kind", "route", "at", "queue", "run", "location")).alias("observations"))
    )
    if run is not None:
        sends = F.filter("observations", lambda each: each["kind"] == "sent")
        histories = histories.where(F.exists(sends, lambda each: each["run"] == run) | (F.size(sends) == 0))

    def classify_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            verdicts = (
                classify(
                    _history(row), receiving_entities=paths[row["entity"]], incidents=incidents.get(row["entity"], ())
                )
                for row in batch.to_pylist()
            )
            yield VERDICT_SCHEMA.batch(
                {name: getattr(verdict, name) for name in VERDICT_SCHEMA.columns} for verdict in verdicts
            )

    return histories.mapInArrow(classify_batches, VERDICT_SCHEMA.ddl)


def _history(row: Mapping[str, Any]) -> History:
    observations = row["observations"]
    return History(
        message_id=row["id"],
        entity=row["entity"],
        sent=tuple(
            Sent(Route(each["route"]), each["at"], each["queue"], each["run"])
            for each in observations
            if each["kind"] == "sent"
        ),
        syphoned=tuple(Syphoned(each["at"], each["queue"]) for each in observations if each["kind"] == "syphoned"),
        found=tuple(Found(each["queue"], Location(each["location"])) for each in observations if each["kind"] == FOUND),
    )


def sum_by_incident(verdicts: DataFrame) -> dict[tuple[str, int | None], Totals]:
    """Return totals by lower-case entity and incident number; ``None`` is for messages outside of any incident."""

    def sum_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        sums: dict[tuple[str, int | None], Totals] = {}
        for batch in batches:
            for row in batch.to_pylist():
                key = (row["entity"], row["incident"])
                sums[key] = sums.get(key, Totals()) + Totals.of(_verdict(row))
        yield _TOTALS_SCHEMA.batch(
            {"entity": entity, "incident": number, **asdict(part)} for (entity, number), part in sums.items()
        )

    totals: dict[tuple[str, int | None], Totals] = {}
    for row in verdicts.mapInArrow(sum_batches, _TOTALS_SCHEMA.ddl).collect():
        key = (row["entity"], row["incident"])
        part = Totals(**{each.name: row[each.name] for each in fields(Totals)})
        totals[key] = totals.get(key, Totals()) + part
    return totals


def _verdict(row: Mapping[str, Any]) -> Verdict:
    route = row["route"]
    return Verdict(**{**row, "outcome": Outcome(row["outcome"]), "route": None if route is None else Route(route)})


def find_ledger_incidents(ledger: DataFrame) -> dict[str, tuple[Incident, ...]]:
    """Return the incidents of each entity in order of time, by lower-case entity.

    :param ledger: result of ``read_ledger``.
    """
    slices = (
        ledger.where(F.col("kind") == "sent")
        .groupBy(F.lower("entity").alias("entity"), F.floor(F.col("at") / INCIDENT_GAP_SECONDS).alias("slot"))
        .agg(*_first_and_last("diverted", Route.BACKLOG), *_first_and_last("direct", Route.PRIMARY))
    )
    incidents: dict[str, tuple[Incident, ...]] = {}
    # All rows of one entity come from one group, in order.
    for row in slices.groupBy("entity").applyInArrow(_entity_incidents, _INCIDENT_SCHEMA.ddl).collect():
        incident = Incident(row["number"], row["began"], row["ended"])
        incidents[row["entity"]] = (*incidents.get(row["entity"], ()), incident)
    return incidents


def _first_and_last(name: str, route: Route) -> tuple[Column, Column]:
    at = F.when(F.col("route") == str(route), F.col("at"))
    return F.min(at).alias(f"{name}_first"), F.max(at).alias(f"{name}_last")


def _entity_incidents(table: pa.Table) -> pa.Table:
    rows = table.sort_by("slot").to_pylist()
    incidents = find_incidents(LedgerSlice(_span(row, "diverted"), _span(row, "direct")) for row in rows)
    entity = rows[0]["entity"]
    return _INCIDENT_SCHEMA.table({"entity": entity, **asdict(incident)} for incident in incidents)


def _span(row: Mapping[str, Any], name: str) -> tuple[float, float] | None:
    first = row[f"{name}_first"]
    return None if first is None else (first, row[f"{name}_last"])
