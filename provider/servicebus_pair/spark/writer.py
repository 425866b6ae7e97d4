"""The writers of the data source: a batch, and a stream.

Made on the driver, where columns and options are checked; a copy writes on each executor, and
another one commits on the driver. What was sent cannot be taken back: nothing is done on abort, and
a write that is tried again repeats its message ids.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.core.manifest import PublishManifest
from servicebus_pair.spark.files import check_writable
from servicebus_pair.spark.naming import Position
from servicebus_pair.spark.options import WriteOptions
from servicebus_pair.spark.receipts import WriteReceipt, batch_manifest, merged
from servicebus_pair.spark.schema import check_columns

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["ServiceBusStreamWriter", "ServiceBusWriter", "checked"]

_log = logging.getLogger(__name__)
_QUERY: Final = "sql.streaming.queryId"
_BATCH: Final = "streaming.sql.batchId"


def checked(options: WriteOptions, schema: StructType, *, overwrite: bool) -> WriteOptions:
    """Answer the options of a write that may begin. :raises ConfigurationError: saying what is wrong with it."""
    if overwrite:
        raise ConfigurationError(
            'mode is overwrite, and of a stream complete: allowed is append, as in df.write.mode("append"); messages '
            "that were sent cannot be replaced"
        )
    check_columns(schema, entity=options.entity)
    return options


def _check_manifest(manifest: str | None, *, folder: bool) -> None:
    """Refuse what is found out too late otherwise: a write is over when its manifest is written."""
    if manifest is None:
        return
    if folder and Path(manifest).is_file():
        raise ConfigurationError(
            f"option manifest is {manifest!r}, which is a file: allowed is the path of a folder, for a stream"
        )
    check_writable(Path(manifest) / "manifest" if folder else manifest, what="option manifest")


class ServiceBusWriter(DataSourceArrowWriter):
    """Writes one table.

    Guarantee: at least once. When the write returns, every row is on the primary or in a backlog queue.
    """

    def __init__(self, options: WriteOptions) -> None:
        _check_manifest(options.manifest, folder=False)
        self._options = options
        # Chosen once, for all tasks and their later attempts.
        self._run = uuid.uuid4().hex if options.run is None else options.run

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send the rows of one partition. :raises SparkTaskError: what stopped it, without secrets."""
        from servicebus_pair.spark.writing import WriteTask, write_rows

        return write_rows(WriteTask(self._options, self._run, Position(self._run, _context().partitionId())), iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Write the manifest. :raises OSError: it cannot be written; the rows are sent all the same."""
        receipts = _receipts(messages)
        manifest = merged(receipts) if receipts else PublishManifest(self._run, {}, 0, 0.0)
        if self._options.manifest is not None:
            manifest.write(self._options.manifest)
        _log_commit(manifest)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Say what stays sent."""
        _log_abort(self._run, messages)


class ServiceBusStreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a stream.

    Guarantee: at least once, idempotent by batch: one that is replayed repeats its message ids, which an entity
    with duplicate detection takes once. Where the manifest of its commit can be seen, it sends nothing.
    """

    def __init__(self, options: WriteOptions) -> None:
        _check_manifest(options.manifest, folder=True)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send the rows of one partition of a batch. :raises SparkTaskError: what stopped it, without secrets."""
        from servicebus_pair.spark.writing import WriteTask, write_rows

        context = _context()
        query, number = context.getLocalProperty(_QUERY), context.getLocalProperty(_BATCH)
        if query is None or number is None:
            raise RuntimeError(f"the task does not say its query ({query}) and batch ({number}): Spark 4.2 does")
        batch = int(number)
        run = query if self._options.run is None else self._options.run
        if self._is_committed(query, batch):
            _log.info("query=%s batch=%d is committed: its replay sends nothing", query, batch)
            return WriteReceipt(run, json.dumps({}), 0, 0.0, 0.0, query)
        position = Position(f"{query}-{batch}", context.partitionId())
        return write_rows(WriteTask(self._options, run, position, query), iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  Spark's name
        """Write the manifest of the batch. :raises OSError: it cannot be written; the rows are sent all the same."""
        receipts = _receipts(messages)
        if not receipts:
            return
        manifest, query = merged(receipts), receipts[0].query or ""
        if self._options.manifest is not None and not self._is_committed(query, batchId):
            manifest.write(batch_manifest(self._options.manifest, query=query, batch=batchId), batch=batchId)
        _log_commit(manifest)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  Spark's name
        """Say what stays sent."""
        _log_abort(f"batch {batchId}", messages)

    def _is_committed(self, query: str, batch: int) -> bool:
        folder = self._options.manifest
        return folder is not None and batch_manifest(folder, query=query, batch=batch).exists()


def _context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise RuntimeError("this is no Spark task: the data source writes in tasks only")
    return context


def _receipts(messages: Sequence[WriterCommitMessage | None]) -> list[WriteReceipt]:
    return [message for message in messages if isinstance(message, WriteReceipt)]


def _log_commit(manifest: PublishManifest) -> None:
    _log.info(
        "run=%s primary=%d diverted=%d bytes=%d seconds=%.1f",
        manifest.run,
        manifest.primary,
        manifest.diverted,
        manifest.bytes,
        manifest.seconds,
    )


def _log_abort(run: str, messages: Sequence[WriterCommitMessage | None]) -> None:
    receipts = _receipts(messages)
    sent = merged(receipts) if receipts else PublishManifest(run, {}, 0, 0.0)
    _log.error(
        "run=%s failed: primary=%d diverted=%d by the tasks that ended stay sent", run, sent.primary, sent.diverted
    )
