"""One Spark task of a write: one pair, its rows streamed through the core's senders, one receipt.

At least once: a task that is tried again sends its rows again, with the same message ids.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
from pyarrow import compute

from servicebus_pair.core.blocking import Bridge
from servicebus_pair.core.configuration import PairSettings
from servicebus_pair.core.errors import PairError
from servicebus_pair.core.events import Observer
from servicebus_pair.core.health import EntityHealth
from servicebus_pair.core.ledger import Ledger
from servicebus_pair.core.pair import NamespacePair
from servicebus_pair.core.ports import Clock, InMemoryHealthStore, SystemClock
from servicebus_pair.core.sender import PairSender
from servicebus_pair.spark.codec import Row, RowReader
from servicebus_pair.spark.naming import Position
from servicebus_pair.spark.options import WriteOptions
from servicebus_pair.spark.pacing import Pace
from servicebus_pair.spark.receipts import Tally, WriteReceipt
from servicebus_pair.spark.redaction import Redaction, SparkTaskError, secret_free
from servicebus_pair.spark.references import PairReference
from servicebus_pair.spark.windows import lanes, windows

__all__ = ["WriteTask", "write_rows"]

# Health found by one task serves the next one in the same Python worker, so that an outage is paid
# for once per process and not once per task. Soft state: a wrong value heals itself.
_process_health: Final[dict[PairReference, InMemoryHealthStore]] = {}


@dataclass(frozen=True, slots=True)
class WriteTask:
    """What one task is to do.

    :param run: what the write is called in the ledger and the manifest.
    :param position: what ids are made of, where rows have none.
    :param query: of a stream, its id.
    """

    options: WriteOptions
    run: str
    position: Position
    query: str | None = None


def write_rows(task: WriteTask, batches: Iterable[pa.RecordBatch], *, clock: Clock | None = None) -> WriteReceipt:
    """Send all rows of ``batches``; returns when all are accepted.

    :raises SparkTaskError: what stopped the task, without secrets.
    """
    timer = SystemClock() if clock is None else clock
    began, redaction = timer.now(), Redaction()
    with secret_free(redaction):
        settings, tally = task.options.access.resolve(redaction), Tally()
        with ExitStack() as stack:
            observers: list[Observer] = [tally]
            if task.options.ledger is not None:
                observers.insert(0, stack.enter_context(Ledger(task.options.ledger, run=task.run)))
            bridge = stack.enter_context(Bridge())
            publisher = _Publisher(task, settings, observers=observers, clock=timer)
            bridge.run(publisher.open())
            try:
                for batch in batches:
                    for window in _windows(batch, rows=publisher.window):
                        bridge.run(publisher.send(window))
            except Exception as failure:
                before = f"partition {task.position.partition} failed with {tally.sentence()}"
                kind = "" if isinstance(failure, SparkTaskError) else f"{type(failure).__name__}: "
                raise SparkTaskError(f"{before}: {kind}{failure}") from failure
            finally:
                bridge.run(publisher.close())
        return WriteReceipt(
            run=task.run,
            entities=tally.entities(publisher.found()),
            bytes=tally.bytes,
            began=began,
            ended=timer.now(),
            query=task.query,
        )


def _windows(batch: pa.RecordBatch, *, rows: int) -> Iterator[list[dict[str, Any]]]:
    sizes = compute.fill_null(compute.binary_length(batch.column("body")), 0).to_pylist()
    for window in windows(sizes, rows=rows):
        yield batch.slice(window.start, len(window)).to_pylist()


class _Publisher:
    """Sends rows in windows, the lanes of a window at the same time."""

    def __init__(self, task: WriteTask, settings: PairSettings, *, observers: Sequence[Observer], clock: Clock) -> None:
        self._pair = NamespacePair(
            settings.primary,
            settings.secondary,
            # A task sends: a syphon beside it would take its time, and move what nobody asked this job to move.
            replace(settings.options, enable_syphon=False),
            store=_store(task.options),
            observers=observers,
            clock=clock,
        )
        self._reader = RowReader(task.position, entity=task.options.entity)
        self._pace = Pace(task.options.rate, clock=clock)
        self._in_flight = task.options.in_flight
        self._under_way = asyncio.Semaphore(task.options.in_flight)
        self._senders: dict[str, PairSender] = {}
        self._open = AsyncExitStack()

    @property
    def window(self) -> int:
        """The most rows to be sent at a time."""
        return self._pace.window

    async def open(self) -> None:
        await self._open.enter_async_context(self._pair)

    async def close(self) -> None:
        await self._open.aclose()

    def found(self) -> dict[str, EntityHealth]:
        """Answer the health of every entity that was sent to, as it is now."""
        return {entity: self._pair.health(entity) for entity in self._senders}

    async def send(self, window: Sequence[Mapping[str, Any]]) -> None:
        """Send rows; in order within an entity's session or partition key. All are read before one is sent."""
        by_entity: dict[str, list[Row]] = defaultdict(list)
        for row in map(self._reader.read, window):
            by_entity[row.entity].append(row)
        await self._pace.take(len(window))
        sends = [
            self._send(await self._sender(entity), [rows[number] for number in lane])
            for entity, rows in by_entity.items()
            for lane in lanes([row.key for row in rows], [row.size for row in rows], most=self._in_flight)
        ]
        # All end before an error is raised, so that nothing is in flight that nobody waits for.
        answers = await asyncio.gather(*sends, return_exceptions=True)
        _raise_failures([answer for answer in answers if isinstance(answer, BaseException)])

    async def _send(self, sender: PairSender, lane: Sequence[Row]) -> None:
        # A lane has one batch under way at a time.
        async with self._under_way:
            await sender.send([row.message for row in lane])

    async def _sender(self, entity: str) -> PairSender:
        sender = self._senders.get(entity)
        if sender is None:
            sender = await self._open.enter_async_context(self._pair.sender(entity))
            self._senders[entity] = sender
        return sender


def _raise_failures(failures: Sequence[BaseException]) -> None:
    for failure in failures:
        if not isinstance(failure, PairError):
            raise failure
    if failures:
        raise SparkTaskError("; ".join(f"{type(failure).__name__}: {failure}" for failure in failures))


def _store(options: WriteOptions) -> InMemoryHealthStore:
    """The process's store, with what the driver knows where that is newer."""
    store = _process_health.setdefault(options.access.reference, InMemoryHealthStore())
    for entity, health in options.health.items():
        mine = store.known.get(entity)
        if mine is None or health.since > mine.since:
            store.known[entity] = health
    return store
