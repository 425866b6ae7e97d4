"""In session order: who looks through the backlog sees all of it, and nobody sends meanwhile (SPEC section 6)."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace

import proton
import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

from servicebus_emulator import Fault, FaultKind
from servicebus_pair.core import ordering
from servicebus_pair.core.ordering import SessionOrder
from tests.core.hosted import BACKLOG, Hosted, hosted, messages
from tests.core.syphoning import Watch, put_raw
from tests.core.test_session_order import OPTIONS, arrived, numbered

pytestmark = pytest.mark.simulated

ONE_QUEUE = replace(OPTIONS, backlog_queue_count=1)


def order_of(both: Hosted) -> SessionOrder:
    order = both.pair._open().order
    assert order is not None
    return order


async def within(seconds: float, *tasks: asyncio.Task[object]) -> bool:
    """Whether one of them ends in so many seconds."""
    return bool((await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED))[0])


class Failback:
    """One that is held until :attr:`may_end`, and says when its body was entered."""

    def __init__(self, order: SessionOrder, entity: str, *, drained_within: float = 0.0) -> None:
        self.entered = asyncio.Event()
        self.may_end = asyncio.Event()
        self._over = (order, entity, drained_within)
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> bool:
        order, entity, drained_within = self._over
        async with order.fail_back(entity, drained_within=drained_within) as empty:
            self.entered.set()
            await self.may_end.wait()
        return empty


def looked_through(order: SessionOrder, monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Set as soon as somebody begins to look through the backlog."""
    begun = asyncio.Event()
    is_empty = order.is_empty

    async def noted(entity: str) -> bool | None:
        begun.set()
        return await is_empty(entity)

    monkeypatch.setattr(order, "is_empty", noted)
    return begun


def test_every_process_diverts_a_session_to_the_same_queue_however_the_entity_is_written():
    order = SessionOrder(None, [f"q{n}" for n in range(5)])  # type: ignore[arg-type]  # nothing is asked of it
    places = [order.queue_for("flights", session) for session in ("", "a", "b", "N14228", "\u00fc")]
    assert places == ["q2", "q0", "q0", "q3", "q1"]
    assert places == [order.queue_for("FLIGHTS", session) for session in ("", "a", "b", "N14228", "\u00fc")]
    assert order.queue_for("delays", "a") != order.queue_for("flights", "a")


async def test_a_message_behind_many_of_others_in_another_case_keeps_its_entity_failed_over() -> None:
    async with hosted("flights", options=OPTIONS) as both:
        order = order_of(both)
        last = both.pair._queues[-1]
        await both.put_into_backlog("delays", messages(*range(ordering._PAGE + 10), name="d"), queue=last)
        assert await order.is_empty("flights") is True
        await both.put_into_backlog("FLIGHTS", messages(1), queue=last)
        assert await order.is_empty("Flights") is False


@pytest.mark.real_time
async def test_what_names_no_entity_that_can_be_read_may_be_anybodys() -> None:
    async with hosted("flights", options=ONE_QUEUE, unchecked=True) as both:
        await asyncio.to_thread(put_raw, both.secondary, BACKLOG, proton.Message(body="whose?"))
        assert await order_of(both).is_empty("flights") is False


async def test_a_backlog_that_cannot_be_looked_through_is_not_called_empty() -> None:
    async with hosted("flights", options=OPTIONS) as both:
        order = order_of(both)
        both.secondary.set_fault(Fault(kind=FaultKind.REFUSE))
        assert await order.is_empty("flights") is None
        for patience in (0.0, 0.3):
            async with order.fail_back("flights", drained_within=patience) as empty:
                assert not empty


async def test_an_entity_does_not_fail_back_while_a_send_is_under_way_and_none_begins_while_it_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with hosted("flights", options=OPTIONS) as both:
        order = order_of(both)
        looking = looked_through(order, monkeypatch)
        await order.enter("Flights", patience=1)
        failback = Failback(order, "flights", drained_within=20)
        # What the send diverts would come after the look.
        assert not await within(0.3, asyncio.create_task(looking.wait()))
        order.leave("flights")
        await asyncio.wait_for(failback.entered.wait(), 5)
        sending = asyncio.create_task(order.enter("FLIGHTS", patience=20))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(order.enter("flights", patience=0.2), 5)
        assert not sending.done()
        # Another entity is none of its business.
        await asyncio.wait_for(order.enter("delays", patience=1), 1)
        failback.may_end.set()
        assert await failback.task
        await asyncio.wait_for(sending, 5)


async def test_two_failbacks_of_an_entity_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    async with hosted("flights", options=OPTIONS) as both:
        order = order_of(both)
        one = Failback(order, "flights")
        await asyncio.wait_for(one.entered.wait(), 5)
        looking = looked_through(order, monkeypatch)
        two = Failback(order, "FLIGHTS")
        assert not await within(0.3, asyncio.create_task(looking.wait()))
        one.may_end.set()
        two.may_end.set()
        assert [await one.task, await two.task] == [True, True]


async def test_sends_are_held_no_longer_than_a_send_that_never_ends_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Long enough to look through the backlog, which is empty: it is the send that stands in the way.
    monkeypatch.setattr(ordering, "_HELD_SECONDS", 2.0)
    async with hosted("flights", options=OPTIONS) as both:
        order = order_of(both)
        await order.enter("flights", patience=1)
        failback = Failback(order, "flights")
        failback.may_end.set()
        assert not await asyncio.wait_for(failback.task, 5)
        await asyncio.wait_for(order.enter("flights", patience=1), 1)


async def test_a_syphon_sends_nothing_past_what_another_holds() -> None:
    async with hosted("flights", options=ONE_QUEUE, lock="PT30S") as both, AsyncExitStack() as elsewhere:
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
        syphon, watch = both.pair.syphon(), Watch()
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


async def test_copies_go_where_their_messages_sessions_belong_one_queue_for_each() -> None:
    async with hosted("flights", options=OPTIONS) as both, both.pair.sender("flights") as sender:
        both.pair.fail_over("flights", reason="test")
        sessions = [*"abcdefgh", None]
        await sender.send([ServiceBusMessage("x", message_id=f"{each}", session_id=each) for each in sessions])
        order = order_of(both)
        for queue in both.pair._queues:
            expected = {f"{each}" for each in sessions if order.queue_for("flights", each or "") == queue}
            assert set(await both.ids_in_backlog(queue)) == expected
