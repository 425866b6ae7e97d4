"""``reconcile``: the ledger against the queues, into tables, a summary and a page.

The output folder holds, all of it this job's own:

===================  ==========================================================================
``verdicts/``        Parquet, a row per message: outcome, route, copies, duplicates, wait, incident
``summary/``         Parquet, a row per entity: totals, wait percentiles, order of sessions
``incidents/``       Parquet, a row per incident: when, totals, wait percentiles, messages out of order
``sessions/``        Parquet, a row per session and place: messages, and how many of them out of order
``overtaken/``       Parquet, a row per message of a session that a later one has overtaken, and by which
``flow/``            Parquet, a row per step of time and way: messages
``report.html``      the same for people, one self-contained file
``summary.json``     the same for programs; removed first and written last, so that it stands
                     only beside complete tables
===================  ==========================================================================
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812  the name that Spark's own documentation uses

from servicebus_pair.core.costs import STANDARD_PRICES, Operations, bill
from servicebus_pair.core.incidents import Incident
from servicebus_pair.core.ports import Clock, SystemClock
from servicebus_pair.core.reconcile import Outcome, Totals
from servicebus_pair.spark.costing import count_records
from servicebus_pair.spark.evidence import evidence, ledger_figures, peeked, read_ledger
from servicebus_pair.spark.files import write_json
from servicebus_pair.spark.judging import judged, totals
from servicebus_pair.spark.mounts import for_spark, shared
from servicebus_pair.spark.outages import ledger_incidents
from servicebus_pair.spark.peeking import ABSENT, PING, UNREADABLE
from servicebus_pair.spark.places import Place, by_entity
from servicebus_pair.spark.reconciliation import LedgerCost, Order, Reconciled, Reconciliation, Waits
from servicebus_pair.spark.references import PairReference
from servicebus_pair.spark.report import render
from servicebus_pair.spark.sessions import by_session, session_messages
from servicebus_pair.spark.shape import Shape
from servicebus_pair.spark.timing import Flow, flow, waits

__all__ = ["reconcile"]

_log = logging.getLogger(__name__)
_EXAMPLES: Final = 20
_TWICE: Final = "duplicates"
_OVERTAKEN: Final = "out of order"
_FLOW: Final = Shape({"at": "double", "seconds": "double", "way": "string", "messages": "bigint"})
_INCIDENT: Final = tuple(
    Reconciled("", Incident(0, 0.0, 0.0), Totals(), Waits(), home_at=None, out_of_order=0).to_json()
)


def reconcile(
    spark: SparkSession,
    *,
    pair_reference: str,
    ledger: str,
    places: Sequence[Place],
    output: str,
    run: str | None = None,
    clock: Clock | None = None,
) -> Reconciliation:
    """Judge every message and write the output folder. Reads queues by peek alone; idempotent.

    Nobody may receive from the entities, before or meanwhile. Sends and drains may go on: the ledger
    is read first, then the backlog, then the places, in the direction that messages move. So one under
    way is never taken for lost; it can be counted as one that the ledger does not know, or twice.

    :param pair_reference: where executors find the pair's settings: ``env:NAME`` or ``file:PATH``.
    :param ledger: folder of the ledger.
    :param places: queues and subscriptions of the primary; for a topic, all that should hold its messages.
    :param output: folder, on a file system that driver and executors share.
    :param run: judge only what this run sent, and what nobody is known to have sent.
    :raises ConfigurationError: an argument, or the ledger, is not what it should be.
    :raises pyspark.errors.PySparkException: a queue cannot be read; the message is free of secrets.
    """
    timer = SystemClock() if clock is None else clock
    began = timer.now()
    folder = Path(shared(output, what="output"))
    records = read_ledger(spark, ledger)
    reference = PairReference.parse(pair_reference)
    backlog, arrived = peeked(spark, reference, None), peeked(spark, reference, places)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "summary.json").unlink(missing_ok=True)
    kept = [table.persist() for table in (records, backlog, arrived)]
    try:
        figures = ledger_figures(records)
        backlog.count()
        found = backlog.unionByName(arrived)
        facts, paths = evidence(records, found), by_entity(places)
        incidents = ledger_incidents(records)
        verdicts = _kept(judged(facts, places=paths, incidents=incidents, run=run), folder / "verdicts")
        overtaken, order = _order(records, arrived, folder, run=run)
        parts = totals(verdicts)
        notes = (
            found.where(F.col("location").isin(ABSENT, PING, UNREADABLE)).groupBy("location", "place").count().collect()
        )
        unknown = facts.where(~F.col("entity").isin(*paths)).groupBy("entity").count().collect()
        unexamined = {row["entity"]: row["count"] for row in unknown}
        by_waits = _waits(verdicts, "entity")
        result = Reconciliation(
            run=run,
            entities={entity: _sum(parts, entity) for entity in paths},
            waits={entity: by_waits.get((entity,), Waits()) for entity in paths},
            order={entity: order.get(entity, Order()) for entity in paths},
            incidents=_incidents(verdicts, overtaken, incidents, parts),
            cost=_cost(records, run=run),
            ledger=figures,
            absent=tuple(sorted({row["place"] for row in notes if row["location"] == ABSENT})),
            unreadable={row["place"]: row["count"] for row in notes if row["location"] == UNREADABLE},
            pings=sum(row["count"] for row in notes if row["location"] == PING),
            unaddressed=unexamined.pop("", 0),
            unexamined=unexamined,
            examples=_examples(verdicts, overtaken),
            seconds=round(timer.now() - began, 3),
        )
        _write(spark, result, over_time := flow(verdicts), folder)
        page = render(result.to_json(), over_time, waits(verdicts))
        (folder / "report.html").write_text(page, encoding="utf-8")
    finally:
        for table in kept:
            table.unpersist()
    write_json(folder / "summary.json", result.to_json())
    whole = result.totals
    _log.info("reconciled messages=%d lost=%d duplicates=%d", whole.messages, whole.lost, whole.duplicates)
    return result


def _kept(table: DataFrame, path: Path) -> DataFrame:
    """Write a table and answer what was written, so that it is made once."""
    table.write.mode("overwrite").parquet(for_spark(path))
    return table.sparkSession.read.parquet(for_spark(path))


def _order(
    records: DataFrame, arrived: DataFrame, folder: Path, *, run: str | None
) -> tuple[DataFrame, dict[str, Order]]:
    """Judge and write the order of sessions; answer what was overtaken, and the figures of each entity."""
    messages = session_messages(records, arrived, run=run).persist()
    try:
        sessions = _kept(by_session(messages), folder / "sessions")
        overtaken = _kept(messages.where(F.col("overtaken_by").isNotNull()), folder / "overtaken")
    finally:
        messages.unpersist()
    rows = sessions.groupBy("entity").agg(
        F.count("*").alias("sessions"),
        F.sum("messages").alias("session_messages"),
        F.count_if(F.col("out_of_order") > 0).alias("sessions_out_of_order"),
        F.sum("out_of_order").alias("out_of_order"),
    )
    return overtaken, {row["entity"]: Order(*row[1:]) for row in rows.collect()}


def _sum(parts: Mapping[tuple[str, int | None], Totals], entity: str) -> Totals:
    return sum((part for (name, _), part in parts.items() if name == entity), Totals())


def _waits(verdicts: DataFrame, *keys: str) -> dict[tuple[Any, ...], Waits]:
    rows = (
        verdicts.where(F.col("wait_seconds").isNotNull())
        .groupBy(*keys)
        .agg(F.percentile("wait_seconds", 0.5).alias("median"), F.percentile("wait_seconds", 0.95).alias("p95"))
        .collect()
    )
    return {tuple(row[key] for key in keys): Waits(round(row["median"], 3), round(row["p95"], 3)) for row in rows}


def _incidents(
    verdicts: DataFrame,
    overtaken: DataFrame,
    incidents: Mapping[str, Sequence[Incident]],
    parts: Mapping[tuple[str, int | None], Totals],
) -> list[Reconciled]:
    diverted = verdicts.where(F.col("incident").isNotNull())
    home = {tuple(row[:2]): row[2] for row in diverted.groupBy("entity", "incident").agg(F.max("moved_at")).collect()}
    late = diverted.join(overtaken.select("entity", "place", "message_id"), ["entity", "message_id"])
    counts = {tuple(row[:2]): row[2] for row in late.groupBy("entity", "incident").count().collect()}
    by_waits = _waits(diverted, "entity", "incident")
    return [
        Reconciled(
            entity=entity,
            incident=incident,
            totals=parts[key],
            waits=by_waits.get(key, Waits()),
            home_at=home[key],
            out_of_order=counts.get(key, 0),
        )
        for entity, found in incidents.items()
        for incident in found
        if (key := (entity, incident.number)) in home
    ]


def _cost(records: DataFrame, *, run: str | None) -> LedgerCost:
    by_month: dict[date, Operations] = {}
    for each in count_records(records if run is None else records.where(F.col("run") == run)):
        month = each.day.replace(day=1)
        by_month[month] = by_month.get(month, Operations()) + each.operations
    bills = [bill(operations) for operations in by_month.values()]
    amount = sum((each.amount for each in bills), Decimal("0.00"))
    return LedgerCost(sum(by_month.values(), Operations()), str(amount), STANDARD_PRICES)


def _examples(verdicts: DataFrame, overtaken: DataFrame) -> dict[str, tuple[str, ...]]:
    asking = [str(outcome) for outcome in Outcome if outcome is not Outcome.DELIVERED]
    kinds = F.array(F.when(F.col("outcome").isin(asking), F.col("outcome")), F.when(F.col("duplicates") > 0, _TWICE))
    rank = F.row_number().over(Window.partitionBy("kind").orderBy("entity", "message_id"))
    rows = (
        verdicts.select("entity", "message_id", F.explode(F.array_compact(kinds)).alias("kind"))
        .unionByName(overtaken.select("entity", "message_id", F.lit(_OVERTAKEN).alias("kind")).distinct())
        .withColumn("rank", rank)
        .where(F.col("rank") <= _EXAMPLES)
        .orderBy("kind", "rank")
        .collect()
    )
    return {
        kind: tuple(f"{row['entity']} {row['message_id']}" for row in rows if row["kind"] == kind)
        for kind in (*asking, _TWICE, _OVERTAKEN)
    }


def _write(spark: SparkSession, result: Reconciliation, over_time: Flow, folder: Path) -> None:
    by_entity = [{"entity": entity, **values} for entity, values in result.by_entity().items()]
    _write_rows(spark, _shape(by_entity[0]), by_entity, folder / "summary")
    _write_rows(spark, _shape(_INCIDENT), (each.to_json() for each in result.incidents), folder / "incidents")
    steps = (
        {"at": over_time.start + slot * over_time.step, "seconds": over_time.step, "way": way, "messages": count}
        for way, slots in over_time.counts.items()
        for slot, count in slots.items()
    )
    _write_rows(spark, _FLOW, steps, folder / "flow")


def _shape(names: Iterable[str]) -> Shape:
    """Columns of figures, by the endings of their names."""
    kinds = {name: "double" if name.endswith(("seconds", "_at", "began", "ended")) else "bigint" for name in names}
    return Shape(kinds | {"entity": "string"})


def _write_rows(spark: SparkSession, shape: Shape, rows: Iterable[Mapping[str, Any]], path: Path) -> None:
    spark.createDataFrame(shape.table(rows)).coalesce(1).write.mode("overwrite").parquet(for_spark(path))
