"""The batch and stream writers of the data source.

A writer is created on the driver, which checks columns and options; Spark pickles it to the executors, where it
writes, and commits on the driver. Sent messages cannot be recalled: abort undoes nothing, and a retried write
repeats its message ids.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.core.ledger import PublishManifest
from servicebus_pair.core.model import get_logger
from servicebus_pair.spark.base.message_ids import MessageIdGenerator
from servicebus_pair.spark.base.report_files import check_writable
from servicebus_pair.spark.base.spark_version import DataSourceStreamArrowWriter, check_stream_write
from servicebus_pair.spark.datasource.commit_messages import (
    TaskCommitMessage,
    check_failures,
    has_manifest,
    merge_commit_messages,
    other_spool_hosts,
    write_batch_manifest,
)
from servicebus_pair.spark.datasource.options import WriteOptions
from servicebus_pair.spark.datasource.write_schema import READ_ONLY_COLUMNS, check_columns

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_log = get_logger(__name__)
# Local properties that Spark 4.2 sets on the tasks of a streaming query.
_QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_ID: Final = "streaming.sql.batchId"


def parse_write_options(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> WriteOptions:
    """Return the options of a write. :raises ConfigurationError: the mode, an option or a column is invalid."""
    parsed = WriteOptions.parse(options)
    if overwrite:
        raise ConfigurationError(
            "mode is overwrite, or complete for a stream: allowed is append, as in "
            'df.write.mode("append"); sent messages cannot be replaced'
        )
    check_columns(schema, entity=parsed.entity)
    ignored = [name for name in schema.names if name in READ_ONLY_COLUMNS]
    if ignored:
        _log.info("columns %s describe where messages were read: they are ignored", ", ".join(ignored))
    keys = [name for name in ("sessionId", "partitionKey") if name in schema.names]
    if keys and not parsed.sessions_in_order:
        # A Python data source cannot ask Spark for a distribution or an order.
        _log.warning(
            "column %s: the order of a session is kept only if its rows are in one partition, in order. Write "
            "df.repartition(%r).sortWithinPartitions(...) and set option sessionsInOrder to true, or use publish",
            " and ".join(keys),
            keys[0],
        )
    return parsed


def _check_manifest(manifest: str | None, *, is_folder: bool) -> None:
    """Check the manifest path now: the manifest is written only after all rows are sent."""
    if manifest is None:
        return
    if is_folder and Path(manifest).is_file():
        raise ConfigurationError(
            f"option manifest is {manifest!r}, which is a file: a stream needs the path of a folder"
        )
    check_writable(Path(manifest) / "manifest" if is_folder else manifest, what="option manifest")


class ServiceBusWriter(DataSourceArrowWriter):
    """Batch writer.

    Guarantee: at least once. When the write returns, every row is on the primary or in a backlog queue.
    """

    def __init__(self, options: WriteOptions) -> None:
        _check_manifest(options.manifest, is_folder=False)
        self._options = options
        # Generated on the driver, so that all task attempts share it.
        self._run = uuid.uuid4().hex if options.run is None else options.run

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send the rows of one partition. :raises SparkTaskError: what stopped it, without secrets."""
        from servicebus_pair.spark.datasource.write_task import WriteTask, write_rows

        message_ids = MessageIdGenerator(self._run, _task_context().partitionId())
        return write_rows(WriteTask(self._options, self._run, message_ids), iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Write the manifest.

        :raises SparkTaskError: a task failed for good.
        :raises OSError: the manifest cannot be written; the rows are sent nevertheless.
        """
        check_failures(_own_messages(messages))
        manifest = _merge(messages, run=self._run)
        if self._options.manifest is not None:
            manifest.write(self._options.manifest)
        _log_commit(manifest, messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Log what was sent and cannot be recalled."""
        _log_abort(self._run, messages)


class ServiceBusStreamWriter(DataSourceStreamArrowWriter):
    """Stream writer.

    Guarantee: at least once. A replayed batch repeats its message ids, so an entity with duplicate detection accepts
    each message once. If the manifest of the batch exists and executors can see it, the replay sends nothing.
    """

    def __init__(self, options: WriteOptions) -> None:
        check_stream_write()
        _check_manifest(options.manifest, is_folder=True)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send the rows of one partition of a batch. :raises SparkTaskError: what stopped it, without secrets."""
        from servicebus_pair.spark.datasource.write_task import WriteTask, write_rows

        context = _task_context()
        query_id, batch = context.getLocalProperty(_QUERY_ID), context.getLocalProperty(_BATCH_ID)
        if query_id is None or batch is None:
            raise RuntimeError(f"the task has no query id ({query_id}) or batch id ({batch}): use Spark 4.2 or later")
        batch_id = int(batch)
        run = query_id if self._options.run is None else self._options.run
        if self._is_committed(query_id, batch_id):
            _log.info("query=%s batch=%d is already committed: nothing is sent again", query_id, batch_id)
            return TaskCommitMessage(run, {}, 0, 0.0, 0.0, query_id)
        message_ids = MessageIdGenerator(f"{query_id}-{batch_id}", context.partitionId())
        return write_rows(WriteTask(self._options, run, message_ids, query_id), iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  Spark's name
        """Write the manifest of the batch.

        :raises SparkTaskError: a task failed for good.
        :raises OSError: the manifest cannot be written; the rows are sent nevertheless.
        """
        own_messages = _own_messages(messages)
        if not own_messages:
            return
        check_failures(own_messages)
        manifest, query_id = merge_commit_messages(own_messages), own_messages[0].query_id or ""
        if self._options.manifest is not None and not self._is_committed(query_id, batchId):
            write_batch_manifest(self._options.manifest, manifest, query_id=query_id, batch_id=batchId)
        _log_commit(manifest, messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  Spark's name
        """Log what was sent and cannot be recalled."""
        _log_abort(f"batch {batchId}", messages)

    def _is_committed(self, query_id: str, batch_id: int) -> bool:
        folder = self._options.manifest
        return folder is not None and has_manifest(folder, query_id=query_id, batch_id=batch_id)


def _task_context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise RuntimeError("there is no Spark task: the data source writes in tasks only")
    return context


def _own_messages(messages: Sequence[WriterCommitMessage | None]) -> list[TaskCommitMessage]:
    # Spark passes None for tasks that did not finish.
    return [message for message in messages if isinstance(message, TaskCommitMessage)]


def _merge(messages: Sequence[WriterCommitMessage | None], *, run: str) -> PublishManifest:
    own_messages = _own_messages(messages)
    return merge_commit_messages(own_messages) if own_messages else PublishManifest(run, {}, 0, 0.0)


def _log_commit(manifest: PublishManifest, messages: Sequence[WriterCommitMessage | None]) -> None:
    _log.info(
        "run=%s primary=%d diverted=%d bytes=%d seconds=%.1f",
        manifest.run,
        manifest.primary,
        manifest.diverted,
        manifest.bytes,
        manifest.seconds,
    )
    if hosts := other_spool_hosts(_own_messages(messages)):
        _log.warning(
            "option spool is a folder, and tasks ran on %s: unless that is a mount that all machines share, each has a "
            "spool of its own, which only a syphon on that machine empties; use the URL of an object store",
            ", ".join(hosts),
        )
    if manifest.rejected:
        _log.warning("run=%s: %d rows cannot be sent; the error table has them", manifest.run, manifest.rejected)


def _log_abort(run: str, messages: Sequence[WriterCommitMessage | None]) -> None:
    sent = _merge(messages, run=run)
    _log.error(
        "run=%s failed: primary=%d diverted=%d messages of completed tasks stay sent",
        run,
        sent.primary,
        sent.diverted,
    )
