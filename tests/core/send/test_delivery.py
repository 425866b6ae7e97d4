"""However a send ends, it reports the state of each message (SPEC section 4)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from datetime import timedelta
from math import inf
from types import SimpleNamespace
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage

from servicebus_emulator import Fault, FaultKind
from servicebus_emulator.engine.model.descriptions import QueueDescription
from servicebus_pair.core import HealthState, PairOptions, SendResult
from servicebus_pair.core.health.registry import HealthRegistry
from servicebus_pair.core.model.errors import (
    AuthenticationError,
    AuthorizationError,
    EntityDisabledError,
    EntityNotFoundError,
    MessageTooLargeError,
    ObserverError,
    QuotaExceededError,
    RefusedError,
    RejectedError,
    SendCancelledError,
    SendError,
    SendTimeoutError,
    ServerBusyError,
    ServiceError,
    ServiceFaultError,
    UnreachableError,
    find_send_error,
)
from servicebus_pair.core.model.events import Event, HealthChanged, MessagesAccepted, Route
from servicebus_pair.core.model.health_transitions import FailOver
from servicebus_pair.core.protocol.amqp_message import AmqpMessage, body_digest
from servicebus_pair.core.sdk import message_batch
from servicebus_pair.core.sdk.message_batch import EncodedBatch
from servicebus_pair.core.sdk.messages import InputMessages
from servicebus_pair.core.sdk.send_link import SendSlot
from servicebus_pair.core.send.delivery import Delivery
from servicebus_pair.core.send.delivery_state import AttemptExecutor, DeliveryState, TrackedMessage
from servicebus_pair.core.send.queue_selector import BacklogHealth
from servicebus_pair.core.send.sender_context import SenderContext
from servicebus_pair.core.send.timeouts import Deadline
from tests.core.support.local_pair import FAILOVER_INTERVAL, FAILOVER_MARGIN, LocalPair, numbered, open_quick_pair
from tests.core.support.manual_clock import START, ManualClock

pytestmark = pytest.mark.simulated

BIG = 100_000
# Seconds; half a second is promised, but a loaded machine is slower.
LONG = timedelta(seconds=30)


def ids(messages: tuple[Any, ...]) -> list[str]:
    return [str(message.message_id) for message in messages]


def big(count: int) -> list[ServiceBusMessage]:
    """Messages so large that two fit one batch."""
    return [ServiceBusMessage(b"x" * BIG, message_id=f"m{n}") for n in range(count)]


class FullDisk:
    """An observer that fails on the second batch, like a ledger on a full disk."""

    def __init__(self) -> None:
        self.batches = 0

    def observe(self, event: Event) -> None:
        if isinstance(event, MessagesAccepted):
            self.batches += 1
            if self.batches == 2:
                raise OSError(28, "No space left on device")


class FailingHealthObserver:
    """An observer that fails on every health change."""

    def observe(self, event: Event) -> None:
        if isinstance(event, HealthChanged):
            raise RuntimeError("not again")  # noqa: TRY004 - no type is wrong here


async def test_section_4_a_timeout_reports_accepted_and_in_doubt_messages() -> None:
    stored_but_silent = Fault(kind=FaultKind.NO_DISPOSITION, entity="flights")
    async with open_quick_pair(failover_interval=LONG) as local_pair, local_pair.pair.sender("flights") as sender:

        def stream() -> Iterator[ServiceBusMessage]:
            for number, message in enumerate(big(7)):
                # The first batch is sent when the third message arrives, and so on.
                if number == 4:
                    local_pair.primary.set_fault(stored_but_silent)
                yield message

        source = stream()
        with pytest.raises(SendTimeoutError) as caught:
            await sender.send(source, timeout=1.5)
        error = caught.value
        assert error.result.primary_ids == ("m0", "m1")
        assert error.result.diverted_ids == ()
        assert ids(error.unsent) == ["m2", "m3", "m4"]
        assert ids(error.in_doubt) == ["m2", "m3"]
        # Only accepted messages and those in doubt are stored; the iterator keeps its position.
        assert await local_pair.primary_ids() == ["m0", "m1", "m2", "m3"]
        assert [message.message_id for message in source] == ["m5", "m6"]


async def test_section_4_asyncio_timeout_carries_the_send_error_as_its_cause(local_pair: LocalPair) -> None:
    local_pair.primary.set_fault(Fault(kind=FaultKind.FREEZE))
    async with local_pair.pair.sender("flights") as sender:
        with pytest.raises(TimeoutError) as caught:
            async with asyncio.timeout(0.3):
                await sender.send(numbered(3))
    account = find_send_error(caught.value)
    assert isinstance(account, SendCancelledError)
    assert ids(account.unsent) == ["m0", "m1", "m2"]


async def test_section_4_concurrent_sends_that_meet_the_outage_divert_together(local_pair: LocalPair) -> None:
    async with local_pair.pair.sender("flights") as sender:
        await sender.send(numbered(1))
        local_pair.primary.set_fault(Fault(kind=FaultKind.FREEZE))
        started = asyncio.get_running_loop().time()
        results = await asyncio.gather(*(sender.send(numbered(1, start=n)) for n in range(1, 31)))
        assert asyncio.get_running_loop().time() - started < FAILOVER_INTERVAL + FAILOVER_MARGIN
    assert [result.diverted for result in results] == [1] * 30


@pytest.mark.parametrize("asynchronous", [False, True], ids=["iterator", "stream"])
async def test_section_4_an_iterable_that_raises_loses_no_message(local_pair: LocalPair, asynchronous: bool) -> None:
    def rows() -> Iterator[ServiceBusMessage]:
        yield from big(4)
        raise RuntimeError("the file ended early")

    async def stream() -> AsyncIterator[ServiceBusMessage]:
        for row in rows():
            yield row

    async with local_pair.pair.sender("flights") as sender:
        with pytest.raises(SendError, match="the file ended early") as caught:
            await sender.send(stream() if asynchronous else rows())
    assert isinstance(caught.value.cause, RuntimeError)
    assert caught.value.result.primary_ids == ("m0", "m1")
    assert ids(caught.value.unsent) == ["m2", "m3"]
    assert caught.value.in_doubt == ()


async def test_section_4_the_same_message_sent_twice_is_counted_twice(local_pair: LocalPair) -> None:
    [message] = numbered(1)
    async with local_pair.pair.sender("flights") as sender:
        await local_pair.pair.fail_over("flights", reason="test")
        assert (await sender.send([message, message])).diverted_ids == ("m0", "m0")
        await local_pair.pair.mark_healthy("flights")
        assert (await sender.send([message, message])).primary_ids == ("m0", "m0")


async def test_section_9_a_failing_observer_ends_the_send_with_the_accepted_messages() -> None:
    later = FailingHealthObserver(), FullDisk()
    async with open_quick_pair(observers=later) as local_pair, local_pair.pair.sender("flights") as sender:
        with pytest.raises(SendError, match="No space left") as caught:
            await sender.send(big(6))
        error = caught.value
        assert isinstance(error.cause, ObserverError)
        assert error.result.primary_ids == ("m0", "m1", "m2", "m3")
        assert ids(error.unsent) == ["m4", "m5"]
        assert error.in_doubt == ()
        assert await local_pair.primary_ids() == ["m0", "m1", "m2", "m3"]
        # The other observers received the event.
        assert len(local_pair.recorder.of(MessagesAccepted)) == 2


async def test_section_9_what_a_ledger_records_is_prepared_while_the_outcome_is_awaited(
    local_pair: LocalPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    times: list[float] = []
    clock = asyncio.get_running_loop().time

    def timed(message: AmqpMessage) -> str | None:
        times.append(clock())
        return body_digest(message)

    monkeypatch.setattr(message_batch, "body_digest", timed)
    async with local_pair.pair.sender("flights") as sender:
        await sender.send(numbered(1))
        local_pair.primary.set_fault(Fault(kind=FaultKind.LATENCY, delay=0.1))
        times.clear()
        started = clock()
        await sender.send(numbered(3))
    assert (len(times), max(times) - started) == (3, pytest.approx(0, abs=0.01))
    assert clock() - started == pytest.approx(0.1)


async def test_section_4_an_observer_that_fails_on_a_health_change_does_not_stop_the_failover() -> None:
    async with (
        open_quick_pair(observers=(FailingHealthObserver(),)) as local_pair,
        local_pair.pair.sender("flights") as sender,
    ):
        local_pair.primary.set_fault(Fault(kind=FaultKind.INTERNAL_ERROR, entity="flights"))
        assert (await sender.send(numbered(3))).diverted == 3
        local_pair.primary.clear_faults()
        await asyncio.wait_for(local_pair.recorder.recovered.wait(), 5)


async def test_section_4_a_send_that_waited_for_the_link_during_a_failover_is_diverted(local_pair: LocalPair) -> None:
    async with local_pair.pair.sender("flights") as sender:
        await sender.send(numbered(1))
        local_pair.primary.set_fault(Fault(kind=FaultKind.LATE_DISPOSITION, entity="flights", delay=0.5))
        first = asyncio.create_task(sender.send(numbered(1, start=1)))
        second = asyncio.create_task(sender.send(numbered(1, start=2)))
        await asyncio.sleep(0.1)
        await local_pair.pair.fail_over("flights", reason="test")
        assert (await first).primary == 1
        assert (await second).diverted == 1
    assert await local_pair.primary_ids() == ["m0", "m1"]


async def test_section_5_messages_collected_for_the_backlog_go_to_the_recovered_primary(
    local_pair: LocalPair,
) -> None:
    async def stream() -> AsyncIterator[ServiceBusMessage]:
        for number, message in enumerate(big(9)):
            if number == 5:
                await local_pair.pair.mark_healthy("flights")
            yield message

    async with local_pair.pair.sender("flights") as sender:
        await local_pair.pair.fail_over("flights", reason="test")
        result = await sender.send(stream())
    assert (result.primary, result.diverted) == (9, 0)
    assert await local_pair.primary_ids() == [f"m{n}" for n in range(9)]
    assert await local_pair.backlog_ids() == []


async def test_section_4_an_outage_of_one_entity_does_not_affect_others(local_pair: LocalPair) -> None:
    local_pair.primary.namespace.create_queue(QueueDescription("calm"))
    local_pair.primary.set_fault(Fault(kind=FaultKind.INTERNAL_ERROR, entity="flights"))
    async with local_pair.pair.sender("flights") as flights, local_pair.pair.sender("calm") as calm:
        assert (await flights.send(numbered(3))).diverted == 3
        assert (await calm.send(numbered(3))).primary == 3
    assert not local_pair.pair.health("calm").failed_over


class FakeDelivery:
    """A delivery to a fake primary and a fake backlog, on a manual clock.

    :ivar outcomes: of the next attempts; afterwards they succeed.
    :ivar seconds: how long a failing attempt takes.
    :ivar waits: how long the next attempts wait for the link, which other sends use, until they are given up.
    :ivar lost: how the next attempt ends before it begins.
    :ivar queued: how long an attempt waits for the link until it begins.
    :param ordered: in session order, over a health store of this process alone.
    :param spools: there is a spool.
    """

    def __init__(
        self,
        *outcomes: Exception,
        timeout: float | None = None,
        attached: bool = True,
        ordered: bool = False,
        spools: bool = False,
        **options: Any,
    ) -> None:
        self.clock = ManualClock()
        self.outcomes, self.seconds = list(outcomes), 0.0
        self.waits: list[float] = []
        self.wait_seconds: list[float] = []
        self.queued = 0.0
        self.lost: ServiceError | None = None
        self.entered: list[tuple[float, bool]] = []
        self.timeouts: list[float | None] = []
        self.sent: list[list[str]] = []
        self.diverted: list[ServiceError | None] = []
        self.prepared = self.spooled = 0
        self._keep_apart = False
        self.attached, self.is_open = attached, True
        self.max_batch_bytes = 250_000
        given = PairOptions(**{"failover_interval": timedelta(seconds=3), **options})
        self.registry = HealthRegistry(given, store=None, observers=[], clock=self.clock)
        self.probes: list[ServiceError | None] = []
        self.accepted_at: dict[str, float] = {}
        context: Any = SimpleNamespace(
            options=given,
            registry=self.registry,
            order=self if ordered else None,
            clock=self.clock,
            prober=self,
            accepted_at=self.accepted_at,
            backlog_health=BacklogHealth(clock=self.clock, retry_seconds=60),
            spool=self if spools else None,
            unspooled_from=None,
        )
        fake: Any = self
        self.state = DeliveryState()
        sender = SenderContext("flights", context, link=fake, backlog=fake)
        self.delivery = Delivery(sender, operation=self._operation, state=self.state, timeout=timeout)

    def lease_holder(self, entity: str) -> None:
        assert entity == "flights"

    async def enter_send(self, entity: str, *, timeout: float, unspools: bool) -> None:
        assert (entity, unspools) == ("flights", False)
        self.entered.append((timeout, True))
        if self.waits:
            raise TimeoutError

    def leave_send(self, entity: str) -> None:
        assert entity == "flights"
        self.entered.append((0.0, False))

    def batch_key(self, message: object) -> Any:
        return id(message) if self._keep_apart else None

    def refuses_mixture(self, error: ServiceError, messages: Sequence[AmqpAnnotatedMessage]) -> bool:
        """Keep every message apart from then on."""
        if not isinstance(error, RefusedError) or len(messages) == 1:
            return False
        self._keep_apart = True
        return True

    async def probe(self, entity: str, *, timeout: float) -> ServiceError | None:
        assert (entity, timeout <= 10) == ("flights", True)
        return self.probes.pop(0)

    def prepare(self) -> None:
        self.prepared += 1

    def try_again(self) -> None: ...

    async def write(self, entity: str, messages: Sequence[AmqpMessage]) -> None:
        assert (entity, self.sent) == ("flights", [])
        self.spooled = len(messages)

    def check_sizes(self, batch: EncodedBatch) -> None: ...

    def new_batch(self) -> EncodedBatch:
        return EncodedBatch(self.max_batch_bytes)

    async def open_in_slot(self, slot: SendSlot) -> None:
        self.timeouts.append(slot.attempt_timeout())
        raise self.outcomes.pop(0)

    async def _operation(self, batch: EncodedBatch, slot: SendSlot, on_start: Callable[[], None]) -> bool:
        if self.lost is not None:
            lost, self.lost = self.lost, None
            raise lost
        self.wait_seconds.append(slot.wait_seconds)
        if self.waits:
            assert slot.still_wanted()
            self.clock.time += self.waits.pop(0)
            return False
        self.clock.time += self.queued
        self.timeouts.append(slot.attempt_timeout())
        if self.timeouts[-1] is None:
            assert not slot.still_wanted()
            return False
        self.sent.append(batch.ids)
        on_start()
        if self.outcomes:
            self.clock.time += self.seconds
            raise self.outcomes.pop(0)
        return len(batch) > 0

    async def send(
        self,
        messages: Sequence[TrackedMessage],
        executor: AttemptExecutor,
        *,
        because: ServiceError | None,
        deadline: Deadline,
    ) -> list[TrackedMessage]:
        deadline.remaining()
        self.diverted.append(because)
        executor.state.accept(messages, route=Route.BACKLOG, queue="q", ids=map(str, range(len(messages))))
        return []

    async def run(self, count: int = 2, *, body: int = 1) -> SendResult:
        sent = [ServiceBusMessage(b"x" * body, message_id=f"m{n}") for n in range(count)]
        result = await self.delivery.run(InputMessages(sent))
        await self.registry.close()
        return result


FAULT = ServiceFaultError("broken")


async def test_section_4_attempts_with_growing_pauses_last_until_the_failover() -> None:
    fake = FakeDelivery(*[FAULT] * 9)
    result = await fake.run()
    assert fake.timeouts == [3.0, 2.75, 2.25, 1.25, 1.0]
    assert fake.clock.sleeps == [0.25, 0.5, 1.0, 1.25]
    assert (result.primary, result.diverted, fake.diverted) == (0, 2, [FAULT])
    assert (fake.registry.current("flights").since, fake.prepared) == (START + 3, 4)


async def test_section_4_an_entity_is_suspect_from_the_start_of_the_failed_attempt() -> None:
    fake = FakeDelivery(FAULT, failover_interval=timedelta(seconds=30))
    fake.seconds = 7.0
    changes: list[Any] = []
    with fake.registry.observing(SimpleNamespace(observe=changes.append)):
        assert (await fake.run()).primary == 2
    suspect = next(each for each in changes if isinstance(each, HealthChanged))
    assert (suspect.after.since, suspect.after.reason, fake.timeouts) == (START, "broken", [10.0, 10.0])


@pytest.mark.parametrize(("error", "states"), [(FAULT, ["suspect", "healthy"]), (ServerBusyError("busy"), [])])
async def test_section_4_a_link_that_cannot_be_opened_counts_if_its_error_triggers_failover(
    error: ServiceError, states: list[str]
) -> None:
    fake, changes = FakeDelivery(error), list[Any]()
    fake.is_open = False
    with fake.registry.observing(SimpleNamespace(observe=changes.append)):
        assert (await fake.run()).primary == 2
    assert [each.after.state for each in changes if isinstance(each, HealthChanged)] == states


@pytest.mark.parametrize(("attached", "prepared", "pauses"), [(True, 2, [0.25]), (False, 2, [0.25, 0.5])])
async def test_section_4_one_loss_of_a_working_connection_is_not_counted(
    attached: bool, prepared: int, pauses: list[float]
) -> None:
    fake = FakeDelivery(UnreachableError("lost"), UnreachableError("lost"), attached=attached)
    assert (await fake.run()).primary == 2
    assert (fake.prepared, fake.clock.sleeps) == (prepared, pauses)


async def test_section_4_a_connection_that_is_lost_before_an_attempt_begins_is_counted() -> None:
    fake = FakeDelivery()
    fake.lost = UnreachableError("lost")
    assert (await fake.run()).primary == 2
    assert (fake.timeouts, fake.clock.sleeps) == ([2.75], [0.25])


async def test_section_4_a_busy_server_restarts_the_interval_and_is_waited_for() -> None:
    busy = ServerBusyError("busy")
    fake = FakeDelivery(busy, busy, FAULT, server_busy_delay=timedelta(seconds=4))
    assert (await fake.run()).primary == 2
    assert (fake.clock.sleeps, fake.timeouts) == ([4.0, 4.0, 0.25], [3.0, 3.0, 3.0, 2.75])


@pytest.mark.parametrize(
    ("outcome", "in_doubt", "state"),
    [
        (FAULT, 2, HealthState.SUSPECT),
        *(
            (error, 0, HealthState.HEALTHY)
            for error in (
                ServerBusyError("busy"),
                AuthenticationError("wrong key"),
                AuthorizationError("no"),
                EntityDisabledError("disabled"),
                EntityNotFoundError("gone"),
                MessageTooLargeError("too large"),
                QuotaExceededError("full"),
            )
        ),
    ],
)
async def test_section_4_a_send_ends_at_its_deadline_or_with_a_final_error(
    outcome: ServiceError, in_doubt: int, state: HealthState
) -> None:
    fake = FakeDelivery(*[outcome] * 9, timeout=1.0)
    with pytest.raises(SendError) as caught:
        await fake.run(5, body=BIG)
    # The first batch takes two of the messages.
    assert (caught.value.cause, len(caught.value.in_doubt), len(caught.value.unsent)) == (outcome, in_doubt, 5)
    assert isinstance(caught.value, SendTimeoutError) is isinstance(outcome, ServiceFaultError | ServerBusyError)
    assert fake.registry.current("flights").state is state
    assert (fake.diverted, fake.timeouts) == ([], [1.0, 0.75, 0.25] if outcome is FAULT else [1.0])


async def test_section_4_a_refused_mixture_is_sent_in_parts_and_diverted_once_failed_over() -> None:
    fake = FakeDelivery(RefusedError("mixed"))
    assert (await fake.run(3)).primary_ids == ("m0", "m1", "m2")
    assert len(fake.timeouts) == 4
    with pytest.raises(SendError, match="single"):
        await FakeDelivery(RefusedError("single")).run(1)
    failing = FakeDelivery(RefusedError("mixed"), *[FAULT] * 9, failover_interval=timedelta(0))
    assert (await failing.run(3)).diverted == 3


async def test_section_4_messages_are_packed_by_the_limits_of_the_link() -> None:
    for limit, sizes in ((250_000, [2, 2, 1]), (350_000, [3, 2])):
        fake = FakeDelivery()
        fake.max_batch_bytes = limit
        assert (await fake.run(5, body=100_000)).primary == 5
        assert [len(ids) for ids in fake.sent] == sizes
    fake = FakeDelivery()
    fake.registry.apply("flights", FailOver("test", "ann"))
    assert (await fake.run(5, body=100_000)).diverted == 5
    assert (fake.sent, fake.diverted, fake.timeouts) == ([], [None], [])


async def test_section_4_waiting_for_a_busy_link_is_part_of_the_clock_once_the_longest_wait_is_over() -> None:
    fake = FakeDelivery()
    fake.waits = [9.75, 9.75]
    assert (await fake.run()).primary == 2
    fake = FakeDelivery()
    fake.waits = [10.5]
    assert (await fake.run()).diverted == 2
    assert [str(error) for error in fake.diverted] == ["the link to the entity was busy with other sends"]
    # It is the failover interval, if an attempt may not last that long.
    fake = FakeDelivery(failover_interval=timedelta(seconds=20))
    fake.waits = [19.75, 20.0]
    assert (await fake.run()).diverted == 2
    assert fake.wait_seconds == [20.0, 20.0]


async def test_section_6_in_session_order_an_attempt_needs_a_lease() -> None:
    fake = FakeDelivery(ordered=True)
    leases = [0.0, 0.0, -1.0, -1.0, 0.5]
    fake.registry.lease_seconds_left = lambda entity: leases.pop(0)  # type: ignore[method-assign]  # noqa: ARG005
    assert (await fake.run()).primary == 2
    assert (fake.timeouts, leases) == ([None, None, 3.0], [])
    assert fake.entered == [(inf, True), (0.0, False)]


async def test_section_6_in_session_order_a_link_is_opened_without_a_lease() -> None:
    fake = FakeDelivery(FAULT, ordered=True)
    fake.is_open = False
    leases = [-1.0, 5.0]
    fake.registry.lease_seconds_left = lambda entity: leases[len(fake.sent)]  # type: ignore[method-assign]  # noqa: ARG005
    opening = fake.open_in_slot

    async def open_in_slot(slot: SendSlot) -> None:
        assert slot.still_wanted()
        leases.pop(0)
        await opening(slot)

    fake.open_in_slot = open_in_slot  # type: ignore[method-assign]
    assert (await fake.run()).primary == 2
    assert fake.timeouts == [3.0, 3.0]


async def test_section_6_in_session_order_a_send_waits_within_its_deadline_until_it_may_begin() -> None:
    fake = FakeDelivery(ordered=True, timeout=2.0)
    fake.waits = [0.0]
    with pytest.raises(SendTimeoutError, match=r"not finished within the 2.0 s given by the caller"):
        await fake.run()
    assert (fake.entered, fake.timeouts) == ([(2.0, True)], [])


async def test_section_4_an_attempt_that_waited_for_the_link_has_the_rest_of_the_time() -> None:
    fake = FakeDelivery(timeout=2.0)
    fake.queued = 0.5
    assert (await fake.run()).primary == 2
    assert (fake.timeouts, fake.wait_seconds) == ([1.5], [2.0])
    for queued in (2.0, 2.5):
        late = FakeDelivery(timeout=2.0)
        late.queued = queued
        with pytest.raises(SendTimeoutError, match=r"not finished within the 2.0 s given by the caller"):
            await late.run()
        assert late.timeouts == []
    spooling = FakeDelivery(timeout=2.0, spools=True)
    spooling.queued = 2.0
    assert (await spooling.run()).spooled == spooling.spooled == 2
    assert spooling.timeouts == []


async def test_section_4_a_link_that_is_refused_ends_the_send_at_once() -> None:
    fake = FakeDelivery(AuthorizationError("no right"), FAULT)
    fake.is_open = False
    with pytest.raises(SendError, match="no right") as caught:
        await fake.run()
    assert (isinstance(caught.value.cause, AuthorizationError), len(fake.outcomes)) == (True, 1)


@pytest.mark.parametrize(("waits", "diverted"), [(2.75, 0), (3.0, 2)])
async def test_section_6_in_session_order_an_entity_fails_over_when_its_interval_ends_while_a_lease_is_awaited(
    waits: float, diverted: int
) -> None:
    fake = FakeDelivery(FAULT, ordered=True)

    async def lease(entity: str, **_: Any) -> Any:
        if fake.timeouts and not fake.outcomes:
            fake.clock.time = max(fake.clock.time, START + waits)
        return fake.registry.current(entity)

    fake.registry.lease = lease  # type: ignore[method-assign]
    result = await fake.run()
    assert (result.diverted, result.primary) == (diverted, 2 - diverted)


@pytest.mark.parametrize("accepted", [None, START - 1, START, START + 1])
async def test_section_4_an_entity_is_probed_unless_it_accepted_something_since_a_rejection(
    accepted: float | None,
) -> None:
    fake = FakeDelivery(RejectedError("poison"))
    fake.seconds, fake.probes = 2.0, [None]
    if accepted is not None:
        fake.accepted_at["flights"] = accepted
    assert (await fake.run(1)).primary == 1
    assert fake.probes == ([None] if accepted == START + 1 else [])


async def test_section_4_an_entity_that_takes_no_probe_either_is_suspect_since_the_rejection() -> None:
    fake, changes = FakeDelivery(RejectedError("poison")), list[Any]()
    fake.seconds, fake.probes = 2.0, [FAULT]
    with fake.registry.observing(SimpleNamespace(observe=changes.append)):
        assert (await fake.run(1)).primary == 1
    suspect = next(each for each in changes if isinstance(each, HealthChanged))
    assert (suspect.after.since, suspect.after.reason) == (START, "broken")
