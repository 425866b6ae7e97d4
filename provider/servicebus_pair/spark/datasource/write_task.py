"""One Spark task of a write: streams its rows through the core's senders and returns a commit message.

At least once: a retried task sends its rows again, with the same message ids.
"""

from __future__ import annotations

import asyncio
import socket
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import pyarrow as pa
from pyarrow import compute

from servicebus_pair.core import (
    EntityHealth,
    InMemoryHealthStore,
    NamespacePair,
    PairSender,
    PairSettings,
)
from servicebus_pair.core.errors import ConfigurationError, InvalidMessageError, PairError, SendError
from servicebus_pair.core.events import Event, Observer
from servicebus_pair.core.ledger import open_ledger
from servicebus_pair.core.model import Clock, SystemClock, is_folder
from servicebus_pair.core.syphon import RateLimiter
from servicebus_pair.spark.base.credential_reference import PairReference
from servicebus_pair.spark.base.message_ids import MessageIdGenerator
from servicebus_pair.spark.base.redaction import Redaction, SparkTaskError, redact_errors
from servicebus_pair.spark.base.row_batches import group_by_key, split_rows
from servicebus_pair.spark.connections.kept_connections import kept
from servicebus_pair.spark.datasource.commit_messages import AcceptanceCounter, TaskCommitMessage
from servicebus_pair.spark.datasource.options import WriteOptions
from servicebus_pair.spark.datasource.rejected_rows import RejectedRows, is_permanent, is_verdict_on_row
from servicebus_pair.spark.datasource.row_codec import EncodedRow, RowEncoder

# A task with a rate sends at least this often, so that an outage interrupts a stream and not one large batch.
PACED_BATCH_SECONDS: Final = 0.5
_MAX_BATCH_ROWS: Final = 10_000

# Health that one task finds is reused by later tasks in the same Python worker, so that each process, not each task,
# waits for the failover interval once. Soft state: a wrong value corrects itself.
_process_health: Final[dict[PairReference, InMemoryHealthStore]] = {}


@dataclass(frozen=True, slots=True)
class WriteTask:
    """What one task does.

    :param run: name of the write in the ledger and the manifest.
    :param message_ids: generates ids for rows without one.
    :param query_id: for a stream.
    """

    options: WriteOptions
    run: str
    message_ids: MessageIdGenerator
    query_id: str | None = None


def write_rows(task: WriteTask, record_batches: Iterable[pa.RecordBatch]) -> TaskCommitMessage:
    """Send all rows of ``record_batches``; returns when all are accepted, or rejected and written to the error table.

    A failure that no other attempt could mend is returned in the commit message: Spark would repeat a task that raises.

    :raises SparkTaskError: what stopped the task, without secrets.
    """
    clock, redaction = SystemClock(), Redaction()
    started_at = clock.now()
    with redact_errors(redaction):
        settings, counter = task.options.access.resolve(redaction), AcceptanceCounter()
        open_pair = partial(_OpenPair.open, settings, _health_store(task.options))
        with ExitStack() as stack:
            # The counter is first, because a ledger may fail.
            observers: list[Observer] = [counter]
            ledger = None
            if task.options.ledger is not None:
                ledger = stack.enter_context(open_ledger(task.options.ledger, run=task.run))
                observers.append(ledger)
            loan = stack.enter_context(kept((_OpenPair, task.options.access), settings, open_pair))
            bridge = loan.bridge
            rejected = RejectedRows(task.options.error_table, name=task.message_ids.name)
            sender = _RowSender(task, loan.connection, rejected, observers=observers, clock=clock)
            failed = schema = None
            try:
                for record_batch in record_batches:
                    for rows in _split(record_batch, max_rows=sender.max_rows):
                        bridge.run(sender.send(rows))
                        if ledger is not None:
                            ledger.flush()
                    schema = record_batch.schema
                if schema is not None:
                    rejected.write(schema)
            except Exception as failure:
                loan.is_reusable = False
                progress = f"partition {task.message_ids.partition} failed with {counter.summary()}"
                kind = "" if isinstance(failure, SparkTaskError) else f"{type(failure).__name__}: "
                failed = f"{progress}: {kind}{failure}"
                if not is_permanent(failure):
                    raise SparkTaskError(failed) from failure
            finally:
                bridge.run(sender.close())
            if loan.is_reusable:
                loan.connection.observers = ()
        return TaskCommitMessage(
            run=task.run,
            entities=counter.manifests(sender.health()),
            bytes=counter.bytes,
            started_at=started_at,
            ended_at=clock.now(),
            query_id=task.query_id,
            ledger={} if ledger is None else {ledger.name: ledger.records},
            failure=None if failed is None else redaction.clean(failed),
            rejected=rejected.count,
            spool_host=socket.gethostname() if is_folder(settings.options.spool) else None,
        )


def max_batch_rows(rate: float | None) -> int:
    """Return how many rows to send at a time at ``rate`` rows per second; ``None`` is unlimited."""
    return _MAX_BATCH_ROWS if rate is None else min(_MAX_BATCH_ROWS, max(1, int(rate * PACED_BATCH_SECONDS)))


def _split(record_batch: pa.RecordBatch, *, max_rows: int) -> Iterator[list[dict[str, Any]]]:
    sizes = compute.fill_null(compute.binary_length(record_batch.column("body")), 0).to_pylist()
    for rows in split_rows(sizes, max_rows=max_rows):
        yield record_batch.slice(rows.start, len(rows)).to_pylist()


class _OpenPair:
    """A pair that stays open from one task to the next.

    :ivar observers: of the task that sends now, which receive every event, in order.
    """

    def __init__(self, settings: PairSettings, store: InMemoryHealthStore) -> None:
        options = settings.options
        if options.spool is not None and options.ordering == "session":
            raise ConfigurationError(
                f"option ordering is session, and spool is {options.spool!r}: Spark tasks share no health, by which "
                "they could agree on when messages go to the spool; set option ordering to none, or remove the spool"
            )
        self.observers: Sequence[Observer] = ()
        self.pair = NamespacePair(
            settings.primary,
            settings.secondary,
            # This job only sends: a syphon would slow it down, and moving the backlog is a separate decision.
            replace(options, enable_syphon=False),
            store=store,
            observers=[self],
        )

    @classmethod
    async def open(cls, settings: PairSettings, store: InMemoryHealthStore) -> _OpenPair:
        opened = cls(settings, store)
        await opened.pair.__aenter__()
        return opened

    def observe(self, event: Event) -> None:
        for observer in self.observers:
            observer.observe(event)

    async def close(self) -> None:
        await self.pair.close()


class _RowSender:
    """Sends batches of rows; the groups of a batch are sent concurrently."""

    def __init__(
        self,
        task: WriteTask,
        opened: _OpenPair,
        rejected: RejectedRows,
        *,
        observers: Sequence[Observer],
        clock: Clock,
    ) -> None:
        self._rejected = rejected
        self._opened = opened
        self._pair = opened.pair
        opened.observers = observers
        self._encoder = RowEncoder(task.message_ids, entity=task.options.entity)
        self.max_rows: Final = max_batch_rows(task.options.rate)
        self._rate_limiter = RateLimiter(task.options.rate, clock=clock, burst=self.max_rows)
        self._max_in_flight = task.options.in_flight
        self._in_flight = asyncio.Semaphore(task.options.in_flight)
        self._senders: dict[str, PairSender] = {}
        self._resources = AsyncExitStack()

    async def close(self) -> None:
        await self._resources.aclose()

    def health(self) -> dict[str, EntityHealth]:
        """Return the current health of every entity that was sent to."""
        return {entity: self._pair.health(entity) for entity in self._senders}

    async def send(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Send rows, in order within each session or partition key. All are encoded before the first is sent."""
        by_entity: dict[str, list[EncodedRow]] = defaultdict(list)
        for row in rows:
            try:
                encoded_row = self._encoder.encode(row)
            except InvalidMessageError as error:
                if not self._rejected.collects:
                    raise
                self._rejected.add(row, str(error))
            else:
                by_entity[encoded_row.entity].append(encoded_row)
        await self._rate_limiter.acquire(len(rows), min_permits=len(rows))
        sends = [
            self._send_group(await self._sender(entity), [encoded[number] for number in group])
            for entity, encoded in by_entity.items()
            for group in group_by_key(
                [row.key for row in encoded], [row.size for row in encoded], max_groups=self._max_in_flight
            )
        ]
        # Wait for all before raising, so that no send is left running in the background.
        results = await asyncio.gather(*sends, return_exceptions=True)
        _raise_failures([result for result in results if isinstance(result, BaseException)])

    async def _send_group(self, sender: PairSender, group: Sequence[EncodedRow]) -> None:
        async with self._in_flight:
            await self._send_rows(sender, group)

    async def _send_rows(self, sender: PairSender, group: Sequence[EncodedRow]) -> None:
        try:
            await sender.send([row.message for row in group])
        except SendError as error:
            if not self._rejected.collects or not is_verdict_on_row(error):
                raise
            if len(group) == 1:
                self._rejected.add(group[0].row, str(error))
                return
            # Halves find the row in few sends, and keep the order of the others.
            unsent = {id(message) for message in error.unsent}
            rest = [row for row in group if id(row.message) in unsent]
            middle = (len(rest) + 1) // 2
            for half in (rest[:middle], rest[middle:]):
                if half:
                    await self._send_rows(sender, half)

    async def _sender(self, entity: str) -> PairSender:
        sender = self._senders.get(entity)
        if sender is None:
            sender = await self._resources.enter_async_context(self._pair.sender(entity))
            self._senders[entity] = sender
        return sender


def _raise_failures(failures: Sequence[BaseException]) -> None:
    # What may pass is raised first, because then another attempt may succeed.
    for failure in sorted(failures, key=is_permanent):
        if not isinstance(failure, PairError) or len(failures) == 1:
            raise failure
    if failures:
        text = "; ".join(f"{type(failure).__name__}: {failure}" for failure in failures)
        raise SparkTaskError(text) from min(failures, key=is_permanent)


def _health_store(options: WriteOptions) -> InMemoryHealthStore:
    """Return the process's store, updated with the driver's health records where these are newer."""
    store = _process_health.setdefault(options.access.reference, InMemoryHealthStore())
    for entity, health in options.health.items():
        known = store.known.get(entity)
        if known is None or health.since > known.since:
            store.known[entity] = health
    return store
