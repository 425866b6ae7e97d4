"""What a reconciliation could examine: ledger files, runs, entities, and the manifests of publishes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  the name that Spark's own documentation uses

from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.core.ledger import CLOSED, KINDS, Evidence, PublishManifest
from servicebus_pair.core.model import files_below, load_json
from servicebus_pair.spark.base.arrow_schema import RowSchema
from servicebus_pair.spark.base.report_files import MAX_JSON_BYTES

_FILES_SCHEMA: Final = RowSchema({"file": "string", "expected": "bigint"})
_MAX_RUNS: Final = 10_000
_MAX_FILES: Final = 20
MAX_NAMES: Final = 200
"""Most entities or spools that a report names: whoever writes to a ledger must not make it too large to be read."""


def read_manifests(path: str, *, run: str | None) -> PublishManifest:
    """Return the sum of the manifests in a file, or in a folder with the batches of streams.

    :param run: the run that they must be of.
    :raises ConfigurationError: there is no manifest, one is malformed, or they are of another run.
    """
    is_folder = Path(path).is_dir()
    files = files_below(path, (".json",)) if is_folder else [Path(path)]
    try:
        read = (load_json(file, limit=MAX_JSON_BYTES, follow=not is_folder) for file in files)
        manifests = [PublishManifest.from_json(each) for each in read]
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"manifest {path!r} cannot be read: {error}") from None
    runs = {each.run for each in manifests}
    if len(runs) != 1 or runs != {run or next(iter(runs))}:
        found = ", ".join(sorted(map(repr, runs))) or "none"
        raise ConfigurationError(f"manifest {path!r} is of the runs {found}: it must be of one run, that of --run")
    return PublishManifest.merge(
        (item for each in manifests for item in each.entities.items()),
        run=runs.pop(),
        size_bytes=sum(each.bytes for each in manifests),
        seconds=sum(each.seconds for each in manifests),
        ledger={file: records for each in manifests for file, records in each.ledger.items()},
    )


def collect_evidence(
    ledger: DataFrame, *, entities: Collection[str], run: str | None, manifest: PublishManifest | None
) -> Evidence:
    """Return what can be said of the ledger; the messages without a receipt are counted later.

    :param ledger: result of ``read_ledger``.
    :param entities: lower-case paths of the entities that are examined.
    """
    files = ledger.groupBy("file").agg(
        F.max("run").alias("run"),
        F.count_if(F.col("kind").isin(*KINDS)).alias("held"),
        F.count_if(F.col("kind") == "sent").alias("sent"),
        F.max(F.when(F.col("kind") == CLOSED, F.col("records"))).alias("closed"),
    )
    files = (files if run is None else files.where(F.col("run") == run)).persist()
    try:
        sent = ledger.where((F.col("kind") == "sent") & _of_run(run)).withColumn("entity", F.lower("entity"))
        damaged = files.where(F.col("held") < F.col("closed")).limit(_MAX_FILES).collect()
        recorded = not sent.where(F.col("entity").isin(*entities)).isEmpty()
        missing, cut, short = _compare(ledger, files, manifest)
        return Evidence(
            run=run,
            recorded=recorded,
            similar_runs=() if recorded or run is None else _similar_runs(ledger, run),
            unexamined=_unexamined(ledger, run, entities),
            unclosed=_unclosed(sent, files),
            damaged={row["file"]: (row["held"], row["closed"]) for row in damaged} | cut,
            missing=missing,
            short=short,
        )
    finally:
        files.unpersist()


def _of_run(run: str | None) -> Column:
    return F.lit(True) if run is None else F.col("run") == run  # noqa: FBT003


def _similar_runs(ledger: DataFrame, run: str) -> tuple[str, ...]:
    rows = ledger.where(F.col("kind") == "sent").select("run").distinct().limit(_MAX_RUNS).collect()
    return tuple(get_close_matches(run, [row["run"] or "" for row in rows], n=3, cutoff=0.5))


def _unexamined(ledger: DataFrame, run: str | None, entities: Collection[str]) -> dict[str, int]:
    # A move has the run of its drain, so it belongs to no run that sent.
    records = ledger.where(F.col("kind").isin(*KINDS) if run is None else (F.col("kind") == "sent") & _of_run(run))
    rows = (
        records.withColumn("entity", F.lower("entity"))
        .where(~F.col("entity").isin(*entities))
        .groupBy("entity")
        .agg(F.count_distinct("id").alias("messages"))
        .orderBy("entity")
        .limit(MAX_NAMES)
        .collect()
    )
    return {row["entity"]: row["messages"] for row in rows}


def _unclosed(sent: DataFrame, files: DataFrame) -> dict[str, int]:
    """Return the files that were not closed and record a message that no closed file does.

    A task that was killed leaves such a file. Once another attempt has repeated its messages, the file says nothing
    more. A file of moves need not be closed: a move is recorded before its message leaves the backlog.
    """
    opened = files.where(F.col("closed").isNull() & (F.col("sent") > 0)).select("file")
    if opened.isEmpty():
        return {}
    closed = sent.join(files.where(F.col("closed").isNotNull()).select("file"), "file", "left_semi")
    only_there = sent.join(F.broadcast(opened), "file", "left_semi").join(closed, ["entity", "id"], "left_anti")
    rows = only_there.groupBy("file").agg(F.count_distinct("entity", "id").alias("messages")).limit(_MAX_FILES)
    return {row["file"]: row["messages"] for row in rows.collect()}


def _compare(
    ledger: DataFrame, files: DataFrame, manifest: PublishManifest | None
) -> tuple[dict[str, int], dict[str, tuple[int, int]], dict[str, tuple[int, int]]]:
    """Return the manifest's files that are missing, those with too few records, and the entities with too few."""
    if manifest is None:
        return {}, {}, {}
    rows = ({"file": file, "expected": records} for file, records in manifest.ledger.items())
    named = ledger.sparkSession.createDataFrame(_FILES_SCHEMA.table(rows))
    compared = named.join(files, "file", "left").where("expected > coalesce(held, 0)").limit(_MAX_FILES).collect()
    missing = {row["file"]: row["expected"] for row in compared if row["held"] is None}
    cut = {row["file"]: (row["held"], row["expected"]) for row in compared if row["held"] is not None}
    named_entities = F.lower("entity").isin([each.casefold() for each in manifest.entities])
    sent = ledger.where((F.col("kind") == "sent") & _of_run(manifest.run) & named_entities)
    held = {row[0]: row[1] for row in sent.groupBy(F.lower("entity")).count().collect()}
    return missing, cut, _short(manifest, held)


def _short(manifest: PublishManifest, held: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    counts = {entity: each.primary + each.diverted for entity, each in manifest.entities.items()}
    return {
        entity: (count, held.get(entity.casefold(), 0))
        for entity, count in counts.items()
        if count > held.get(entity.casefold(), 0)
    }
