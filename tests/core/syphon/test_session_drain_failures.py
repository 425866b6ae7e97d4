"""A drain of sessions in which entities, links or other syphons fail (SPEC section 6)."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta

import pytest
from azure.servicebus import ServiceBusMessage

from servicebus_emulator import Fault, FaultKind, Operation
from servicebus_emulator.engine.model.descriptions import QueueDescription
from servicebus_pair.core import NamespacePair, PairOptions
from servicebus_pair.core.model.errors import AuthorizationError
from servicebus_pair.core.protocol.backlog_queues import backlog_queue_paths
from servicebus_pair.core.syphon import session_drain
from tests.core.support.drain_progress import ProgressWaiter
from tests.core.support.local_pair import BACKLOG, endpoint, open_local_pair
from tests.core.support.queues import peek_all
from tests.core.support.sessions import OPTIONS, QUEUES, arrivals, in_order, session_messages
from tests.simulated_time import Process, SimulatedLoop

pytestmark = pytest.mark.simulated


async def test_section_6_a_disabled_entity_at_the_head_holds_up_no_other_and_keeps_its_order() -> None:
    options = PairOptions(backlog_queue_count=1, ordering="session")
    async with open_local_pair("closed", "flights", "delays", options=options) as local_pair:
        await local_pair.put_into_sessions("closed", session_messages(200, "a", "b"))
        await local_pair.put_into_sessions("flights", session_messages(50, "a"))
        await local_pair.put_into_sessions("delays", session_messages(50, "a"))
        fault = local_pair.primary.set_fault(Fault(kind=FaultKind.ENTITY_DISABLED, entity="closed"))
        syphon, watch = local_pair.pair.syphon(), ProgressWaiter()
        running = asyncio.create_task(syphon.run(progress=watch))
        async with asyncio.timeout(20):
            await watch.until(lambda report: report.moved == {"flights": 50, "delays": 50})
        # New messages for others are moved meanwhile, and the lock of the held session is kept.
        await asyncio.sleep(100)
        await local_pair.put_into_sessions("flights", session_messages(10, "a", start=50))
        async with asyncio.timeout(10):
            await watch.until(lambda report: report.moved["flights"] == 60)
        local_pair.primary.clear_faults(fault.id)
        async with asyncio.timeout(130):
            await watch.until(lambda report: report.moved.get("closed") == 400)
        syphon.stop()
        await running
        assert await arrivals(local_pair, "closed") == in_order(200, "a", "b")
        assert len(await peek_all(local_pair.primary.connection_string, "closed")) == 400


async def test_section_6_a_drain_ends_with_what_an_abandoned_entity_leaves() -> None:
    async with open_local_pair("closed", "flights", options=OPTIONS) as local_pair:
        await local_pair.put_into_sessions("closed", session_messages(20, "a", "b"))
        await local_pair.put_into_sessions("flights", session_messages(20, "a"))
        local_pair.primary.set_fault(Fault(kind=FaultKind.ENTITY_DISABLED, entity="closed"))
        async with asyncio.timeout(60):
            report = await local_pair.pair.syphon().drain()
        assert (report.moved, report.left) == ({"flights": 20}, 40)
        assert "closed" in report.failures
        local_pair.primary.clear_faults()
        assert (await local_pair.pair.syphon().drain()).moved == {"closed": 40}
        assert await arrivals(local_pair, "closed") == in_order(20, "a", "b")


async def test_section_4_messages_that_the_primary_rejects_are_dead_lettered_and_their_session_goes_on() -> None:
    async with open_local_pair("flights", options=OPTIONS) as local_pair:
        sent = session_messages(20, "a")
        for position in (0, 9, 18):
            never = ServiceBusMessage("x", message_id=f"n{position}", session_id="a", time_to_live=timedelta(0))
            sent.insert(position, never)
        await local_pair.put_into_sessions("flights", sent)
        report = await local_pair.pair.syphon().drain()
        assert (report.moved, report.dead_lettered, report.left) == ({"flights": 20}, {"Rejected": 3}, 0)
        assert await arrivals(local_pair) == in_order(20, "a")


async def test_section_6_messages_for_a_missing_entity_are_dead_lettered_and_can_be_redriven() -> None:
    async with open_local_pair(options=OPTIONS) as local_pair:
        await local_pair.put_into_sessions("later", session_messages(20, "a", "b"))
        report = await local_pair.pair.syphon().drain()
        assert (report.dead_lettered, report.left) == ({"EntityNotFound": 40}, 0)
        local_pair.primary.namespace.create_queue(QueueDescription("later"))
        report = await local_pair.pair.syphon(redrive=True).drain()
        assert (report.moved, report.left) == ({"later": 40}, 0)
        assert await arrivals(local_pair, "later") == in_order(20, "a", "b")


@pytest.mark.parametrize("operation", [Operation.RECEIVE, Operation.SETTLE, Operation.MANAGE])
async def test_section_6_a_session_whose_link_is_lost_goes_on_in_order(operation: Operation) -> None:
    async with open_local_pair("flights", options=OPTIONS) as local_pair:
        await local_pair.put_into_sessions("flights", session_messages(150, "a", "b"))
        local_pair.secondary.set_fault(Fault(kind=FaultKind.RESET, on=(operation,), count=4, probability=0.5))
        report = await local_pair.pair.syphon().drain()
        assert (set(report.moved), report.left) == ({"flights"}, 0)
        assert await arrivals(local_pair) == in_order(150, "a", "b")
        copies = Counter(
            message.message_id for message in await peek_all(local_pair.primary.connection_string, "flights")
        )
        assert copies.total() - 300 <= report.duplicates_possible


async def test_section_6_a_completion_that_fails_sends_nothing_twice() -> None:
    async with open_local_pair("flights", options=OPTIONS) as local_pair:
        await local_pair.put_into_sessions("flights", session_messages(100, "a"))
        fault = local_pair.secondary.set_fault(Fault(kind=FaultKind.LOCK_LOST, on=(Operation.SETTLE,)))
        draining = asyncio.create_task(local_pair.pair.syphon().drain())
        await asyncio.sleep(10)
        local_pair.secondary.clear_faults(fault.id)
        report = await draining
        assert report.left == 0
        assert await arrivals(local_pair) == in_order(100, "a")
        assert len(await peek_all(local_pair.primary.connection_string, "flights")) == 100


async def test_section_2_a_slow_primary_keeps_the_session_and_its_order() -> None:
    async with open_local_pair("flights", options=OPTIONS) as local_pair:
        await local_pair.put_into_sessions("flights", session_messages(100, "a", "b"))
        late = Fault(kind=FaultKind.LATE_DISPOSITION, delay=25.0, on=(Operation.SEND,))
        local_pair.primary.set_fault(late)
        report = await local_pair.pair.syphon().drain()
        assert (report.moved, report.left) == ({"flights": 200}, 0)
        assert await arrivals(local_pair) == in_order(100, "a", "b")
        copies = Counter(
            message.message_id for message in await peek_all(local_pair.primary.connection_string, "flights")
        )
        assert max(copies.values()) <= 3


async def test_section_6_a_silent_primary_changes_no_order() -> None:
    """The batch shrinks with each time-out, so that less is sent than was received."""
    async with open_local_pair("flights", options=OPTIONS) as local_pair:
        await local_pair.put_into_sessions("flights", session_messages(60, "a", "b"))
        syphon, watch = local_pair.pair.syphon(rate=30), ProgressWaiter()
        running = asyncio.create_task(syphon.run(progress=watch))
        await watch.until(lambda report: report.moved_total >= 40)
        syphon.rate = None
        fault = local_pair.primary.set_fault(Fault(kind=FaultKind.FREEZE))
        await asyncio.sleep(70)
        local_pair.primary.clear_faults(fault.id)
        await watch.until(lambda report: report.moved_total >= 120)
        syphon.stop()
        await running
        assert await arrivals(local_pair) == in_order(60, "a", "b")


@pytest.mark.parametrize("old_form", [False, True])
@pytest.mark.parametrize(
    "seconds",
    [0.05, 0.25, 0.45, *(pytest.param(seconds, marks=pytest.mark.slow) for seconds in (0.15, 0.35, 0.55))],
)
async def test_section_6_after_the_kill_of_a_syphon_another_one_moves_everything_in_order(
    seconds: float, old_form: bool
) -> None:
    async with open_local_pair("flights", "delays", options=OPTIONS) as local_pair:
        for namespace in (local_pair.primary, local_pair.secondary):
            namespace.set_fault(Fault(kind=FaultKind.LATENCY, delay=0.01))
        for entity in ("flights", "delays"):
            for start in range(0, 360, 60):
                sent = session_messages(60, *"abcd", start=start)
                if old_form:
                    for session, queue in zip("abcd", backlog_queue_paths("contoso", 2) * 2, strict=True):
                        own = [message for message in sent if message.session_id == session]
                        await local_pair.put_into_backlog(entity, own, queue=queue)
                else:
                    await local_pair.put_into_sessions(entity, sent)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop)
        process = Process(loop, "killed")
        other = process.call(NamespacePair, endpoint(local_pair.primary), endpoint(local_pair.secondary), OPTIONS)

        async def drain() -> None:
            async with other:
                await other.syphon().drain()

        process.start(drain())
        await asyncio.sleep(seconds)
        process.kill()
        assert (await local_pair.pair.syphon().drain()).left == 0
        for entity in ("flights", "delays"):
            assert await arrivals(local_pair, entity) == in_order(360, *"abcd")
        await process.reap()


@pytest.mark.parametrize("old_form", [False, True])
async def test_section_6_a_drain_does_not_give_up_while_another_syphon_that_dies_later_makes_progress(
    old_form: bool,
) -> None:
    options = PairOptions(backlog_queue_count=1, ordering="session")
    async with open_local_pair("flights", options=options) as local_pair:
        put = local_pair.put_into_backlog if old_form else local_pair.put_into_sessions
        await put("flights", session_messages(450, "a"))
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop)
        process = Process(loop, "slow")
        other = process.call(NamespacePair, endpoint(local_pair.primary), endpoint(local_pair.secondary), options)

        async def drain() -> None:
            async with other:
                await other.syphon(rate=4).drain()

        process.start(drain())
        await asyncio.sleep(3)
        draining = asyncio.create_task(local_pair.pair.syphon().drain())
        await asyncio.sleep(90)
        process.kill()
        assert (await draining).left == 0
        assert await arrivals(local_pair) == in_order(450, "a")
        await process.reap()


@pytest.mark.parametrize("most", [2, 100])
async def test_section_6_many_failing_entities_hold_up_no_other(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only so many sessions are held; further ones are given back, and offered again after the others."""
    monkeypatch.setattr(session_drain, "_MAX_HELD", most)
    closed = [f"closed{n}" for n in range(25)]
    options = PairOptions(backlog_queue_count=1, ordering="session")
    async with open_local_pair(*closed, "flights", options=options) as local_pair:
        for entity in (*closed, "flights"):
            await local_pair.put_into_sessions(entity, session_messages(10, "a"))
        for entity in closed:
            local_pair.primary.set_fault(Fault(kind=FaultKind.ENTITY_DISABLED, entity=entity))
        syphon, watch = local_pair.pair.syphon(), ProgressWaiter()
        running = asyncio.create_task(syphon.run(progress=watch))
        async with asyncio.timeout(60):
            await watch.until(lambda report: report.moved == {"flights": 10})
        local_pair.primary.clear_faults()
        async with asyncio.timeout(200):
            await watch.until(lambda report: report.moved_total == 260)
        syphon.stop()
        await running
        for entity in closed:
            assert await arrivals(local_pair, entity) == in_order(10, "a")


@pytest.mark.parametrize("most", [2, 100])
@pytest.mark.parametrize("kind", [FaultKind.ENTITY_DISABLED, FaultKind.UNAUTHORIZED, FaultKind.QUOTA_EXCEEDED])
async def test_section_6_a_drain_ends_beside_many_failing_entities_and_names_each(
    kind: FaultKind, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_drain, "_MAX_HELD", most)
    closed = [f"closed{n}" for n in range(6)]
    options = PairOptions(backlog_queue_count=1, ordering="session", syphon_retry_interval=timedelta(seconds=1))
    async with open_local_pair(*closed, "flights", options=options) as local_pair:
        for entity in (*closed, "flights"):
            await local_pair.put_into_sessions(entity, session_messages(10, "a"))
        for entity in closed:
            local_pair.primary.set_fault(Fault(kind=kind, entity=entity))
        async with asyncio.timeout(120):
            report = await local_pair.pair.syphon().drain()
        assert (report.moved, report.dead_lettered, report.left) == ({"flights": 10}, {}, 60)
        assert set(report.failures) == set(closed)
        if kind is FaultKind.UNAUTHORIZED:
            assert all(f"the right Send on {entity} is needed" in report.failures[entity] for entity in closed)
        local_pair.primary.clear_faults()
        assert (await local_pair.pair.syphon().drain()).left == 0
        for entity in closed:
            assert await arrivals(local_pair, entity) == in_order(10, "a")


async def test_section_6_a_destination_that_refuses_the_credential_from_the_start_ends_the_drain() -> None:
    async with open_local_pair("flights", options=OPTIONS) as local_pair:
        await local_pair.put_into_sessions("flights", session_messages(30, "a", "b"))
        fault = local_pair.primary.set_fault(Fault(kind=FaultKind.UNAUTHORIZED, entity="flights"))
        for work in (local_pair.pair.syphon().drain, local_pair.pair.syphon().run):
            with pytest.raises(AuthorizationError, match="the right Send on flights"):
                await work()
        local_pair.primary.clear_faults(fault.id)
        assert (await local_pair.pair.syphon().drain()).moved == {"flights": 60}


@pytest.mark.parametrize("kind", [FaultKind.REFUSE, FaultKind.FREEZE])
async def test_section_6_a_drain_of_sessions_continues_after_an_outage_of_the_secondary(kind: FaultKind) -> None:
    async with open_local_pair("flights", options=OPTIONS) as local_pair:
        await local_pair.put_into_sessions("flights", session_messages(150, "a", "b"))
        syphon, watch = local_pair.pair.syphon(rate=60), ProgressWaiter()
        running = asyncio.create_task(syphon.run(progress=watch))
        await watch.until(lambda report: report.moved_total >= 60)
        local_pair.secondary.set_fault(Fault(kind=kind))
        if kind is FaultKind.REFUSE:
            local_pair.secondary.set_fault(Fault(kind=FaultKind.RESET, on=(Operation.RECEIVE, Operation.SETTLE)))
        await asyncio.sleep(30)
        local_pair.secondary.clear_faults()
        async with asyncio.timeout(150):
            while any(local_pair.secondary.namespace.counts(queue).active for queue in QUEUES):  # noqa: ASYNC110
                await asyncio.sleep(0.5)
        syphon.stop()
        report = await running
        assert await arrivals(local_pair) == in_order(150, "a", "b")
        assert len(await local_pair.primary_ids()) - 300 <= report.duplicates_possible


async def test_section_6_old_backlogs_are_drained_in_order_by_two_syphons_and_a_disabled_entity_waits_alone() -> None:
    options = PairOptions(backlog_queue_count=1, ordering="session")
    async with open_local_pair("closed", "flights", options=options) as local_pair:
        await local_pair.put_into_backlog("closed", session_messages(60, "a", "b"))
        for start in range(0, 200, 50):
            await local_pair.put_into_backlog("flights", session_messages(50, "a", "b", start=start))
        fault = local_pair.primary.set_fault(Fault(kind=FaultKind.ENTITY_DISABLED, entity="closed"))
        ends = endpoint(local_pair.primary), endpoint(local_pair.secondary)
        async with NamespacePair(*ends, options) as other:
            syphons = [local_pair.pair.syphon(), other.syphon()]
            running = [asyncio.create_task(syphon.run()) for syphon in syphons]
            async with asyncio.timeout(200):
                while sum(syphon.report().moved.get("flights", 0) for syphon in syphons) < 400:  # noqa: ASYNC110
                    await asyncio.sleep(0.5)
            local_pair.primary.clear_faults(fault.id)
            async with asyncio.timeout(300):
                while local_pair.secondary.namespace.counts(BACKLOG).active:  # noqa: ASYNC110 - it has no event
                    await asyncio.sleep(0.5)
            for syphon in syphons:
                syphon.stop()
            await asyncio.gather(*running)
        assert await arrivals(local_pair) == in_order(200, "a", "b")
        assert await arrivals(local_pair, "closed") == in_order(60, "a", "b")
