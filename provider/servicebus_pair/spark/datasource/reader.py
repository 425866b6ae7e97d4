"""The readers of the data source, for batches and streams; both peek and consume nothing.

Peek returns what is in the queue at the time. Messages that were consumed meanwhile are missing, also when a
micro-batch is read again after a failure; its offsets stay the same.
"""

from __future__ import annotations

from asyncio import gather
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime
from math import inf
from time import monotonic
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition

from servicebus_pair.core import Endpoint, SyncBridge
from servicebus_pair.core.model import SystemClock
from servicebus_pair.spark.base.offsets import (
    FIRST_SEQUENCE_NUMBER,
    MAX_SEQUENCE_NUMBER,
    OffsetRange,
    Offsets,
    PeekTarget,
    check_not_partitioned,
    check_range,
    checkpoint_offsets,
    idle_delay,
    next_offsets,
    split_range,
    starting_offsets,
)
from servicebus_pair.spark.base.redaction import Redaction, redact_errors
from servicebus_pair.spark.base.spark_version import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
    check_stream_read,
)
from servicebus_pair.spark.connections.peek_client import PeekClient, PeekCursor, iterate
from servicebus_pair.spark.datasource.option_table import LATEST
from servicebus_pair.spark.datasource.options import ReadOptions
from servicebus_pair.spark.datasource.read_filters import RowFilter
from servicebus_pair.spark.datasource.read_schema import SCHEMA, to_record_batch

ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class PeekRange(InputPartition):
    """The sequence numbers that one task reads, from ``start`` up to but excluding ``end``.

    :param end: ``None`` is the end of the queue when the task starts.
    """

    target: PeekTarget
    start: int
    end: int | None


class ServiceBusReader(DataSourceReader):
    """Batch reader with a partition or more per queue, sub-queue or session. Each Spark action reads the queues anew.

    :param columns: of the rows.
    """

    def __init__(self, options: ReadOptions, columns: Sequence[str] = tuple(SCHEMA.columns)) -> None:
        self._options = options
        self._columns = tuple(columns)
        self._filter = RowFilter()
        keys = [target.offset_key for target in options.targets]
        self._start = starting_offsets(keys, _explicit(options.start), option="startingOffsets")
        self._end = _explicit(options.end)
        starting_offsets(keys, self._end, option="endingOffsets")
        check_range(self._start, self._end)

    def partitions(self) -> Sequence[InputPartition]:
        """Return the ranges of each queue, sub-queue or session.

        The driver connects only to find times, or to divide a queue among several tasks, which must know its end.
        """
        ranges = [self._selected(target) for target in self._options.targets]
        times = (self._options.start_time, self._options.end_time)
        if self._options.tasks == 1 and times == (None, None):
            return ranges
        planner = _Planner(self._options)
        try:
            ranges = [planner.between(each, *times) for each in ranges]
            if self._options.tasks == 1:
                return ranges
            return [part for each in ranges for part in planner.split(each, self._options.tasks)]
        finally:
            planner.close()

    def _selected(self, target: PeekTarget) -> PeekRange:
        start = max(self._start[target.offset_key], self._filter.start)
        end = self._end.get(target.offset_key)
        if self._filter.end < MAX_SEQUENCE_NUMBER:
            end = self._filter.end if end is None else min(end, self._filter.end)
        return PeekRange(target, start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the messages of a range, page by page. :raises SparkTaskError: without secrets."""
        return _read(self._options, partition, self._columns, self._filter)


class FilteringReader(ServiceBusReader):
    """Batch reader for sessions that push filters; in others, Spark refuses a reader that takes any."""

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:  # noqa: N802  Spark's name
        """Use the filters as hints, and leave all of them to Spark as well."""
        self._filter = self._filter.with_filters(filters)
        return filters


class ServiceBusStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Stream reader that follows queues by sequence number. The driver peeks too, to plan each micro-batch."""

    def __init__(self, options: ReadOptions, columns: Sequence[str] = tuple(SCHEMA.columns)) -> None:
        check_stream_read()
        self._options = options
        self._columns = tuple(columns)
        self._keys = [target.offset_key for target in options.targets]
        self._start = starting_offsets(self._keys, _explicit(options.start), option="startingOffsets")
        self._lazy_planner: _Planner | None = None
        self._available_now: Offsets | None = None
        self._latest: Offsets | None = None
        self._batch_at = -inf

    def initialOffset(self) -> Offsets:  # noqa: N802  Spark's name
        """Return where a new query starts."""
        if self._options.start_time is not None:
            return self._planner().since(self._options.start_time)
        if self._options.start != LATEST:
            return self._start
        return self._planner().ends(dict.fromkeys(self._keys, FIRST_SEQUENCE_NUMBER))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  Spark's name
        """Return ``maxMessagesPerTrigger`` as a read limit."""
        limit = self._options.max_messages
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:  # noqa: N802  Spark's name
        """Return where the micro-batch after ``start`` ends. :raises SparkTaskError: a queue cannot be peeked."""
        start = checkpoint_offsets(start)
        # A checkpoint may lack a key, or have one too many, when the option entity has changed since.
        offsets = starting_offsets(self._keys, {key: start[key] for key in self._keys if key in start}, option="")
        available = self._planner().available(offsets)
        self._latest = offsets | {key: each.end for key, each in available.items()}
        if self._available_now is not None:
            available = _truncate(available, self._available_now)
        elif self._waits_for_more(available):
            self._planner().rest()
            return offsets
        return next_offsets(offsets, available, limit=limit.max_rows if isinstance(limit, ReadMaxRows) else None)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  Spark's name
        """Record the current ends, where this query stops."""
        self._available_now = self._planner().ends(self._start)

    def reportLatestOffset(self) -> Offsets | None:  # noqa: N802  Spark's name
        """Return the ends that the last poll found."""
        return self._latest

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        """Return the ranges of targets with new messages, without connecting, so a batch can be read again."""
        start, end = checkpoint_offsets(start), checkpoint_offsets(end)
        keyed = ((target.offset_key, target) for target in self._options.targets)
        return [
            PeekRange(target, part.first, part.end)
            for key, target in keyed
            if end.get(key, FIRST_SEQUENCE_NUMBER) > start.get(key, FIRST_SEQUENCE_NUMBER)
            for part in split_range(start.get(key, FIRST_SEQUENCE_NUMBER), end[key], self._options.tasks)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the messages of a range, page by page. :raises SparkTaskError: without secrets."""
        return _read(self._options, partition, self._columns, RowFilter())

    def stop(self) -> None:
        """Close the driver's connections."""
        if self._lazy_planner is not None:
            self._lazy_planner.close()

    def _waits_for_more(self, available: Mapping[str, OffsetRange]) -> bool:
        minimum, now = self._options.min_messages, monotonic()
        count = sum(each.end - each.first for each in available.values())
        if minimum is not None and count < minimum and now - self._batch_at < self._options.max_delay:
            return True
        if count:
            self._batch_at = now
        return False

    def _planner(self) -> _Planner:
        if self._lazy_planner is None:
            self._lazy_planner = _Planner(self._options)
        return self._lazy_planner


class _Planner:
    """Peeks the queues on the driver of a stream; its links stay open between polls.

    While there is nothing new, Spark polls without a pause, and every peek is billed: idle polls are delayed.
    """

    def __init__(self, options: ReadOptions) -> None:
        self._redaction = Redaction()
        self._clock = SystemClock()
        self._last_empty_at = -inf
        with redact_errors(self._redaction):
            client = PeekClient(_endpoint(options, self._redaction))
        self._resources = ExitStack()
        self._bridge = self._resources.enter_context(SyncBridge())
        self._resources.callback(lambda: self._bridge.run(client.close()))
        self._cursors = {target.offset_key: client.cursor(target) for target in options.targets}

    def available(self, start: Offsets) -> dict[str, OffsetRange]:
        """Return what can be read from ``start``, for the targets that have messages there.

        :raises ConfigurationError: an entity is partitioned.
        """
        self._bridge.run(self._clock.sleep(idle_delay(self._last_empty_at, now=self._clock.now())))
        ranges = self._for_each(start, lambda cursor, first: cursor.available(first))
        available = {key: each for key, each in ranges.items() if each is not None}
        for key, each in available.items():
            check_not_partitioned(key, each)
        self._last_empty_at = -inf if available else self._clock.now()
        return available

    def ends(self, start: Offsets) -> Offsets:
        """Return the sequence number after the last message of each target."""
        return self._for_each(start, lambda cursor, first: cursor.end(first))

    def since(self, moment: datetime) -> Offsets:
        """Return from where on messages of each target were enqueued at ``moment`` or later."""
        return self._for_each(
            dict.fromkeys(self._cursors, FIRST_SEQUENCE_NUMBER), lambda cursor, _: cursor.first_since(moment)
        )

    def between(self, whole: PeekRange, start: datetime | None, end: datetime | None) -> PeekRange:
        """Return the part of ``whole`` that was enqueued from ``start`` on and before ``end``."""
        cursor, first, last = self._cursors[whole.target.offset_key], whole.start, whole.end
        with redact_errors(self._redaction):
            if start is not None:
                first = max(first, self._bridge.run(cursor.first_since(start)))
            if end is not None:
                before = self._bridge.run(cursor.first_since(end))
                last = before if last is None else min(last, before)
        return replace(whole, start=first, end=last)

    def rest(self) -> None:
        """Delay the next poll as if this one had found nothing."""
        self._last_empty_at = self._clock.now()

    def split(self, whole: PeekRange, tasks: int) -> Sequence[PeekRange]:
        """Return the ranges of several tasks that read the messages of ``whole`` which are there now."""
        cursor = self._cursors[whole.target.offset_key]
        with redact_errors(self._redaction):
            found = self._bridge.run(cursor.available(whole.start))
        if found is None:
            return ()
        end = found.end if whole.end is None else min(found.end, whole.end)
        return [PeekRange(whole.target, part.first, part.end) for part in split_range(found.first, end, tasks)]

    def close(self) -> None:
        """Close the client and its thread."""
        self._resources.close()

    def _for_each(self, start: Offsets, peek: Callable[[PeekCursor, int], Awaitable[ResultT]]) -> dict[str, ResultT]:
        async def peek_all() -> list[ResultT]:
            return await gather(*(peek(cursor, start[key]) for key, cursor in self._cursors.items()))

        with redact_errors(self._redaction):
            return dict(zip(self._cursors, self._bridge.run(peek_all()), strict=True))


def _read(
    options: ReadOptions, partition: InputPartition, columns: Sequence[str], row_filter: RowFilter
) -> Iterator[pa.RecordBatch]:
    if not isinstance(partition, PeekRange):
        raise TypeError(f"the partition is a {type(partition).__name__}: it must be a PeekRange")
    redaction = Redaction()
    with redact_errors(redaction):
        endpoint = _endpoint(options, redaction)
        with PeekClient.kept((options.access.reference, options.secondary), endpoint) as (bridge, client):
            cursor = client.cursor(partition.target)
            end = bridge.run(cursor.end(partition.start)) if partition.end is None else partition.end
            for page in iterate(bridge, cursor.pages(partition.start, end=end)):
                rows = [message for message in page if row_filter.matches(message)] if row_filter.conditions else page
                yield to_record_batch(rows, namespace=client.namespace, target=partition.target, columns=columns)
            bridge.run(client.leave(cursor))


def _endpoint(options: ReadOptions, redaction: Redaction) -> Endpoint:
    settings = options.access.resolve(redaction)
    return settings.secondary if options.secondary else settings.primary


def _explicit(offsets: Any) -> Offsets:
    """Return explicit offsets, or none for ``earliest`` and ``latest``."""
    return {} if isinstance(offsets, str) else dict(offsets)


def _truncate(available: dict[str, OffsetRange], end: Offsets) -> dict[str, OffsetRange]:
    """Remove what arrived after ``end``."""
    ranges = {key: OffsetRange(each.first, min(each.end, end[key])) for key, each in available.items()}
    return {key: each for key, each in ranges.items() if each.first < each.end}
