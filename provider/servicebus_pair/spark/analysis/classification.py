"""The rules of ``core.ledger.reconcile`` as joins and columns, so that the engine classifies any number of messages.

Both sides are grouped by message before they are joined, and every aggregate has a fixed size. A property test compares
the result with the pure rules, message by message.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, fields, replace
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  the name that Spark's own documentation uses

from servicebus_pair.core.events import Route
from servicebus_pair.core.ledger import (
    INCIDENT_GAP_SECONDS,
    Incident,
    LedgerSlice,
    Location,
    Outcome,
    Totals,
    find_incidents,
)
from servicebus_pair.spark.base.arrow_schema import RowSchema

_KEY: Final = ("entity", "id")
_LIVE: Final = (Location.ACTIVE, Location.SCHEDULED, Location.DEFERRED)
_SUMMED: Final = ("dead", "waiting", "backlog_dead", "in_spool", "receipts", "undigested_found")
# Of one entity; the last is all that follow. Each diverted message is compared with those of its entity.
_MAX_INCIDENTS: Final = 1000
_INCIDENT_SCHEMA: Final = RowSchema({"entity": "string", "number": "bigint", "began": "double", "ended": "double"})


def classify_messages(
    records: DataFrame,
    found: DataFrame,
    *,
    paths: Mapping[str, tuple[str, ...]],
    incidents: Mapping[str, Sequence[Incident]],
    run: str | None,
    kept: DataFrame | None = None,
) -> DataFrame:
    """Return one verdict per message of the entities in ``paths``, with the fields of ``Verdict``.

    :param records: ledger records of sends and moves, with columns as in ``read_ledger``.
    :param found: copies and receipts, with columns as in ``peek_messages``.
    :param paths: where the messages of each entity arrive, by lower-case entity.
    :param incidents: the incidents of each entity, by lower-case entity.
    :param kept: messages that may be in a spool that was not examined, as :func:`kept_in_unseen_spools` finds them.
    :param run: classify only messages that this run sent, and messages without a record of a send.
    """
    sends_and_moves, copies = (_of_entities(table, paths) for table in (records, found))
    joined = _recorded(sends_and_moves, run=run).join(_found(copies), list(_KEY), "full_outer")
    if kept is None:
        joined = joined.withColumn("unseen", F.lit(0))
    else:
        joined = joined.join(kept.groupBy(*_KEY).agg(F.count("*").alias("unseen")), list(_KEY), "left")
    counts = [name for name, kind in joined.dtypes if kind == "bigint" and not name.startswith("digest")]
    histories = joined.fillna(0, counts)
    if run is not None:
        histories = histories.where(F.col("wanted") | (F.col("sent") == 0))
    return _with_incident(histories, incidents).select(
        "entity",
        F.col("id").alias("message_id"),
        _outcome(paths).alias("outcome"),
        _first_route().alias("route"),
        (F.col("moved") > 0).alias("syphoned"),
        _copies().alias("copies"),
        F.greatest(F.lit(0), _copies() - 1).alias("duplicates"),
        F.least(F.greatest(F.lit(0), _copies() - 1), F.greatest(F.lit(0), _expected_copies() - 1)).alias(
            "duplicates_predicted"
        ),
        _wait_seconds().alias("wait_seconds"),
        _first_sent_at().alias("sent_at"),
        "moved_at",
        F.col("number").alias("incident"),
        "receipts",
        _is_altered().alias("altered"),
    )


def kept_in_unseen_spools(records: DataFrame, *, examined: Collection[str]) -> DataFrame:
    """Return entity, id and spool of messages that a spool took and did not pass on to the backlog.

    :param records: ledger records of sends and moves.
    :param examined: names of spools that were examined, which are left out.
    """
    took = (F.col("kind") == "sent") & (F.col("route") == str(Route.SPOOLED))
    passed_on = (F.col("kind") == "unspooled") & (F.col("route") == str(Route.BACKLOG))
    spool = F.coalesce("spool", F.lit(""))
    return (
        records.where((took | passed_on) & ~spool.isin(*examined))
        .groupBy(F.lower("entity").alias("entity"), "id", spool.alias("spool"))
        .agg(F.bool_and(took).alias("kept"))
        .where("kept")
        .drop("kept")
    )


def _of_entities(table: DataFrame, paths: Mapping[str, tuple[str, ...]]) -> DataFrame:
    return table.withColumn("entity", F.lower("entity")).where(F.col("entity").isin(*paths))


def _recorded(records: DataFrame, *, run: str | None) -> DataFrame:
    """Return a row per message with the counts and first times of its sends and moves."""
    sent, unspooled = F.col("kind") == "sent", F.col("kind") == "unspooled"
    rediverted = unspooled & (F.col("route") == str(Route.BACKLOG))
    moved = (F.col("kind") == "syphoned") | (unspooled & (F.col("route") == str(Route.PRIMARY)))
    direct, diverted, spooled = (sent & (F.col("route") == str(route)) for route in Route)
    return records.groupBy(*_KEY).agg(
        F.count_if(sent).alias("sent"),
        F.count_if(direct).alias("direct"),
        F.count_if(spooled).alias("spooled"),
        F.count_if(moved).alias("moved"),
        F.count_if(rediverted).alias("rediverted"),
        F.min(F.when(direct, F.col("at"))).alias("direct_at"),
        F.min(F.when(diverted, F.col("at"))).alias("diverted_at"),
        F.min(F.when(spooled, F.col("at"))).alias("spooled_at"),
        F.min(F.when(moved, F.col("at"))).alias("moved_at"),
        F.coalesce(F.bool_or(sent & (F.col("run") == run)), F.lit(False)).alias("wanted"),  # noqa: FBT003
        *_bodies(sent, "sent"),
        *_bodies(sent if run is None else sent & (F.col("run") == run), "wanted"),
        F.min(F.when(sent, F.xxhash64("run"))).alias("digest_run_least"),
        F.max(F.when(sent, F.xxhash64("run"))).alias("digest_run_greatest"),
    )


def _found(found: DataFrame) -> DataFrame:
    """Return a row per message with the number of its copies, by where they are."""
    location = F.col("location")
    dead, live = location == str(Location.DEAD_LETTER), location.isin(*map(str, _LIVE))
    # One shuffle serves both groupings and the join.
    by_place = (
        found.where(location.isin(*map(str, Location)))
        .repartition(*_KEY)
        .groupBy(*_KEY, F.lower("place").alias("place"))
        .agg(
            F.count_if(live).alias("live"),
            F.count_if(dead).alias("dead"),
            F.count_if(location == str(Location.BACKLOG)).alias("waiting"),
            F.count_if(location == str(Location.BACKLOG_DEAD_LETTER)).alias("backlog_dead"),
            F.count_if(location == str(Location.SPOOL)).alias("in_spool"),
            F.count_if(location == str(Location.RECEIPT)).alias("receipts"),
            *_bodies(
                (location != str(Location.RECEIPT)) | (F.col("place") != "") | F.col("digest").isNotNull(), "found"
            ),
        )
    )
    return by_place.groupBy(*_KEY).agg(
        F.count_if(F.col("live") > 0).alias("live_places"),
        F.max(F.col("live") + F.col("dead")).alias("most"),
        *(F.sum(name).alias(name) for name in _SUMMED),
        F.min("digest_found_least").alias("digest_found_least"),
        F.max("digest_found_greatest").alias("digest_found_greatest"),
    )


def _bodies(condition: Column, name: str) -> Iterator[Column]:
    """Yield aggregates of the digests of rows: how many have none, and the least and greatest."""
    # Numbers, because aggregates of texts cannot be updated in place.
    digest = F.when(condition & F.col("digest").isNotNull(), F.xxhash64("digest"))
    yield F.count_if(condition & F.col("digest").isNull()).alias(f"undigested_{name}")
    yield F.min(digest).alias(f"digest_{name}_least")
    yield F.max(digest).alias(f"digest_{name}_greatest")


def _outcome(paths: Mapping[str, tuple[str, ...]]) -> Column:
    places = F.create_map(*(F.lit(part) for entity, each in paths.items() for part in (entity, len(each))))
    arrived = (F.col("direct") > 0) | (F.col("moved") > 0) | (F.col("live_places") > 0) | (F.col("receipts") > 0)
    return (
        F.when((F.col("sent") == 0) & (F.col("moved") + F.col("rediverted") == 0), str(Outcome.UNRECORDED))
        .when(F.col("live_places") == places[F.col("entity")], str(Outcome.DELIVERED))
        .when(F.col("waiting") > 0, str(Outcome.WAITING))
        .when(F.col("dead") + F.col("backlog_dead") > 0, str(Outcome.DEAD_LETTERED))
        .when(arrived, str(Outcome.CONSUMED))
        .when(F.col("in_spool") + F.col("unseen") > 0, str(Outcome.SPOOLED))
        .otherwise(str(Outcome.LOST))
    )


def _first_route() -> Column:
    # In the order of their names, which decides between acceptances at one time.
    times = {Route.BACKLOG: "diverted_at", Route.PRIMARY: "direct_at", Route.SPOOLED: "spooled_at"}
    first = F.coalesce(*(F.when(F.col(at) == _first_sent_at(), str(route)) for route, at in times.items()))
    # A message that was moved without a record of its send was diverted by an older application.
    return F.when(F.col("sent") > 0, first).when(F.col("moved") + F.col("rediverted") > 0, str(Route.BACKLOG))


def _first_sent_at() -> Column:
    return F.least("direct_at", "diverted_at", "spooled_at")


def _copies() -> Column:
    return F.col("most") + F.col("waiting") + F.col("backlog_dead") + F.col("in_spool")


def _expected_copies() -> Column:
    """The copies that exist if every record is one acceptance and every move removes one copy."""
    backlog = F.col("sent") - F.col("direct") - F.col("spooled")
    return F.col("direct") + F.greatest(backlog + F.greatest("spooled", "rediverted"), F.col("moved"))


def _wait_seconds() -> Column:
    # Different machines write the records; their clocks may differ by more than a short wait.
    waited = F.greatest(F.lit(0.0), F.col("moved_at") - _first_sent_at())
    # greatest() skips nulls.
    return F.when((F.col("direct") == 0) & (F.col("sent") > 0) & (F.col("moved") > 0), waited)


def _is_altered() -> Column:
    known = F.col("digest_sent_least").isNotNull()
    any_found = F.col("digest_found_least").isNotNull() | (F.col("undigested_found") > 0)
    shared = F.col("digest_run_least") != F.col("digest_run_greatest")
    altered = ~_is_among("found", "sent") | (shared & ~_is_among("wanted", "found"))
    return F.coalesce(known & any_found & altered, F.lit(False))  # noqa: FBT003


def _is_among(inner: str, outer: str) -> Column:
    """Return whether all bodies of one kind are among those of another; of more than two, the least and greatest."""
    ends = [F.col(f"digest_{outer}_least"), F.col(f"digest_{outer}_greatest")]
    values = [F.col(f"digest_{inner}_least"), F.col(f"digest_{inner}_greatest")]
    first, last = (each.isNull() | F.coalesce(each.isin(*ends), F.lit(False)) for each in values)  # noqa: FBT003
    return first & last & ((F.col(f"undigested_{inner}") == 0) | (F.col(f"undigested_{outer}") > 0))


def _with_incident(histories: DataFrame, incidents: Mapping[str, Sequence[Incident]]) -> DataFrame:
    """Add the ``number`` of the incident in which a message was first diverted."""
    rows = [{"entity": entity, **asdict(each)} for entity, of_entity in incidents.items() for each in of_entity]
    table = histories.sparkSession.createDataFrame(_INCIDENT_SCHEMA.table(rows)).withColumnRenamed("entity", "of")
    within = F.col("diverted_at").between(F.col("began"), F.col("ended"))
    return histories.join(F.broadcast(table), (F.col("entity") == F.col("of")) & within, "left")


def sum_by_incident(verdicts: DataFrame) -> dict[tuple[str, int | None], Totals]:
    """Return totals by lower-case entity and incident number; ``None`` is for messages outside of any incident."""
    outcome, route, wait = F.col("outcome"), F.col("route"), F.col("wait_seconds")
    consumed = outcome == str(Outcome.CONSUMED)
    conditions = {
        "sent": route.isNotNull(),
        "primary": route == str(Route.PRIMARY),
        "diverted": route.isin(str(Route.BACKLOG), str(Route.SPOOLED)),
        "syphoned": F.col("syphoned"),
        "delivered": outcome == str(Outcome.DELIVERED),
        "waiting": outcome == str(Outcome.WAITING),
        "dead_lettered": outcome == str(Outcome.DEAD_LETTERED),
        "consumed": consumed,
        "consumed_unseen": consumed & (F.col("receipts") == 0),
        "spooled": outcome == str(Outcome.SPOOLED),
        "lost": outcome == str(Outcome.LOST),
        "altered": F.col("altered"),
        "unrecorded": outcome == str(Outcome.UNRECORDED),
        "waited": wait.isNotNull(),
    }
    sums = {
        "messages": F.count("*"),
        **{name: F.count_if(condition) for name, condition in conditions.items()},
        **{name: F.sum(name) for name in ("duplicates", "duplicates_predicted")},
        "wait_seconds": F.coalesce(F.sum(wait), F.lit(0.0)),
        "longest_wait_seconds": F.coalesce(F.max(wait), F.lit(0.0)),
    }
    rows = verdicts.groupBy("entity", "incident").agg(*(column.alias(name) for name, column in sums.items()))
    names = [each.name for each in fields(Totals)]
    return {(row["entity"], row["incident"]): Totals(**{name: row[name] for name in names}) for row in rows.collect()}


def find_ledger_incidents(ledger: DataFrame) -> dict[str, tuple[Incident, ...]]:
    """Return the incidents of each entity in order of time, by lower-case entity.

    :param ledger: result of ``read_ledger``.
    """
    slices = (
        ledger.where(F.col("kind") == "sent")
        .groupBy(F.lower("entity").alias("entity"), F.floor(F.col("at") / INCIDENT_GAP_SECONDS).alias("slot"))
        .agg(*_first_and_last("diverted", Route.BACKLOG), *_first_and_last("direct", Route.PRIMARY))
    )
    incidents: defaultdict[str, list[Incident]] = defaultdict(list)
    # All rows of one entity come from one group, in order: at most one row a minute.
    for row in slices.groupBy("entity").applyInArrow(_entity_incidents, _INCIDENT_SCHEMA.ddl).collect():
        incidents[row["entity"]].append(Incident(row["number"], row["began"], row["ended"]))
    return {entity: tuple(found) for entity, found in incidents.items()}


def _first_and_last(name: str, route: Route) -> tuple[Column, Column]:
    at = F.when(F.col("route") == str(route), F.col("at"))
    return F.min(at).alias(f"{name}_first"), F.max(at).alias(f"{name}_last")


def _entity_incidents(table: pa.Table) -> pa.Table:
    rows = table.sort_by("slot").to_pylist()
    incidents = list(find_incidents(LedgerSlice(_span(row, "diverted"), _span(row, "direct")) for row in rows))
    if len(incidents) > _MAX_INCIDENTS:
        last = replace(incidents[_MAX_INCIDENTS - 1], ended=incidents[-1].ended)
        incidents = [*incidents[: _MAX_INCIDENTS - 1], last]
    entity = rows[0]["entity"]
    return _INCIDENT_SCHEMA.table({"entity": entity, **asdict(incident)} for incident in incidents)


def _span(row: Mapping[str, Any], name: str) -> tuple[float, float] | None:
    first = row[f"{name}_first"]
    return None if first is None else (first, row[f"{name}_last"])
