"""``reconcile``: compares the ledger with the queues and writes tables, a summary and an HTML report."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812  the name that Spark's own documentation uses

from servicebus_pair.core import Operations, bill
from servicebus_pair.core.ledger import Incident, Outcome, PublishManifest, Totals, judge
from servicebus_pair.core.model import get_logger
from servicebus_pair.core.pricing import STANDARD_PRICES
from servicebus_pair.spark.analysis.classification import (
    classify_messages,
    find_ledger_incidents,
    kept_in_unseen_spools,
    sum_by_incident,
)
from servicebus_pair.spark.analysis.costing import operations_by_day
from servicebus_pair.spark.analysis.evidence import MAX_NAMES, collect_evidence
from servicebus_pair.spark.analysis.observations import (
    count_ledger_records,
    peek_messages,
    peek_spool,
    read_ledger,
    read_moves,
    read_receipts,
)
from servicebus_pair.spark.analysis.output_folder import OutputFolder
from servicebus_pair.spark.analysis.peeking import ABSENT, EXAMINED, PING, UNREADABLE
from servicebus_pair.spark.analysis.receiving_entities import ReceivingEntity, paths_by_entity
from servicebus_pair.spark.analysis.session_order import check_session_order, count_by_session
from servicebus_pair.spark.base.arrow_schema import RowSchema
from servicebus_pair.spark.base.credential_reference import PairReference
from servicebus_pair.spark.report.reconcile_report import render
from servicebus_pair.spark.report.reconcile_result import (
    IncidentResult,
    LedgerCost,
    Reconciliation,
    SessionOrder,
    WaitPercentiles,
)
from servicebus_pair.spark.report.time_series import TimeSeries, message_flow, wait_histogram

_log = get_logger(__name__)
_MAX_EXAMPLES: Final = 20
# A link is opened to each backlog queue that the ledger names.
_BACKLOG_QUEUE: Final = "/[0-9]{1,4}$"
_MAX_QUEUES: Final = 2000
_ALTERED: Final = "altered"
_DUPLICATES: Final = "duplicates"
_OUT_OF_ORDER: Final = "out of order"
_FLOW_SCHEMA: Final = RowSchema({"at": "double", "seconds": "double", "way": "string", "messages": "bigint"})
_INCIDENT_COLUMNS: Final = tuple(
    IncidentResult("", Incident(0, 0.0, 0.0), Totals(), WaitPercentiles(), home_at=None, out_of_order=0).to_json()
)


def reconcile(
    spark: SparkSession,
    *,
    pair_reference: str,
    ledger: str,
    receiving_entities: Sequence[ReceivingEntity],
    output: str,
    run: str | None = None,
    manifest: PublishManifest | None = None,
    receipts: DataFrame | None = None,
) -> Reconciliation:
    """Classify every message, judge what that proves, and write the output folder. Idempotent; reads by peek only.

    Consumers, sends and drains may continue: the ledger is read first, then the spool, the backlog and the receiving
    entities, in the direction in which messages move, and last the moves that the ledger has recorded since. So a
    message in transit is never counted as lost; it may be counted as missing from the ledger, or twice.

    :param pair_reference: where executors find the pair's settings: ``env:NAME`` or ``file:PATH``.
    :param ledger: folder of the ledger, or its URL.
    :param receiving_entities: queues and subscriptions of the primary; for a topic, all that should hold its messages.
        A tap is a subscription from which nothing receives: its copies are receipts.
    :param output: folder, or URL of one, which driver and executors share.
    :param run: classify only messages that this run sent, and messages without a record of a send.
    :param manifest: of the run's publish, which the ledger must agree with.
    :param receipts: what consumers say they received: columns ``messageId`` and ``entity``.
    :raises ConfigurationError: an argument or the ledger is invalid.
    :raises pyspark.errors.PySparkException: a queue cannot be read; the message contains no secrets.
    """
    started_at = time.monotonic()
    folder = OutputFolder(output)
    records = read_ledger(spark, ledger)
    reference = PairReference.parse(pair_reference)
    paths = paths_by_entity(receiving_entities)
    arrived = peek_messages(spark, reference, receiving_entities)
    received = None if receipts is None else read_receipts(receipts, entities=list(paths))
    folder.begin()
    persisted = [table.persist() for table in (records, arrived)]
    try:
        # These actions fix the order of reading: ledger, spool, backlog, receiving entities, moves.
        ledger_counts = count_ledger_records(records)
        evidence = collect_evidence(records, entities=paths, run=run, manifest=manifest)
        spooled = peek_spool(spark, reference).persist()
        persisted.append(spooled)
        examined = [row["place"] for row in spooled.where(F.col("location") == EXAMINED).collect()]
        backlog = peek_messages(
            spark,
            reference,
            None,
            diverted=[each.entity for each in receiving_entities],
            recorded_queues=_recorded_queues(records),
        ).persist()
        persisted.append(backlog)
        backlog.count()
        arrived.count()
        found = backlog.unionByName(arrived).unionByName(spooled)
        seen = found if received is None else found.unionByName(received, allowMissingColumns=True)
        moved = records.where(F.col("kind") == "sent").unionByName(read_moves(spark, ledger, records))
        incidents = find_ledger_incidents(records.where(F.lower("entity").isin(*paths)))
        kept = None
        if not kept_in_unseen_spools(records, examined=examined).isEmpty():
            kept = kept_in_unseen_spools(moved, examined=examined).persist()
            persisted.append(kept)
        classified = classify_messages(moved, seen, paths=paths, incidents=incidents, run=run, kept=kept)
        verdicts = folder.write_and_read(classified, "verdicts")
        overtaken, order = _check_order(records, arrived, folder, run=run)
        totals = sum_by_incident(verdicts)
        markers = (
            found.where(F.col("location").isin(ABSENT, PING, UNREADABLE)).groupBy("location", "place").count().collect()
        )
        strangers = _count_strangers(backlog, paths)
        waits = _wait_percentiles(verdicts, "entity")
        entities = {
            entity: sum((part for (name, _), part in totals.items() if name == entity), Totals()) for entity in paths
        }
        tapped = {each.entity.casefold() for each in receiving_entities if each.tap or received is not None}
        unseen = sum(total.consumed_unseen for entity, total in entities.items() if entity in tapped)
        evidence = replace(
            evidence, without_receipt=unseen, unseen_spools={} if kept is None else _count_by_spool(kept, verdicts)
        )
        judgement, reasons = judge(sum(entities.values(), Totals()), evidence)
        result = Reconciliation(
            run=run,
            judgement=judgement,
            reasons=reasons,
            entities=entities,
            waits={entity: waits.get((entity,), WaitPercentiles()) for entity in paths},
            order={entity: order.get(entity, SessionOrder()) for entity in paths},
            incidents=_incident_results(verdicts, overtaken, incidents, totals),
            cost=_cost(records, run=run),
            ledger=ledger_counts,
            absent=tuple(sorted({row["place"] for row in markers if row["location"] == ABSENT})),
            unreadable={row["place"]: row["count"] for row in markers if row["location"] == UNREADABLE},
            pings=sum(row["count"] for row in markers if row["location"] == PING),
            unaddressed=strangers.pop("", 0),
            unexamined=evidence.unexamined,
            strangers=strangers,
            examples=_examples(verdicts, overtaken),
            seconds=round(time.monotonic() - started_at, 3),
        )
        flow = message_flow(verdicts)
        _write_tables(spark, result, flow, folder)
        folder.finish(result.to_json(), render(result.to_json(), flow, wait_histogram(verdicts)))
    finally:
        for table in persisted:
            table.unpersist()
    summary = result.totals
    _log.info(
        "reconciled judgement=%s messages=%d lost=%d duplicates=%d",
        result.judgement,
        summary.messages,
        summary.lost,
        summary.duplicates,
    )
    return result


def _recorded_queues(records: DataFrame) -> list[str]:
    """Return the backlog queues that the ledger names, some of which may no longer be in use."""
    queues = records.where(F.col("queue").rlike(_BACKLOG_QUEUE)).select("queue").distinct().limit(_MAX_QUEUES)
    return [row["queue"] for row in queues.collect()]


def _count_by_spool(kept: DataFrame, verdicts: DataFrame) -> dict[str, int]:
    """Return how many messages may be in each spool that was not examined, by its name."""
    waiting = verdicts.where(F.col("outcome") == str(Outcome.SPOOLED)).select("entity", F.col("message_id").alias("id"))
    rows = kept.join(waiting, ["entity", "id"], "left_semi").groupBy("spool").count().orderBy("spool")
    return {row["spool"]: row["count"] for row in rows.limit(MAX_NAMES).collect()}


def _count_strangers(backlog: DataFrame, paths: Iterable[str]) -> dict[str, int]:
    """Return the number of backlog messages for entities that are not examined; the empty one is for none."""
    messages = backlog.where(F.col("location").startswith("backlog")).withColumn("entity", F.lower("entity"))
    rows = messages.where(~F.col("entity").isin(*paths)).groupBy("entity").count().orderBy("entity")
    return {row["entity"]: row["count"] for row in rows.limit(MAX_NAMES).collect()}


def _check_order(
    records: DataFrame, arrived: DataFrame, folder: OutputFolder, *, run: str | None
) -> tuple[DataFrame, dict[str, SessionOrder]]:
    """Write the session tables; return the overtaken messages, and the counts of each entity."""
    messages = check_session_order(records, arrived, run=run).persist()
    try:
        sessions = folder.write_and_read(count_by_session(messages), "sessions")
        overtaken = folder.write_and_read(messages.where(F.col("overtaken_by").isNotNull()), "overtaken")
    finally:
        messages.unpersist()
    rows = sessions.groupBy("entity").agg(
        F.count("*").alias("sessions"),
        F.sum("messages").alias("session_messages"),
        F.count_if(F.col("out_of_order") > 0).alias("sessions_out_of_order"),
        F.sum("out_of_order").alias("out_of_order"),
    )
    return overtaken, {row["entity"]: SessionOrder(*row[1:]) for row in rows.collect()}


def _wait_percentiles(verdicts: DataFrame, *keys: str) -> dict[tuple[Any, ...], WaitPercentiles]:
    rows = (
        verdicts.where(F.col("wait_seconds").isNotNull())
        .groupBy(*keys)
        .agg(F.percentile("wait_seconds", 0.5).alias("median"), F.percentile("wait_seconds", 0.95).alias("p95"))
        .collect()
    )
    return {
        tuple(row[key] for key in keys): WaitPercentiles(round(row["median"], 3), round(row["p95"], 3)) for row in rows
    }


def _incident_results(
    verdicts: DataFrame,
    overtaken: DataFrame,
    incidents: Mapping[str, Sequence[Incident]],
    totals: Mapping[tuple[str, int | None], Totals],
) -> list[IncidentResult]:
    diverted = verdicts.where(F.col("incident").isNotNull())
    home_at = {
        tuple(row[:2]): row[2] for row in diverted.groupBy("entity", "incident").agg(F.max("moved_at")).collect()
    }
    late = diverted.join(overtaken.select("entity", "place", "message_id"), ["entity", "message_id"])
    out_of_order = {tuple(row[:2]): row[2] for row in late.groupBy("entity", "incident").count().collect()}
    waits = _wait_percentiles(diverted, "entity", "incident")
    return [
        IncidentResult(
            entity=entity,
            incident=incident,
            totals=totals[key],
            waits=waits.get(key, WaitPercentiles()),
            home_at=home_at[key],
            out_of_order=out_of_order.get(key, 0),
        )
        for entity, of_entity in incidents.items()
        for incident in of_entity
        if (key := (entity, incident.number)) in home_at
    ]


def _cost(records: DataFrame, *, run: str | None) -> LedgerCost:
    by_month: dict[date, Operations] = {}
    for each in operations_by_day(records if run is None else records.where(F.col("run") == run), by_run=False):
        month = each.day.replace(day=1)
        by_month[month] = by_month.get(month, Operations()) + each.operations
    bills = [bill(operations) for operations in by_month.values()]
    amount = sum((each.amount for each in bills), Decimal("0.00"))
    return LedgerCost(sum(by_month.values(), Operations()), str(amount), STANDARD_PRICES)


def _examples(verdicts: DataFrame, overtaken: DataFrame) -> dict[str, tuple[str, ...]]:
    """Return some messages of each outcome that is a finding, some duplicates, and some that arrived out of order."""
    outcomes = [str(outcome) for outcome in Outcome if outcome not in (Outcome.DELIVERED, Outcome.CONSUMED)]
    kinds = F.array(
        F.when(F.col("outcome").isin(outcomes), F.col("outcome")),
        F.when(F.col("altered"), _ALTERED),
        F.when(F.col("duplicates") > 0, _DUPLICATES),
    )
    rank = F.row_number().over(Window.partitionBy("kind").orderBy("entity", "message_id"))
    rows = (
        verdicts.select("entity", "message_id", F.explode(F.array_compact(kinds)).alias("kind"))
        .unionByName(overtaken.select("entity", "message_id", F.lit(_OUT_OF_ORDER).alias("kind")).distinct())
        .withColumn("rank", rank)
        .where(F.col("rank") <= _MAX_EXAMPLES)
        .orderBy("kind", "rank")
        .collect()
    )
    return {
        kind: tuple(f"{row['entity']} {row['message_id']}" for row in rows if row["kind"] == kind)
        for kind in (*outcomes, _ALTERED, _DUPLICATES, _OUT_OF_ORDER)
    }


def _write_tables(spark: SparkSession, result: Reconciliation, flow: TimeSeries, folder: OutputFolder) -> None:
    by_entity = [{"entity": entity, **values} for entity, values in result.by_entity().items()]
    folder.write_rows(spark, _figure_schema(by_entity[0]), by_entity, "summary")
    incidents = (each.to_json() for each in result.incidents)
    folder.write_rows(spark, _figure_schema(_INCIDENT_COLUMNS), incidents, "incidents")
    steps = (
        {"at": flow.start + slot * flow.step, "seconds": flow.step, "way": route, "messages": count}
        for route, slots in flow.counts.items()
        for slot, count in slots.items()
    )
    folder.write_rows(spark, _FLOW_SCHEMA, steps, "flow")


def _figure_schema(names: Iterable[str]) -> RowSchema:
    """Return a schema whose column types follow from the suffixes of the names."""
    types = {name: "double" if name.endswith(("seconds", "_at", "began", "ended")) else "bigint" for name in names}
    return RowSchema(types | {"entity": "string"})
