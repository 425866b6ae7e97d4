"""``compact``: folds the many files of a ledger into a Parquet file for each day and run."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import pyarrow as pa
from pyspark.sql import SparkSession

from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.core.ledger import ledger_storage
from servicebus_pair.spark.base.arrow_schema import RowSchema
from servicebus_pair.spark.base.folded_ledger import fold
from servicebus_pair.spark.base.preflight import check_job
from servicebus_pair.spark.base.redaction import Redaction, redact_errors
from servicebus_pair.spark.base.shared_paths import shared_location

_FOLDED: Final = RowSchema({"files": "bigint", "records": "bigint"})
_LOCK: Final = ".compacting"
_MAX_LOCK_BYTES: Final = 100
_FOLDER: Final = re.compile(r"day=(?P<day>[^/]+)/run=[^/]+(?=/[^/]+$)")


@dataclass(frozen=True, slots=True)
class Compaction:
    """What was folded.

    :param folders: of a day and a run, which were examined.
    :param files: number of files that were folded.
    :param left: number of files that are not: of later days, not closed, or damaged.
    """

    folders: int
    files: int
    records: int
    left: int


def compact(spark: SparkSession, *, ledger: str, keep_days: int = 1) -> Compaction:
    """Fold the closed files of a ledger.

    :param ledger: folder of the ledger, or its URL.
    :param keep_days: number of days, today included, whose files are left as they are.
    :raises ConfigurationError: there are no files, or another compaction runs.
    """
    check_job(spark, rate=None)
    location = shared_location(ledger, what="ledger")
    if keep_days < 0:
        raise ConfigurationError(f"the number of days to keep is {keep_days}: allowed is a number from 0")
    storage = ledger_storage(location)
    if not storage.list():
        raise ConfigurationError(
            f"ledger {ledger!r} has no files: name the folder, or the URL, that ledgers are written to"
        )
    with _locked(location):
        first_kept = datetime.now(UTC).date() - timedelta(days=keep_days - 1)
        places = [place for each in storage.list() if (place := _FOLDER.match(each.name)) is not None]
        runs = sorted({each[0] for each in places if each["day"] < f"{first_kept:%Y-%m-%d}"})
        files, records = _fold(spark, location, runs)
        left = sum(1 for each in storage.list() if each.name.endswith(".jsonl"))
    return Compaction(len(runs), files, records, left)


def _fold(spark: SparkSession, ledger: str, runs: list[str]) -> tuple[int, int]:
    if not runs:
        return 0, 0

    def fold_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for index in batch.column("id").to_pylist():
                with redact_errors(Redaction()):
                    files, records = fold(ledger, runs[index])
                yield _FOLDED.batch([{"files": files, "records": records}])

    tasks = spark.range(0, len(runs), 1, min(len(runs), 4 * spark.sparkContext.defaultParallelism))
    rows = tasks.mapInArrow(fold_batches, _FOLDED.ddl).collect()
    return sum(row["files"] for row in rows), sum(row["records"] for row in rows)


def _since(ledger: str) -> str:
    """Return what another compaction has written into its lock, which may be no file of one."""
    try:
        with ledger_storage(ledger).open(_LOCK) as file:
            content = file.read(_MAX_LOCK_BYTES).decode()
    except (OSError, UnicodeDecodeError):
        content = ""
    return content.rpartition(" ")[0] or "an unknown time"


@contextmanager
def _locked(ledger: str) -> Iterator[None]:
    storage = ledger_storage(ledger)
    content = f"{datetime.now(UTC):%F %T} UTC {uuid.uuid4().hex}".encode()
    try:
        storage.create(_LOCK, content)
    except FileExistsError:
        since = _since(ledger)
        raise ConfigurationError(
            f"another compaction of {ledger} runs since {since}; if none does, because it was killed, delete "
            f"{ledger}/{_LOCK}"
        ) from None
    try:
        yield
    finally:
        storage.delete(_LOCK)
