"""A drain of sessions in which entities, links or other syphons fail (SPEC section 6)."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
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


@pytest.mark.parametrize("old_form", [False, True])
@pytest.mark.parametrize("seconds", [0.05, 0.25, 0.45])
async def test_section_6_after_the_kill_of_a_syphon_another_one_moves_everything_in_order(
    seconds: float, old_form: bool
) -> None:
    options = replace(OPTIONS, syphon_batch_size=50)
    async with open_local_pair("flights", "delays", options=options) as local_pair:
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
        other = process.call(NamespacePair, endpoint(local_pair.primary), endpoint(local_pair.secondary), options)

        async def drain() -> None:
            async with other:
                await other.syphon().drain()

        process.start(drain())
        await asyncio.sleep(seconds)
        process.kill()
        assert (await local_pair.pair.syphon().drain()).left == 0
        for entity in ("flights", "delays"):
            assert await arrivals(local_pair, entity) == in_order(360, *"abcd")
            # Each queue has one session for the entity, with one window.
            copies = len(await peek_all(local_pair.primary.connection_string, entity)) - 360 * 4
            assert old_form or copies <= len(QUEUES) * options.syphon_batch_size
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


@pytest.mark.parametrize(
    ("kind", "most"),
    [(FaultKind.ENTITY_DISABLED, 100), (FaultKind.UNAUTHORIZED, 2), (FaultKind.QUOTA_EXCEEDED, 2)],
)
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
