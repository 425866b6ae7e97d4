"""A drain's transport in memory: one backlog queue per path and all destinations, on a manual clock."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from azure.servicebus import ServiceBusMessage

from servicebus_pair.core.model.errors import ServiceError
from servicebus_pair.core.model.events import Event
from servicebus_pair.core.protocol.backlog_message import wrap
from servicebus_pair.core.sdk.message_batch import EncodedBatch
from servicebus_pair.core.sdk.messages import to_amqp_message
from servicebus_pair.core.sdk.send_link import SendSlot
from servicebus_pair.core.syphon.drain_context import DrainContext
from servicebus_pair.core.syphon.policies.destination_backoff import DestinationBackoff
from servicebus_pair.core.syphon.policies.rate_limiter import RateLimiter
from tests.core.support.manual_clock import ManualClock

EPOCH = 1_700_000_000.0


class FakeQueue:
    """A backlog queue and the link to it.

    :ivar errors: by operation; the error that it raises, or returns for each message.
    :ivar calls: names and main arguments of the calls, in order.
    :ivar waits: the ``max_wait_time`` of each receive.
    """

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.messages: list[Any] = []
        self.locked: set[int] = set()
        self.dead: list[tuple[str, str]] = []
        self.errors: dict[str, ServiceError] = {}
        self.calls: list[tuple[Any, ...]] = []
        self.waits: list[float] = []
        self.lock_seconds = 60.0
        self.fell_silent = False
        self._last = 0

    def put(self, entity: str | None, *ids: str, body: str = "x", **more: Any) -> None:
        for message_id in ids:
            self._last += 1
            raw = to_amqp_message(ServiceBusMessage(body, message_id=message_id, **more))
            self.messages.append(
                SimpleNamespace(
                    amqp=raw if entity is None else wrap(raw, entity=entity),
                    decode_error=None,
                    enqueued_time=datetime.fromtimestamp(self.clock.now(), UTC),
                    sequence_number=self._last,
                    message_id=message_id,
                )
            )

    @property
    def ids(self) -> list[str]:
        return [message.message_id for message in self.messages]

    def called(self, name: str) -> list[Any]:
        """The argument of each call of this name."""
        return [call[1] for call in self.calls if call[0] == name]

    def _call(self, name: str, argument: Any) -> None:
        self.calls.append((name, argument))
        if name in self.errors:
            raise self.errors[name]

    async def receive(self, *, max_messages: int, max_wait_time: float, timeout: float) -> list[Any]:
        del timeout
        self.waits.append(max_wait_time)
        self._call("receive", max_messages)
        taken = [each for each in self.messages if each.sequence_number not in self.locked][:max_messages]
        if not taken:
            await self.clock.sleep(max_wait_time)
        for each in taken:
            self.locked.add(each.sequence_number)
            each.locked_until = datetime.fromtimestamp(self.clock.now() + self.lock_seconds, UTC)
        return taken

    async def peek(self, *, max_messages: int, timeout: float, from_sequence_number: int = 1) -> list[Any]:
        del timeout
        self._call("peek", (from_sequence_number, max_messages))
        return [each for each in self.messages if each.sequence_number >= from_sequence_number][:max_messages]

    async def complete(self, messages: Sequence[Any], *, timeout: float, request: int = 0) -> list[ServiceError | None]:
        self.calls += [("complete", timeout), ("request", request)] if request else [("complete", timeout)]
        if "complete" not in self.errors:
            self.messages = [each for each in self.messages if each not in messages]
        return [self.errors.get("complete")] * len(messages)

    async def abandon(self, messages: Sequence[Any], *, timeout: float) -> list[ServiceError | None]:
        del timeout
        self.calls.append(("abandon", [each.message_id for each in messages]))
        self.locked -= {each.sequence_number for each in messages}
        return [self.errors.get("abandon")] * len(messages)

    async def dead_letter(self, message: Any, *, reason: str, description: str, timeout: float) -> ServiceError | None:
        del description, timeout
        if "dead_letter" not in self.errors:
            self.dead.append((getattr(message, "message_id", ""), reason))
            self.messages.remove(message)
        return self.errors.get("dead_letter")

    async def request(self, count: int, *, timeout: float) -> None:
        assert timeout == 10.0
        self._call("request", count)

    async def drain_credit(self, *, timeout: float) -> None:
        self._call("drain_credit", timeout)

    def detach_soon(self) -> None:
        self.calls.append(("detach", None))

    async def close(self) -> None:
        self.calls.append(("close", None))


class FakeDestination:
    """An entity of the primary.

    :ivar refuse: returns the error of sending these message ids, or ``None``.
    :ivar attempts: the ids of each batch, with the timeout.
    :ivar pings: number of pings, for which ``refuse`` is asked with no ids.
    """

    max_message_bytes = 0

    def __init__(self) -> None:
        self.limit = 262_144
        self.pings = self.reopened = 0
        self.refuse: Callable[[list[str]], BaseException | None] = lambda _: None
        self.open_error: ServiceError | None = None
        self.ids: list[str] = []
        self.attempts: list[tuple[list[str], float]] = []
        self.parts: Callable[[EncodedBatch], list[EncodedBatch]] = lambda _: []

    async def open(self, *, timeout: float) -> int:
        del timeout
        if self.open_error is not None:
            raise self.open_error
        return self.limit

    def new_batch(self) -> EncodedBatch:
        return EncodedBatch(self.limit, max_message_bytes=self.max_message_bytes)

    def batch_key(self, message: Any) -> Hashable:
        del message
        return None

    def split_if_mixed(self, batch: EncodedBatch) -> list[EncodedBatch]:
        return self.parts(batch)

    async def send_in_slot(self, batch: EncodedBatch, slot: SendSlot) -> bool:
        timeout = slot.attempt_timeout()
        if timeout is None:
            return False
        ids = [ref.message_id for ref in batch.refs]
        self.attempts.append((ids, timeout))
        error = self.refuse(ids)
        if error is not None:
            raise error
        self.ids += ids
        return True

    async def reopen(self, *, timeout: float) -> None:
        del timeout
        self.reopened += 1

    async def send_ping(self, message: Any, *, timeout: float) -> None:
        del message, timeout
        self.pings += 1
        error = self.refuse([])
        if error is not None:
            raise error


class FakeTransport:
    """All queues and destinations, made on first use.

    :ivar should_stop: of the last source.
    """

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.sources = 0
        self.should_stop: Callable[[], bool] = bool
        self.queues: defaultdict[str, FakeQueue] = defaultdict(lambda: FakeQueue(clock))
        self.entities: defaultdict[str, FakeDestination] = defaultdict(FakeDestination)

    def source(self, queue: str, *, should_stop: Callable[[], bool], dead_letter: bool = False) -> Any:
        del dead_letter
        self.sources += 1
        self.should_stop = should_stop
        return self.queues[queue]

    def destination(self, entity: str, *, link_index: int = 0) -> Any:
        del link_index
        return self.entities[entity]


def drain_context(*, rate: float | None = None, **more: Any) -> tuple[DrainContext, FakeTransport, list[Event]]:
    """Return a context over a fake transport, with a list that receives its events."""
    clock = ManualClock(EPOCH)
    transport, events = FakeTransport(clock), list[Event]()
    without_sessions: Any = transport
    context = DrainContext(
        transport=without_sessions,
        clock=clock,
        emit=events.append,
        backoff=DestinationBackoff(initial_delay=1.0),
        rate_limiter=RateLimiter(rate, clock=clock),
        **{"max_batch_messages": 100, **more},
    )
    return context, transport, events
