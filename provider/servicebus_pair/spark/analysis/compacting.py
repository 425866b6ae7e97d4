"""``compact``: folds the many files of a ledger into a Parquet file for each day and run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql import SparkSession

from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.spark.base.arrow_schema import RowSchema
from servicebus_pair.spark.base.folded_ledger import fold
from servicebus_pair.spark.base.preflight import check_job
from servicebus_pair.spark.base.redaction import Redaction, redact_errors
from servicebus_pair.spark.base.shared_paths import shared_path

_FOLDED: Final = RowSchema({"files": "bigint", "records": "bigint"})
_LOCK: Final = ".compacting"


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

    :param ledger: folder of the ledger.
    :param keep_days: number of days, today included, whose files are left as they are.
    :raises ConfigurationError: the folder does not exist, or another compaction runs.
    """
    check_job(spark, rate=None)
    folder = Path(shared_path(ledger, what="ledger"))
    if not folder.is_dir():
        raise ConfigurationError(f"ledger {ledger!r} is not a folder: name the folder that ledgers are written to")
    if keep_days < 0:
        raise ConfigurationError(f"the number of days to keep is {keep_days}: allowed is a number from 0")
    first_kept = datetime.now(UTC).date() - timedelta(days=keep_days - 1)
    days = (day for day in folder.glob("day=*") if day.name < f"day={first_kept:%Y-%m-%d}")
    runs = sorted(str(run) for day in days for run in day.glob("run=*") if run.is_dir())
    with _locked(folder):
        files, records = _fold(spark, runs)
    return Compaction(len(runs), files, records, sum(1 for _ in folder.rglob("*.jsonl")))


def _fold(spark: SparkSession, runs: list[str]) -> tuple[int, int]:
    if not runs:
        return 0, 0

    def fold_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for index in batch.column("id").to_pylist():
                with redact_errors(Redaction()):
                    files, records = fold(Path(runs[index]))
                yield _FOLDED.batch([{"files": files, "records": records}])

    tasks = spark.range(0, len(runs), 1, min(len(runs), 4 * spark.sparkContext.defaultParallelism))
    rows = tasks.mapInArrow(fold_batches, _FOLDED.ddl).collect()
    return sum(row["files"] for row in rows), sum(row["records"] for row in rows)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    lock = folder / _LOCK
    try:
        lock.touch(exist_ok=False)
    except FileExistsError:
        raise ConfigurationError(
            f"another compaction of {folder} runs since {datetime.fromtimestamp(lock.stat().st_mtime, UTC):%F %T} UTC; "
            f"if none does, because it was killed, delete {lock}"
        ) from None
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)
