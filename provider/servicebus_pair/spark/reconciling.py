"""``reconcile``: the ledger against the queues, into tables, a summary and a page.

The output folder holds, all of it this job's own:

===================  ==========================================================================
``verdicts/``        Parquet, a row per message: outcome, route, copies, duplicates, wait
``summary/``         Parquet, a row per entity: totals and wait percentiles
``report.html``      the same for people, one self-contained file
``summary.json``     the same for programs; removed first and written last, so that it stands
                     only beside complete tables
===================  ==========================================================================
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812  the name that Spark's own documentation uses

from servicebus_pair.core.ports import Clock, SystemClock
from servicebus_pair.core.reconcile import Outcome, Totals
from servicebus_pair.spark.evidence import LedgerFigures, evidence, ledger_figures, peeked, read_ledger
from servicebus_pair.spark.judging import judged, totals
from servicebus_pair.spark.peeking import ABSENT, PING
from servicebus_pair.spark.places import Place, by_entity
from servicebus_pair.spark.references import PairReference
from servicebus_pair.spark.report import Flow, render
from servicebus_pair.spark.shape import Shape

__all__ = ["Reconciliation", "Waits", "reconcile"]

_log = logging.getLogger(__name__)
_VERSION: Final = 1
_EXAMPLES: Final = 20
_TWICE: Final = "duplicates"
_FLOW_STEPS: Final = 240


@dataclass(frozen=True, slots=True)
class Waits:
    """How long the diverted messages of one entity waited, in seconds; ``None`` when none did."""

    median: float | None = None
    p95: float | None = None


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """What one reconciliation found.

    :param entities: totals by folded entity path.
    :param absent: backlog queues of the pair that do not exist.
    :param pings: pings that the service keeps instead of dropping.
    :param unexamined: facts about entities that were not named, by entity; nothing is said of them.
    :param examples: some messages of each outcome that asks for attention, and some duplicates.
    """

    run: str | None
    entities: Mapping[str, Totals]
    waits: Mapping[str, Waits]
    ledger: LedgerFigures
    absent: tuple[str, ...]
    pings: int
    unexamined: Mapping[str, int]
    examples: Mapping[str, tuple[str, ...]]
    seconds: float

    @property
    def totals(self) -> Totals:
        """All entities together."""
        return sum(self.entities.values(), Totals())

    def to_json(self) -> dict[str, Any]:
        """The form of ``summary.json``."""
        return {
            "version": _VERSION,
            "run": self.run,
            "totals": asdict(self.totals),
            "entities": {
                entity: {
                    **asdict(total),
                    "wait_median_seconds": self.waits[entity].median,
                    "wait_p95_seconds": self.waits[entity].p95,
                }
                for entity, total in self.entities.items()
            },
            "ledger": asdict(self.ledger),
            "absent_backlog_queues": list(self.absent),
            "pings": self.pings,
            "unexamined": dict(self.unexamined),
            "examples": {kind: list(messages) for kind, messages in self.examples.items()},
            "seconds": self.seconds,
        }


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
    records = read_ledger(spark, ledger)
    reference = PairReference.parse(pair_reference)
    backlog, arrived = peeked(spark, reference, None), peeked(spark, reference, places)
    folder = Path(output)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "summary.json").unlink(missing_ok=True)
    kept = [table.persist() for table in (records, backlog, arrived)]
    try:
        figures = ledger_figures(records)
        backlog.count()
        found = backlog.unionByName(arrived)
        facts, paths = evidence(records, found), by_entity(places)
        judged(facts, places=paths, run=run).write.mode("overwrite").parquet(str(folder / "verdicts"))
        verdicts = spark.read.parquet(str(folder / "verdicts"))
        by_path = totals(verdicts)
        notes = found.where(F.col("location").isin(ABSENT, PING)).groupBy("location", "place").count().collect()
        unknown = facts.where(~F.col("entity").isin(*paths)).groupBy("entity").count().collect()
        result = Reconciliation(
            run=run,
            entities={entity: by_path.get(entity, Totals()) for entity in paths},
            waits=_waits(verdicts, entities=list(paths)),
            ledger=figures,
            absent=tuple(sorted({row["place"] for row in notes if row["location"] == ABSENT})),
            pings=sum(row["count"] for row in notes if row["location"] == PING),
            unexamined={row["entity"]: row["count"] for row in unknown},
            examples=_examples(verdicts),
            seconds=round(timer.now() - began, 3),
        )
        _write_summary(spark, result, folder)
        (folder / "report.html").write_text(render(result.to_json(), _flow(records)), encoding="utf-8")
    finally:
        for table in kept:
            table.unpersist()
    _finish(folder / "summary.json", result)
    return result


def _waits(verdicts: DataFrame, *, entities: Sequence[str]) -> dict[str, Waits]:
    rows = (
        verdicts.where(F.col("wait_seconds").isNotNull())
        .groupBy("entity")
        .agg(F.percentile("wait_seconds", 0.5).alias("median"), F.percentile("wait_seconds", 0.95).alias("p95"))
        .collect()
    )
    known = {row["entity"]: Waits(round(row["median"], 3), round(row["p95"], 3)) for row in rows}
    return {entity: known.get(entity, Waits()) for entity in entities}


def _examples(verdicts: DataFrame) -> dict[str, tuple[str, ...]]:
    asking = [str(outcome) for outcome in Outcome if outcome is not Outcome.DELIVERED]
    kinds = F.array(F.when(F.col("outcome").isin(asking), F.col("outcome")), F.when(F.col("duplicates") > 0, _TWICE))
    rank = F.row_number().over(Window.partitionBy("kind").orderBy("entity", "message_id"))
    rows = (
        verdicts.select("entity", "message_id", F.explode(F.array_compact(kinds)).alias("kind"))
        .withColumn("rank", rank)
        .where(F.col("rank") <= _EXAMPLES)
        .orderBy("kind", "rank")
        .collect()
    )
    return {
        kind: tuple(f"{row['entity']} {row['message_id']}" for row in rows if row["kind"] == kind)
        for kind in (*asking, _TWICE)
    }


def _flow(ledger: DataFrame) -> Flow:
    """Messages over time by what happened to them, in steps of at least a second."""
    ends = ledger.agg(F.min("at"), F.max("at")).first()
    if ends is None or ends[0] is None:
        return Flow(start=0.0, step=1.0, counts={})
    first, last = ends
    step = max(1.0, (last - first) / _FLOW_STEPS)
    way = F.when(F.col("kind") == "syphoned", "syphoned").when(F.col("route") == "backlog", "diverted")
    rows = (
        ledger.where(F.col("kind").isNotNull())
        .groupBy(way.otherwise("primary").alias("way"), F.floor((F.col("at") - first) / step).alias("slot"))
        .count()
        .collect()
    )
    counts: dict[str, dict[int, int]] = {}
    for row in rows:
        counts.setdefault(row["way"], {})[row["slot"]] = row["count"]
    return Flow(start=first, step=step, counts=counts)


def _write_summary(spark: SparkSession, result: Reconciliation, folder: Path) -> None:
    rows = [{"entity": entity, **values} for entity, values in result.to_json()["entities"].items()]
    kinds = {name: "double" if name.endswith("seconds") else "bigint" for name in rows[0]}
    table = Shape(kinds | {"entity": "string"}).table(rows)
    spark.createDataFrame(table).coalesce(1).write.mode("overwrite").parquet(str(folder / "summary"))


def _finish(path: Path, result: Reconciliation) -> None:
    fresh = path.with_name(".summary.json")
    fresh.write_text(json.dumps(result.to_json(), indent=2) + "\n", encoding="utf-8")
    fresh.replace(path)
    whole = result.totals
    _log.info("reconciled messages=%d lost=%d duplicates=%d", whole.messages, whole.lost, whole.duplicates)
