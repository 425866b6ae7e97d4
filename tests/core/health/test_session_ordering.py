"""Failback with session ordering searches the whole backlog and holds sends meanwhile (SPEC section 6)."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace

import proton
import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

from servicebus_emulator import Fault, FaultKind
from servicebus_pair.core.health import session_ordering as ordering
from servicebus_pair.core.health.session_ordering import SessionOrdering
from servicebus_pair.core.model.errors import ServiceFaultError
from tests.core.scenarios.test_session_order import OPTIONS, arrived, numbered
from tests.core.support.drain_progress import ProgressWaiter
from tests.core.support.local_pair import BACKLOG, LocalPair, messages, open_local_pair
from tests.core.support.queues import send_raw

pytestmark = pytest.mark.simulated

ONE_QUEUE = replace(OPTIONS, backlog_queue_count=1)


def order_of(both: LocalPair) -> SessionOrdering:
    order = both.pair._open().order
    assert order is not None
    return order


async def within(seconds: float, *tasks: asyncio.Task[object]) -> bool:
    """Return whether one of the tasks ends within ``seconds``."""
    return bool((await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED))[0])


class HeldFailback:
    """A failback that ends once :attr:`may_end` is set; sets :attr:`entered` when it holds the sends."""

    def __init__(self, order: SessionOrdering, entity: str, *, drain_timeout: float = 0.0) -> None:
        self.entered, self.may_end = asyncio.Event(), asyncio.Event()
        self.task = asyncio.create_task(self._run(order, entity, drain_timeout))

    async def _run(self, order: SessionOrdering, entity: str, drain_timeout: float) -> bool:
        async with order.fail_back(entity, drain_timeout=drain_timeout) as empty:
            self.entered.set()
            await self.may_end.wait()
        return empty


def search_started(order: SessionOrdering, monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Return an event that is set when the backlog search begins."""
    started = asyncio.Event()
    is_empty = order.is_empty

    async def is_empty_recorded(entity: str) -> bool | None:
        started.set()
        return await is_empty(entity)

    monkeypatch.setattr(order, "is_empty", is_empty_recorded)
    return started


def test_a_session_maps_to_the_same_queue_in_every_process_and_case_of_the_entity():
    order = SessionOrdering(None, [f"q{n}" for n in range(5)])  # type: ignore[arg-type]  # unused
    queues = [order.queue_for("flights", session) for session in ("", "a", "b", "N14228", "\u00fc")]
    assert queues == ["q2", "q0", "q0", "q3", "q1"]
    assert queues == [order.queue_for("FLIGHTS", session) for session in ("", "a", "b", "N14228", "\u00fc")]
    assert order.queue_for("delays", "a") != order.queue_for("flights", "a")


async def test_the_whole_backlog_is_searched_case_insensitively() -> None:
    async with open_local_pair("flights", options=OPTIONS) as both:
        order = order_of(both)
        last = both.pair._queues[-1]
        await both.put_into_backlog("delays", messages(*range(ordering._PAGE_SIZE + 10), name="d"), queue=last)
        assert await order.is_empty("flights") is True
        await both.put_into_backlog("FLIGHTS", messages(1), queue=last)
        assert await order.is_empty("Flights") is False


@pytest.mark.parametrize(("undecodable", "empty"), [(True, False), (False, True)])
async def test_a_message_that_cannot_be_decoded_counts_for_every_entity(undecodable: bool, empty: bool) -> None:
    closed: list[str] = []

    class Secondary:
        def receive_link(self, queue: str) -> Secondary:
            self.queue = queue
            return self

        async def peek(self, *, max_messages: int, timeout: float, from_sequence_number: int) -> list[object]:
            assert (max_messages in (1, 250), timeout) == (True, 10)
            if undecodable and from_sequence_number == 1:
                raise ServiceFaultError("Handler failed")
            return []

        async def close(self) -> None:
            closed.append(self.queue)

    order = SessionOrdering(Secondary(), ["q"])  # type: ignore[arg-type]
    assert (await order.is_empty("flights"), closed) == (empty, ["q"])


@pytest.mark.real_time
async def test_a_message_without_a_readable_destination_counts_for_every_entity() -> None:
    async with open_local_pair("flights", options=ONE_QUEUE, unchecked=True) as both:
        await asyncio.to_thread(send_raw, both.secondary, BACKLOG, proton.Message(body="whose?"))
        assert await order_of(both).is_empty("flights") is False


async def test_an_unreadable_backlog_is_not_empty() -> None:
    async with open_local_pair("flights", options=OPTIONS) as both:
        order = order_of(both)
        both.secondary.set_fault(Fault(kind=FaultKind.REFUSE))
        assert await order.is_empty("flights") is None
        for drain_timeout in (0.0, 0.3):
            async with order.fail_back("flights", drain_timeout=drain_timeout) as empty:
                assert not empty


async def test_failback_waits_for_sends_in_flight_and_holds_new_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with open_local_pair("flights", options=OPTIONS) as both:
        order = order_of(both)
        searching = search_started(order, monkeypatch)
        await order.enter_send("Flights", timeout=1)
        failback = HeldFailback(order, "flights", drain_timeout=20)
        # The send in flight may still divert messages, so the search must wait for it.
        assert not await within(0.3, asyncio.create_task(searching.wait()))
        order.leave_send("flights")
        await asyncio.wait_for(failback.entered.wait(), 5)
        sending = asyncio.create_task(order.enter_send("FLIGHTS", timeout=20))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(order.enter_send("flights", timeout=0.2), 5)
        assert not sending.done()
        await asyncio.wait_for(order.enter_send("delays", timeout=1), 1)
        failback.may_end.set()
        assert await failback.task
        await asyncio.wait_for(sending, 5)


async def test_failbacks_of_one_entity_are_serialized(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_local_pair("flights", options=OPTIONS) as both:
        order = order_of(both)
        one = HeldFailback(order, "flights")
        await asyncio.wait_for(one.entered.wait(), 5)
        searching = search_started(order, monkeypatch)
        two = HeldFailback(order, "FLIGHTS")
        assert not await within(0.3, asyncio.create_task(searching.wait()))
        one.may_end.set()
        two.may_end.set()
        assert [await one.task, await two.task] == [True, True]


async def test_a_syphon_does_not_overtake_messages_locked_by_another() -> None:
    async with open_local_pair("flights", options=ONE_QUEUE, lock="PT30S") as both, AsyncExitStack() as elsewhere:
        await both.put_into_backlog("flights", numbered("a", 1, 2, 3))
        client = await elsewhere.enter_async_context(
            ServiceBusClient.from_connection_string(both.secondary.connection_string)
        )
        other = await elsewhere.enter_async_context(client.get_queue_receiver(BACKLOG))
        held: dict[str | None, object] = {}
        while len(held) < 3:
            held |= {each.message_id: each for each in await other.receive_messages(3, max_wait_time=5)}
        await other.abandon_message(held["a/1"])  # type: ignore[arg-type]
        await other.abandon_message(held["a/3"])  # type: ignore[arg-type]
        syphon, watch = both.pair.syphon(), ProgressWaiter()
        running = asyncio.create_task(syphon.run(progress=watch))
        async with asyncio.timeout(10):
            await watch.until(lambda report: report.moved_total)
        assert not await within(1, running)
        assert await arrived(both) == {"a": [1]}
        await other.abandon_message(held["a/2"])  # type: ignore[arg-type]
        async with asyncio.timeout(10):
            await watch.until(lambda report: report.moved_total == 3)
        syphon.stop()
        await running
        assert await arrived(both) == {"a": [1, 2, 3]}


def order_without_a_service(monkeypatch: pytest.MonkeyPatch, answers: tuple[bool | None, ...]) -> SessionOrdering:
    """Return an order of three queues whose searches have these results; the last one is repeated."""
    order = SessionOrdering(None, ["q0", "q1", "q2"])  # type: ignore[arg-type]  # unused
    remaining = list(answers)

    async def is_empty(_: str) -> bool | None:
        return remaining.pop(0) if len(remaining) > 1 else remaining[0]

    monkeypatch.setattr(order, "is_empty", is_empty)
    return order


@pytest.mark.parametrize(
    ("answers", "in_flight", "drain_timeout", "expected"),
    [
        ((True,), False, 0.0, (True, 0.0)),
        ((True, False), False, 0.0, (False, 0.0)),
        ((None,), False, 0.0, (False, 0.0)),
        ((False, None, True), False, 5.0, (True, 0.2)),
        ((False,), False, 5.0, (False, 5.0)),
        ((True,), True, 0.0, (False, 10.0)),
        ((True,), True, 3.0, (False, 3.0)),
    ],
)
async def test_an_entity_fails_back_once_nothing_is_in_flight_or_in_the_backlog(
    answers: tuple[bool | None, ...],
    in_flight: bool,
    drain_timeout: float,
    expected: tuple[bool, float],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    order = order_without_a_service(monkeypatch, answers)
    if in_flight:
        await order.enter_send("Flights", timeout=1)
    started = asyncio.get_running_loop().time()
    async with order.fail_back("flights", drain_timeout=drain_timeout) as empty:
        assert empty is expected[0]
    assert asyncio.get_running_loop().time() - started == pytest.approx(expected[1], abs=0.05)
    assert order._failed_back == {}


@pytest.mark.parametrize(("timeout", "seconds"), [(3, 3), (60, 20)])
async def test_a_send_waits_for_a_failback_within_its_timeout_and_at_most_20_seconds(
    timeout: float, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = order_without_a_service(monkeypatch, (True,))
    started = asyncio.get_running_loop().time()
    async with order.fail_back("flights"):
        with pytest.raises(TimeoutError):
            await order.enter_send("FLIGHTS", timeout=timeout)
    assert asyncio.get_running_loop().time() - started == pytest.approx(seconds, abs=0.05)
    for _ in range(2):
        await order.enter_send("flights", timeout=1)
    order.leave_send("Flights")
    assert order._sends_in_flight == {"flights": 1}
    order.leave_send("flights")
    assert order._sends_in_flight == {}


def test_messages_are_grouped_in_order_by_the_queue_of_their_session() -> None:
    order = SessionOrdering(None, ["q0", "q1", "q2"])  # type: ignore[arg-type]  # unused
    sessions = {1: "a", 2: None, 3: "b", 4: "a", 5: ""}
    sent = {key: ServiceBusMessage("x", session_id=each).raw_amqp_message for key, each in sessions.items()}
    copies = {key: ServiceBusMessage("copy").raw_amqp_message for key in sessions}
    groups = order.group_by_queue("flights", copies, sent)
    for queue, group in groups.items():
        expected = [key for key, session in sessions.items() if order.queue_for("FLIGHTS", session or "") == queue]
        assert (list(group), [group[key] is copies[key] for key in group]) == (expected, [True] * len(expected))
    assert sum(map(len, groups.values())) == 5
