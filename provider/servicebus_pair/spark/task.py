"""One Spark task of a publish: one pair, its rows streamed through the core's senders, one summary.

At least once: a task that is tried again sends its rows again with the same message ids.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
from azure.servicebus import ServiceBusMessage

from servicebus_pair.core.blocking import Bridge
from servicebus_pair.core.configuration import PairSettings
from servicebus_pair.core.errors import PairError
from servicebus_pair.core.events import Event, MessagesAccepted, Route
from servicebus_pair.core.health import EntityHealth
from servicebus_pair.core.ledger import Ledger
from servicebus_pair.core.pair import NamespacePair
from servicebus_pair.core.ports import Clock, InMemoryHealthStore, SystemClock
from servicebus_pair.core.sender import PairSender
from servicebus_pair.spark.codec import message_of
from servicebus_pair.spark.pacing import Pace
from servicebus_pair.spark.redaction import Redaction, SparkTaskError, secret_free
from servicebus_pair.spark.references import PairReference
from servicebus_pair.spark.shape import Shape

__all__ = ["SUMMARY", "PublishOrder", "run_task"]

SUMMARY: Final = Shape(
    {"entity": "string", "primary": "bigint", "diverted": "bigint", "bytes": "bigint", "health": "string"}
)

# Health found by one task serves the next one in the same Python worker, so that an outage is paid
# for once per process and not once per task. Soft state: a wrong value heals itself.
_process_health: Final[dict[PairReference, InMemoryHealthStore]] = {}


@dataclass(frozen=True, slots=True)
class PublishOrder:
    """What the driver tells every task; it travels in the plan, so it holds no secret.

    :param ledger: folder of the ledger, as the executors see it.
    :param rate: messages per second of one task; ``None`` is as fast as it goes.
    :param health: what is known of entities at the start, by path.
    """

    reference: PairReference
    ledger: str
    run: str
    rate: float | None = None
    health: Mapping[str, EntityHealth] = field(default_factory=dict)


def run_task(order: PublishOrder, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Send all rows of ``batches`` and yield one summary row per entity at the end.

    :raises SparkTaskError: what stopped the task, without secrets.
    """
    redaction = Redaction()
    with secret_free(redaction):
        settings = order.reference.resolve(redaction)
        tally = _Tally()
        with Ledger(order.ledger, run=order.run) as ledger, Bridge() as bridge:
            publisher = _Publisher(order, settings, observers=(ledger, tally), clock=SystemClock())
            bridge.run(publisher.open())
            try:
                for batch in batches:
                    bridge.run(publisher.send(batch.to_pylist()))
            finally:
                bridge.run(publisher.close())
        summary = [tally.row(entity, health) for entity, health in publisher.found().items()]
    yield SUMMARY.batch(summary)


class _Tally:
    """An observer that counts what was accepted, by entity and route."""

    def __init__(self) -> None:
        self._accepted: Counter[tuple[str, Route]] = Counter()
        self._bytes: Counter[str] = Counter()

    def observe(self, event: Event) -> None:
        if isinstance(event, MessagesAccepted):
            self._accepted[event.entity, event.route] += len(event.messages)
            self._bytes[event.entity] += sum(ref.size_bytes for ref in event.messages)

    def row(self, entity: str, health: EntityHealth) -> dict[str, Any]:
        return {
            "entity": entity,
            "primary": self._accepted[entity, Route.PRIMARY],
            "diverted": self._accepted[entity, Route.BACKLOG],
            "bytes": self._bytes[entity],
            "health": json.dumps(health.to_json()),
        }


class _Publisher:
    """Sends rows in windows, the entities of a window at the same time."""

    def __init__(self, order: PublishOrder, settings: PairSettings, *, observers: Sequence[Any], clock: Clock) -> None:
        self._pair = NamespacePair(
            settings.primary,
            settings.secondary,
            settings.options,
            store=_store(order),
            observers=observers,
            clock=clock,
        )
        self._pace = Pace(order.rate, clock=clock)
        self._senders: dict[str, PairSender] = {}
        self._open = AsyncExitStack()

    async def open(self) -> None:
        await self._open.enter_async_context(self._pair)

    async def close(self) -> None:
        await self._open.aclose()

    async def send(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Send ``rows``; in order within an entity."""
        for start in range(0, len(rows), self._pace.window):
            window = rows[start : start + self._pace.window]
            await self._pace.take(len(window))
            await self._send_window(window)

    def found(self) -> dict[str, EntityHealth]:
        """Answer the health of every entity that was sent to, as it is now."""
        return {entity: self._pair.health(entity) for entity in self._senders}

    async def _send_window(self, window: Sequence[Mapping[str, Any]]) -> None:
        by_entity: dict[str, list[ServiceBusMessage]] = defaultdict(list)
        for row in window:
            by_entity[row["destination"]].append(message_of(row))
        senders = [await self._sender(entity) for entity in by_entity]
        # All end before an error is raised, so that nothing is in flight that nobody waits for.
        answers = await asyncio.gather(
            *(sender.send(by_entity[sender.entity]) for sender in senders), return_exceptions=True
        )
        _raise_failures([answer for answer in answers if isinstance(answer, BaseException)])

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


def _store(order: PublishOrder) -> InMemoryHealthStore:
    """The process's store, with what the driver knows where that is newer."""
    store = _process_health.setdefault(order.reference, InMemoryHealthStore())
    for entity, health in order.health.items():
        mine = store.known.get(entity)
        if mine is None or health.since > mine.since:
            store.known[entity] = health
    return store
