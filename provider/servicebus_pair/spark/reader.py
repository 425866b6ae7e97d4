"""The readers of the data source: a batch, and a stream; both look by peek and take nothing.

Peek sees what is there. Messages that somebody takes meanwhile are gone, for a batch of a stream that is
read again after a failure too; offsets stay what they were.
"""

from __future__ import annotations

from asyncio import gather
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from servicebus_pair.core.blocking import Bridge
from servicebus_pair.core.ports import SystemClock
from servicebus_pair.spark.browsing import Browser, Look
from servicebus_pair.spark.cursors import (
    FIRST,
    Ahead,
    Offsets,
    Peekable,
    check_numbers,
    check_range,
    idle_pause,
    next_offsets,
    starting,
)
from servicebus_pair.spark.option_table import LATEST
from servicebus_pair.spark.options import ReadOptions
from servicebus_pair.spark.received import batch_of
from servicebus_pair.spark.redaction import Redaction, secret_free

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["PeekRange", "ServiceBusReader", "ServiceBusStreamReader"]

ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class PeekRange(InputPartition):
    """What one task reads: sequence numbers from ``start`` up to and without ``end``.

    :param end: ``None`` ends with what is there when the task begins.
    """

    peekable: Peekable
    start: int
    end: int | None


class ServiceBusReader(DataSourceReader):
    """Reads what queues hold, a task for each queue, sub-queue or session. A second action looks again."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        places = [each.place for each in options.peekables]
        self._start = starting(places, _given(options.start), option="startingOffsets")
        starting(places, _given(options.end), option="endingOffsets")
        self._end = _given(options.end)
        check_range(self._start, self._end)

    def partitions(self) -> Sequence[InputPartition]:
        """Answer one range for each queue, sub-queue or session; connects to nothing."""
        return [PeekRange(each, self._start[each.place], self._end.get(each.place)) for each in self._options.peekables]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield one range, page by page. :raises SparkTaskError: what stopped it, without secrets."""
        return _read(self._options, partition)


class ServiceBusStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows queues by sequence number. To plan a batch, the driver looks into them too."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._places = [each.place for each in options.peekables]
        self._start = starting(self._places, _given(options.start), option="startingOffsets")
        self._outlook: _Outlook | None = None
        self._until: Offsets | None = None
        self._latest: Offsets | None = None

    def initialOffset(self) -> Offsets:  # noqa: N802  Spark's name
        """Answer where a new query begins."""
        if self._options.start != LATEST:
            return self._start
        return self._look().ends(dict.fromkeys(self._places, FIRST))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  Spark's name
        """Answer ``maxMessagesPerTrigger``."""
        return ReadAllAvailable() if self._options.limit is None else ReadMaxRows(self._options.limit)

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:  # noqa: N802  Spark's name
        """Answer where the batch after ``start`` ends. :raises SparkTaskError: a queue cannot be looked into."""
        offsets = starting(self._places, {place: start[place] for place in self._places if place in start}, option="")
        ahead = self._look().ahead(offsets)
        self._latest = offsets | {place: each.end for place, each in ahead.items()}
        if self._until is not None:
            ahead = _cut(ahead, self._until)
        return next_offsets(offsets, ahead, limit=limit.max_rows if isinstance(limit, ReadMaxRows) else None)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  Spark's name
        """Note what is there now: this query ends with it."""
        self._until = self._look().ends(self._start)

    def reportLatestOffset(self) -> Offsets | None:  # noqa: N802  Spark's name
        """Answer what there was at the last look."""
        return self._latest

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        """Answer one range for each place that moved; connects to nothing, so a batch can be read again."""
        return [
            PeekRange(each, start.get(each.place, FIRST), end[each.place])
            for each in self._options.peekables
            if end.get(each.place, FIRST) > start.get(each.place, FIRST)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield one range, page by page. :raises SparkTaskError: what stopped it, without secrets."""
        return _read(self._options, partition)

    def stop(self) -> None:
        """Close what the driver looked with."""
        if self._outlook is not None:
            self._outlook.close()

    def _look(self) -> _Outlook:
        if self._outlook is None:
            self._outlook = _Outlook(self._options)
        return self._outlook


class _Outlook:
    """What the driver of a stream sees of the queues; its links stay open.

    Spark asks without a pause while there is nothing new, and each look is billed: so it waits then.
    """

    def __init__(self, options: ReadOptions) -> None:
        self._redaction = Redaction()
        self._clock = SystemClock()
        self._found_nothing_at = -inf
        with secret_free(self._redaction):
            browser = _browser(options, self._redaction)
        self._open = ExitStack()
        self._bridge = self._open.enter_context(Bridge())
        self._open.callback(lambda: self._bridge.run(browser.close()))
        self._looks = {each.place: browser.look(each) for each in options.peekables}

    def ahead(self, start: Offsets) -> dict[str, Ahead]:
        """Answer what lies before the cursors that have messages before them.

        :raises ConfigurationError: a place cannot be followed.
        """
        self._bridge.run(self._clock.sleep(idle_pause(self._found_nothing_at, now=self._clock.now())))
        found = self._of_each(start, lambda look, first: look.ahead(first))
        ahead = {place: each for place, each in found.items() if each is not None}
        for place, each in ahead.items():
            check_numbers(place, each)
        self._found_nothing_at = -inf if ahead else self._clock.now()
        return ahead

    def ends(self, start: Offsets) -> Offsets:
        """Answer the number after the last message of each place."""
        return self._of_each(start, lambda look, first: look.end(first))

    def close(self) -> None:
        """Close the client and its thread."""
        self._open.close()

    def _of_each(self, start: Offsets, ask: Callable[[Look, int], Awaitable[ResultT]]) -> dict[str, ResultT]:
        async def every() -> list[ResultT]:
            return await gather(*(ask(look, start[place]) for place, look in self._looks.items()))

        with secret_free(self._redaction):
            return dict(zip(self._looks, self._bridge.run(every()), strict=True))


def _read(options: ReadOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    if not isinstance(partition, PeekRange):
        raise TypeError(f"the partition is a {type(partition).__name__}: it must be a PeekRange")
    redaction = Redaction()
    with secret_free(redaction):
        browser = _browser(options, redaction)
        with Bridge() as bridge:
            try:
                look = browser.look(partition.peekable)
                end = bridge.run(look.end(partition.start)) if partition.end is None else partition.end
                pages = look.pages(partition.start, end=end)
                while (page := bridge.run(_next(pages))) is not None:
                    yield batch_of(page, namespace=browser.namespace, peekable=partition.peekable)
            finally:
                bridge.run(browser.close())


async def _next(pages: Any) -> Any:
    return await anext(pages, None)


def _browser(options: ReadOptions, redaction: Redaction) -> Browser:
    settings = options.access.resolve(redaction)
    return Browser(settings.secondary if options.secondary else settings.primary)


def _given(offsets: Any) -> Offsets:
    return {} if isinstance(offsets, str) else dict(offsets)


def _cut(ahead: dict[str, Ahead], until: Offsets) -> dict[str, Ahead]:
    """Leave out what came after ``until``."""
    cut = {place: Ahead(each.first, min(each.end, until[place])) for place, each in ahead.items()}
    return {place: each for place, each in cut.items() if each.first < each.end}
