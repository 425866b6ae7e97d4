"""A backlog sender over fake queues, in simulated time."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from random import Random
from types import SimpleNamespace
from typing import Any

from azure.servicebus import ServiceBusMessage

from servicebus_pair.core import EntityHealth, HealthState, PairOptions
from servicebus_pair.core.model.errors import ServiceError
from servicebus_pair.core.sdk.message_batch import EncodedBatch
from servicebus_pair.core.sdk.messages import to_amqp_message
from servicebus_pair.core.sdk.send_link import SendSlot
from servicebus_pair.core.send.backlog_sender import BacklogSender
from servicebus_pair.core.send.delivery_state import AttemptExecutor, DeliveryState
from servicebus_pair.core.send.queue_selector import BacklogHealth, QueueSelector
from servicebus_pair.core.send.timeouts import Deadline
from tests.core.support.manual_clock import ManualClock


class FakeLink:
    """A link to a backlog queue.

    :ivar outcomes: of the next sends; afterwards they succeed.
    :ivar seconds: how long a failing send takes, at most its timeout.
    """

    def __init__(self, clock: ManualClock) -> None:
        self.attached, self.limit, self.max_message_bytes = True, 262_144, 0
        self.outcomes: list[ServiceError | None] = []
        self.seconds = 0.0
        self.timeouts: list[float | None] = []
        self.ids: list[str] = []
        self.opened = 0
        self.reopen_error: ServiceError | None = None
        self._clock = clock

    @property
    def max_batch_bytes(self) -> int:
        return self.limit

    async def open(self, *, timeout: float) -> int:
        assert timeout == 10.0
        self.opened += 1
        self.attached = True
        return self.limit

    async def reopen(self, *, timeout: float) -> None:
        assert timeout > 0
        if self.reopen_error is not None:
            raise self.reopen_error

    async def open_in_slot(self, slot: SendSlot) -> int | None:
        return None if slot.attempt_timeout() is None else self.limit

    async def send_in_slot(self, batch: EncodedBatch, slot: SendSlot, on_start: Callable[[], None]) -> bool:
        timeout = slot.attempt_timeout()
        self.timeouts.append(timeout)
        if timeout is None:
            return False
        on_start()
        outcome = self.outcomes.pop(0) if self.outcomes else None
        if outcome is not None:
            self._clock.time += min(timeout, self.seconds)
            raise outcome
        self.ids += batch.ids
        return True


class Diverting:
    """A backlog sender over fake queues."""

    def __init__(
        self,
        count: int = 2,
        *,
        order: Any = None,
        timeout: float | None = None,
        body: int = 1,
        queues: int = 3,
        unspooled_from: str | None = None,
    ) -> None:
        self.clock = ManualClock()
        self.links = {f"q{number}": FakeLink(self.clock) for number in range(queues)}
        self.events: list[Any] = []
        self.selector = QueueSelector(tuple(self.links), random=Random(0))  # noqa: S311 - repeatable
        health = EntityHealth(HealthState.FAILED_OVER, reason="an outage")
        self.registry: Any = SimpleNamespace(
            observers=[self],
            current=lambda _: health,
            emit=self.events.append,
            emit_best_effort=self.events.append,
            lease=self._lease,
            lease_seconds_left=lambda _: inf,
        )
        self.failed_back = False
        self.unspools = unspooled_from is not None
        self.health = BacklogHealth(clock=self.clock, retry_seconds=60)
        context: Any = SimpleNamespace(
            options=PairOptions(),
            secondary=SimpleNamespace(send_link=self.links.__getitem__),
            registry=self.registry,
            queue_selector=self.selector,
            clock=self.clock,
            order=order,
            backlog_health=self.health,
            unspooled_from=unspooled_from,
        )
        self.sender = BacklogSender("flights", context)
        self.deadline = Deadline(self.clock, timeout=timeout)
        self.state = DeliveryState()
        self.start(count, body=body)

    async def _lease(self, entity: str, *, timeout: float, unspools: bool) -> EntityHealth:
        assert (entity, timeout > 0, unspools) == ("flights", True, self.unspools)
        return EntityHealth() if self.failed_back else EntityHealth(HealthState.FAILED_OVER)

    def start(self, count: int, *, body: int = 1) -> None:
        sent = [to_amqp_message(ServiceBusMessage(b"x" * body, message_id=f"m{n}")) for n in range(count)]
        self.taken = [self.state.take(message) for message in sent]

    async def send(self, *, because: ServiceError | None = None) -> str:
        """Send; return the queue that is used from then on."""
        executor = AttemptExecutor("flights", self.state, registry=self.registry, clock=self.clock)
        self.left = await self.sender.send(self.taken, executor, because=because, deadline=self.deadline)
        return self.sender._queue or ""

    def fail(self, *outcomes: ServiceError, queue: str | None = None) -> None:
        for name in self.links if queue is None else [queue]:
            self.links[name].outcomes = list(outcomes)

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]
