"""What one send does next, attempt by attempt, to a fake primary (SPEC section 4)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from math import inf
from types import SimpleNamespace
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage

from servicebus_pair.core import HealthState, PairOptions, SendResult
from servicebus_pair.core.health.registry import HealthRegistry
from servicebus_pair.core.model.errors import (
    AuthenticationError,
    AuthorizationError,
    EntityDisabledError,
    EntityNotFoundError,
    MessageTooLargeError,
    QuotaExceededError,
    RefusedError,
    RejectedError,
    SendError,
    SendTimeoutError,
    ServerBusyError,
    ServiceError,
    ServiceFaultError,
    UnreachableError,
)
from servicebus_pair.core.model.events import HealthChanged, Route
from servicebus_pair.core.model.health_transitions import FailOver
from servicebus_pair.core.protocol.amqp_message import AmqpMessage
from servicebus_pair.core.sdk.message_batch import EncodedBatch
from servicebus_pair.core.sdk.messages import InputMessages
from servicebus_pair.core.sdk.send_link import SendSlot
from servicebus_pair.core.send.delivery import Delivery
from servicebus_pair.core.send.delivery_state import AttemptExecutor, DeliveryState, TrackedMessage
from servicebus_pair.core.send.queue_selector import BacklogHealth
from servicebus_pair.core.send.sender_context import SenderContext
from servicebus_pair.core.send.timeouts import Deadline
from tests.core.support.manual_clock import START, ManualClock

pytestmark = pytest.mark.simulated


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
        self.max_message_bytes = 0
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
        await fake.run(5, body=100_000)
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
