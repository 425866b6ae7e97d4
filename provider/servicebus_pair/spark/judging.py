"""Judging every message on executors with the pure rules of ``core.reconcile``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  the name that Spark's own documentation uses

from servicebus_pair.core.events import Route
from servicebus_pair.core.incidents import Incident
from servicebus_pair.core.reconcile import (
    Found,
    History,
    Location,
    Outcome,
    Sent,
    Syphoned,
    Totals,
    Verdict,
    judge,
)
from servicebus_pair.spark.evidence import FOUND
from servicebus_pair.spark.shape import Shape

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["VERDICT", "judged", "totals"]

VERDICT: Final = Shape(
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
_TOTALS: Final = Shape(
    {"entity": "string", "incident": "bigint"}
    | {each.name: "double" if each.name.endswith("seconds") else "bigint" for each in fields(Totals)}
)


def judged(
    facts: DataFrame,
    *,
    places: Mapping[str, tuple[str, ...]],
    incidents: Mapping[str, Sequence[Incident]],
    run: str | None,
) -> DataFrame:
    """Answer one verdict per message of the entities in ``places``.

    :param facts: what ``evidence`` answers.
    :param places: the paths of each entity's places, by folded entity path.
    :param incidents: those of each entity, by folded path.
    :param run: judge only what this run sent, and what nobody is known to have sent.
    """
    histories = (
        facts.where(F.col("entity").isin(*places))
        .groupBy("entity", "id")
        .agg(F.collect_list(F.struct("kind", "route", "at", "queue", "run", "location")).alias("facts"))
    )
    if run is not None:
        sent = F.filter("facts", lambda fact: fact["kind"] == "sent")
        histories = histories.where(F.exists(sent, lambda fact: fact["run"] == run) | (F.size(sent) == 0))

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            verdicts = (_judged(row, places=places, incidents=incidents) for row in batch.to_pylist())
            yield VERDICT.batch({name: getattr(verdict, name) for name in VERDICT.columns} for verdict in verdicts)

    return histories.mapInArrow(task, VERDICT.ddl)


def totals(verdicts: DataFrame) -> dict[tuple[str, int | None], Totals]:
    """Answer the totals of each incident of each entity, by folded path and number; ``None`` is outside of any."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        sums: dict[tuple[str, int | None], Totals] = {}
        for batch in batches:
            for row in batch.to_pylist():
                key = (row["entity"], row["incident"])
                sums[key] = sums.get(key, Totals()) + Totals.of(_verdict(row))
        yield _TOTALS.batch(
            {"entity": entity, "incident": number, **asdict(part)} for (entity, number), part in sums.items()
        )

    whole: dict[tuple[str, int | None], Totals] = {}
    for row in verdicts.mapInArrow(task, _TOTALS.ddl).collect():
        key = (row["entity"], row["incident"])
        part = Totals(**{each.name: row[each.name] for each in fields(Totals)})
        whole[key] = whole.get(key, Totals()) + part
    return whole


def _judged(
    row: Mapping[str, Any],
    *,
    places: Mapping[str, tuple[str, ...]],
    incidents: Mapping[str, Sequence[Incident]],
) -> Verdict:
    entity = row["entity"]
    return judge(_history(row), places=places[entity], incidents=incidents.get(entity, ()))


def _history(row: Mapping[str, Any]) -> History:
    facts = row["facts"]
    return History(
        message_id=row["id"],
        entity=row["entity"],
        sent=tuple(
            Sent(Route(fact["route"]), fact["at"], fact["queue"], fact["run"])
            for fact in facts
            if fact["kind"] == "sent"
        ),
        syphoned=tuple(Syphoned(fact["at"], fact["queue"]) for fact in facts if fact["kind"] == "syphoned"),
        found=tuple(Found(fact["queue"], Location(fact["location"])) for fact in facts if fact["kind"] == FOUND),
    )


def _verdict(row: Mapping[str, Any]) -> Verdict:
    route = row["route"]
    return Verdict(**{**row, "outcome": Outcome(row["outcome"]), "route": None if route is None else Route(route)})
