"""The last step of the messages of a batch (SPEC section 4); those that need a service are in ``scenarios``."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import inf
from types import SimpleNamespace
from typing import Any

import pytest

from servicebus_pair.core import PairOptions
from servicebus_pair.core.model.errors import (
    HealthStoreError,
    NoBacklogQueueError,
    PairError,
    RejectedError,
    ServiceFaultError,
    SpoolError,
    TimedOutError,
    UnreachableError,
)
from servicebus_pair.core.model.health_state import EntityHealth, HealthState
from servicebus_pair.core.model.health_transitions import BeginSpool, SendFailed
from servicebus_pair.core.model.results import SendResult
from servicebus_pair.core.protocol.amqp_message import new_message
from servicebus_pair.core.send.delivery_state import AttemptExecutor, DeliveryState
from servicebus_pair.core.send.last_step import NO_HISTORY, LastStep, Part
from servicebus_pair.core.send.next_step import AttemptHistory, SendPolicy, Split, Spool
from servicebus_pair.core.send.timeouts import Deadline
from servicebus_pair.core.spool.spool_file import FileFullError
from tests.core.support.manual_clock import START, ManualClock


@pytest.mark.parametrize(("count", "sizes"), [(2, [1, 1]), (3, [2, 1]), (4, [2, 2]), (7, [4, 3]), (100, [50, 50])])
async def test_section_4_a_rejected_batch_is_halved_in_order(count: int, sizes: list[int]) -> None:
    pair: Any = SimpleNamespace(registry=None)
    sender: Any = SimpleNamespace(entity="flights", pair=pair, policy=None, backlog=None)
    messages: list[Any] = [object() for _ in range(count)]
    history = NO_HISTORY.failed(RejectedError("poison"), began=5.0, was_attached=True, is_final=False)
    nothing: Any = None
    halves = await LastStep(sender, nothing, deadline=nothing).execute(Part(messages, None, history), Split())
    assert [len(each.messages) for each in halves] == sizes
    assert [message for each in halves for message in each.messages] == messages
    assert {(each.history.failing_since, each.history.rejections, each.batch) for each in halves} == {(5.0, 0, None)}


class Ending:
    """The last step of a part of one message, in session order, over fakes on a manual clock.

    :ivar healths: those that the next leases bring; the last one again and again.
    :ivar applied: what was written to the health of the entity.
    """

    def __init__(self, *healths: EntityHealth, spool: str | None = "s", ordered: bool = True) -> None:
        self.healths = list(healths)
        self.applied: list[object] = []
        self.lease_seconds = 5.0
        self.tried_again = 0
        self.failure: PairError | None = None
        self.written: list[Any] = []
        clock = ManualClock()
        pair: Any = SimpleNamespace(
            registry=self,
            clock=clock,
            unspooled_from=None,
            spool=None if spool is None else self,
            options=PairOptions(),
        )
        self.name = partial(_returned, spool)
        policy = SendPolicy(interval=60.0, busy_delay=10.0, ordered=ordered)
        link = SimpleNamespace(max_batch_bytes=0, max_message_bytes=0)
        sender: Any = SimpleNamespace(entity="flights", pair=pair, policy=policy, backlog=self, link=link)
        self.observers = ()
        self.state = DeliveryState()
        registry: Any = self
        executor = AttemptExecutor("flights", self.state, registry=registry, clock=clock)
        self.step = LastStep(sender, executor, deadline=Deadline(clock, timeout=None))

    async def lease(self, entity: str, *, timeout: float, unspools: bool) -> EntityHealth:
        assert (entity, timeout, unspools) == ("flights", inf, False)
        return self.healths.pop(0) if len(self.healths) > 1 else self.healths[0]

    def apply(self, entity: str, event: object) -> None:
        assert entity == "flights"
        self.applied.append(event)

    def lease_seconds_left(self, entity: str) -> float:
        assert entity == "flights"
        return self.lease_seconds

    def try_again(self) -> None:
        self.tried_again += 1

    async def write(self, entity: str, messages: list[Any]) -> None:
        assert entity == "flights"
        if self.failure is not None:
            raise self.failure
        self.written += messages

    def part(self, history: AttemptHistory, *, body: bytes = b"x") -> Part:
        return Part([self.state.take(new_message(body, message_id="m"))], None, history)


async def _returned(value: str | None) -> str | None:
    return value


FAULT = ServiceFaultError("broken")
NO_BACKLOG = NoBacklogQueueError("tried all", cause=FAULT, result=SendResult(), unsent=())
FAILED = AttemptHistory(epoch=5, last_error=UnreachableError("lost"))
UNTAKEN = replace(FAILED, backlog_error=NO_BACKLOG)
ROUTED = EntityHealth(HealthState.FAILED_OVER, epoch=5)
BEGIN = BeginSpool("s", "no backlog queue takes messages: broken")


@pytest.mark.parametrize(
    ("history", "healths", "applied"),
    [
        pytest.param(UNTAKEN, [ROUTED, replace(ROUTED, spool="s")], 1, id="written at once"),
        pytest.param(UNTAKEN, [ROUTED] * 3 + [replace(ROUTED, spool="s")], 3, id="written over twice"),
        pytest.param(UNTAKEN, [replace(ROUTED, spool="s")], 0, id="by another process"),
        pytest.param(FAILED, [replace(ROUTED, spool="s")], 0, id="messages wait there"),
    ],
)
async def test_section_10_in_session_order_all_processes_agree_on_a_spool_before_it_is_written(
    history: AttemptHistory, healths: list[EntityHealth], applied: int
) -> None:
    ending = Ending(*healths)
    part = ending.part(history)
    assert await ending.step.execute(part, Spool()) == []
    assert (ending.applied, ending.written) == ([BEGIN] * applied, [each.message for each in part.messages])
    assert (ending.state.result().spooled_ids, ending.tried_again) == (("m",), 0)


@pytest.mark.parametrize("epoch", [4, 6])
async def test_section_10_nothing_is_spooled_once_the_route_changed(epoch: int) -> None:
    ending = Ending(ROUTED, replace(ROUTED, epoch=epoch))
    part = ending.part(UNTAKEN)
    [left] = await ending.step.execute(part, Spool())
    assert (left.messages, left.batch, left.history.backlog_error) == (part.messages, None, None)
    assert (left.history.last_error, ending.applied, ending.written) == (FAILED.last_error, [BEGIN], [])


@pytest.mark.parametrize(
    ("history", "health", "name", "why"),
    [
        (UNTAKEN, ROUTED, "s", "the other processes could not be told, because its health was not changed"),
        (FAILED, replace(ROUTED, spool="other"), "s", "the spool other, and this process has the spool s; empty that"),
        (FAILED, replace(ROUTED, spool="other"), None, "the spool other, and this process has no spool; empty that"),
    ],
)
async def test_section_10_in_session_order_another_spool_takes_nothing(
    history: AttemptHistory, health: EntityHealth, name: str | None, why: str
) -> None:
    ending = Ending(health, spool=name)
    part = ending.part(history)
    reason = history.backlog_error or history.last_error
    with pytest.raises(NoBacklogQueueError, match=rf"for flights \({reason}\), nor does the spool: .*{why}") as caught:
        await ending.step.execute(part, Spool())
    assert (caught.value.cause, ending.applied) == (reason, [BEGIN] * (3 if health is ROUTED else 0))
    assert len(ending.state.unsent) == 1


@pytest.mark.parametrize(("failure", "lease", "in_doubt"), [(TimedOutError("late"), 5.0, 1), (None, 0.0, 1)])
async def test_section_10_what_is_written_at_the_end_of_a_lease_is_in_doubt_and_goes_on(
    failure: PairError | None, lease: float, in_doubt: int
) -> None:
    ending = Ending(replace(ROUTED, spool="s"))
    ending.failure, ending.lease_seconds = failure, lease
    part = ending.part(UNTAKEN)
    [left] = await ending.step.execute(part, Spool())
    assert (left.messages, left.history.backlog_error) == (part.messages, None)
    assert (len(ending.state.in_doubt), len(ending.state.unsent)) == (in_doubt, 1)
    ending.failure, ending.lease_seconds = None, 0.5
    assert await ending.step.execute(left, Spool()) == []
    assert ending.state.result().duplicates_possible_ids == ("m",) * in_doubt


async def test_section_10_a_spool_that_takes_nothing_ends_the_send_and_the_backlog_is_tried_again() -> None:
    ending = Ending(ROUTED, ordered=False)
    ending.failure = SpoolError("disk full")
    with pytest.raises(NoBacklogQueueError, match=r"messages for flights, nor does the spool: disk full") as caught:
        await ending.step.execute(ending.part(NO_HISTORY), Spool())
    assert (caught.value.cause, ending.tried_again) == (ending.failure, 1)


async def test_section_10_what_does_not_fit_into_one_file_is_spooled_in_parts() -> None:
    ending = Ending(ROUTED, ordered=False)
    ending.failure = FileFullError("too many values")
    first, second = ending.part(NO_HISTORY), ending.part(NO_HISTORY)
    halves = await ending.step.execute(Part([*first.messages, *second.messages], None, NO_HISTORY), Spool())
    assert [part.messages for part in halves] == [first.messages, second.messages]
    with pytest.raises(NoBacklogQueueError, match="nor does the spool: too many values"):
        await ending.step.execute(halves[0], Spool())


async def test_section_10_in_session_order_the_spool_takes_only_what_the_backlog_can_take() -> None:
    ending = Ending(replace(ROUTED, spool="s"))
    large = ending.part(UNTAKEN)
    large.messages[0].message.application_properties = {f"p{number}": "x" for number in range(70_000)}
    assert await ending.step.execute(large, Spool()) == []
    assert [str(each.verdict)[:25] for each in ending.state.refused] == ["as a copy for the backlog"]
    assert ending.written == []


SUSPECT = EntityHealth(HealthState.SUSPECT, since=START - 60, epoch=5)


@pytest.mark.parametrize(
    ("health", "overdue"),
    [
        (ROUTED, False),
        (SUSPECT, True),
        (replace(SUSPECT, since=START - 59.5), False),
        (replace(SUSPECT, epoch=6), False),
    ],
)
async def test_section_6_an_overdue_failover_is_written_again_and_ends_the_send_if_that_fails(
    health: EntityHealth, overdue: bool
) -> None:
    ending = Ending(health)
    history = replace(FAILED, error=FAULT, counts=True)
    part = ending.part(history)
    if overdue:
        with pytest.raises(HealthStoreError, match=r"flights cannot fail over although it fails \(broken\)"):
            await ending.step.fail_over(part, SUSPECT)
    else:
        assert await ending.step.fail_over(part, SUSPECT) == health
    assert ending.applied == [SendFailed("broken", START - 60)]
    assert part.history == history.in_epoch(health.epoch)
