"""Failover drills with the primary up (SPEC sections 4 and 5)."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from servicebus_emulator import Fault, FaultKind
from servicebus_emulator.engine.model.descriptions import QueueDescription, TopicDescription
from servicebus_pair.core import HealthState
from servicebus_pair.core.health.prober import ping_message
from servicebus_pair.core.model.errors import DrillError
from servicebus_pair.core.model.events import (
    HealthChanged,
    MessageRef,
    MessagesAccepted,
    MessagesSyphoned,
    Pinged,
    Route,
)
from servicebus_pair.core.model.interfaces import InMemoryHealthStore
from servicebus_pair.core.pair.drill import _DrillObserver, drill_id, is_ping
from tests.core.support.local_pair import QUICK_OPTIONS, LocalPair, endpoint, numbered, open_quick_pair
from tests.core.support.queues import peek_all

pytestmark = pytest.mark.simulated


async def test_drill_fails_over_sends_fails_back_and_drains(local_pair: LocalPair) -> None:
    report = await local_pair.pair.drill("flights", messages=5, by="ann")
    assert report.passed, report.findings
    assert (report.sent, report.arrived, report.live, report.drain.moved) == (5, 5, 0, {"flights": 5})
    assert 0 <= report.failed_over_seconds < 30
    assert 0 <= report.drain_seconds < 30
    assert local_pair.pair.health("flights").state is HealthState.HEALTHY
    changes = [(event.after.state, event.after.by) for event in local_pair.recorder.of(HealthChanged)]
    assert changes == [(HealthState.FAILED_OVER, "ann"), (HealthState.HEALTHY, "ann")]


async def test_drill_messages_are_marked_for_consumers(local_pair: LocalPair) -> None:
    async with local_pair.pair.sender("flights") as sender:
        await sender.send(numbered(2))
    report = await local_pair.pair.drill("flights", messages=3)
    held = await peek_all(local_pair.primary.connection_string, "flights")
    ours = [message for message in held if not is_ping(message.content_type)]
    assert [drill_id(message.application_properties) for message in ours] == [None, None, *[report.drill] * 3]


async def test_drill_reports_whether_pings_are_delivered(local_pair: LocalPair) -> None:
    local_pair.primary.namespace.create_topic(TopicDescription("news"))
    await local_pair.pair.ping("flights")
    seen = any(is_ping(each.content_type) for each in await peek_all(local_pair.primary.connection_string, "flights"))
    assert (await local_pair.pair.drill("flights", messages=1)).pings_delivered is seen
    assert (await local_pair.pair.drill("news", messages=1)).pings_delivered is None
    assert is_ping(ping_message().content_type)
    assert not is_ping("text/plain")
    assert not is_ping(None)


async def test_live_messages_during_a_drill_arrive(
    local_pair: LocalPair,
) -> None:
    sent = 0
    done = asyncio.Event()

    async def application() -> None:
        nonlocal sent
        async with local_pair.pair.sender("flights") as sender:
            while not done.is_set():
                await sender.send(numbered(1, start=sent))
                sent += 1
                await asyncio.sleep(0.001)

    living = asyncio.create_task(application())
    await local_pair.recorder.wait_for(MessagesAccepted)
    report = await local_pair.pair.drill("flights", messages=200)
    done.set()
    await living
    held = await local_pair.primary_ids()
    assert report.passed, report.findings
    assert set(held) >= {f"m{n}" for n in range(sent)}
    assert await local_pair.backlog_ids() == []
    diverted = [event for event in local_pair.recorder.of(MessagesAccepted) if event.route is Route.BACKLOG]
    assert report.live == sum(len(event.messages) for event in diverted) - 200


async def test_no_process_ends_a_held_failover_early() -> None:
    store = InMemoryHealthStore()
    async with open_quick_pair(store=store) as local_pair:
        ends = endpoint(local_pair.primary), endpoint(local_pair.secondary)
        async with (
            type(local_pair.pair)(*ends, QUICK_OPTIONS, store=store) as elsewhere,
            local_pair.pair.sender("flights"),
        ):
            await local_pair.pair.fail_over("flights", reason="drill", hold=timedelta(seconds=2.5))
            await asyncio.sleep(0)
            async with elsewhere.sender("flights") as sender:
                assert (await sender.send(numbered(1))).diverted == 1
            await asyncio.sleep(2)
            assert local_pair.pair.health("flights").failed_over
            assert elsewhere.health("flights").failed_over
            assert local_pair.recorder.of(Pinged) == []
            # The failover ends by itself even if the drill died.
            await asyncio.wait_for(local_pair.recorder.recovered.wait(), 4)


async def test_cancelled_or_failed_drill_fails_back(local_pair: LocalPair) -> None:
    local_pair.secondary.set_fault(Fault(kind=FaultKind.NO_DISPOSITION))
    drilling = asyncio.create_task(local_pair.pair.drill("flights"))
    await asyncio.wait_for(local_pair.recorder.failed_over.wait(), 5)
    await asyncio.sleep(0.2)
    drilling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await drilling
    assert not local_pair.pair.health("flights").failed_over
    with pytest.raises(DrillError, match="were not sent"):
        await local_pair.pair.drill("flights", limit=timedelta(seconds=0.5))
    assert not local_pair.pair.health("flights").failed_over


async def test_drill_cancelled_during_drain_logs_remaining_messages(
    local_pair: LocalPair, caplog: pytest.LogCaptureFixture
) -> None:
    drilling = asyncio.create_task(local_pair.pair.drill("flights", messages=3))
    await asyncio.wait_for(local_pair.recorder.failed_over.wait(), 5)
    local_pair.primary.set_fault(Fault(kind=FaultKind.NO_DISPOSITION))
    await asyncio.wait_for(local_pair.recorder.recovered.wait(), 5)
    drilling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await drilling
    assert not local_pair.pair.health("flights").failed_over
    assert "waits in the backlog for a syphon or the next drain" in caplog.text
    local_pair.primary.clear_faults()
    assert (await local_pair.pair.syphon().drain()).moved == {"flights": 3}


async def test_outage_during_a_drill_is_reported_and_loses_nothing(
    local_pair: LocalPair,
) -> None:
    drilling = asyncio.create_task(local_pair.pair.drill("flights", messages=3, limit=timedelta(seconds=4)))
    await asyncio.wait_for(local_pair.recorder.failed_over.wait(), 5)
    local_pair.primary.set_fault(Fault(kind=FaultKind.INTERNAL_ERROR))
    report = await drilling
    assert not report.passed
    assert any("remaining messages wait for a syphon" in finding for finding in report.findings)
    async with local_pair.pair.sender("flights") as sender:
        assert (await sender.send(numbered(1))).diverted == 1
    local_pair.primary.clear_faults()
    await local_pair.pair.ping("flights")
    await local_pair.pair.syphon().drain()
    held = await local_pair.primary_ids()
    assert {name for name in held if name is not None} >= {"m0", *(f"{report.drill}-{n}" for n in range(3))}


@pytest.mark.parametrize("entity", ["flights", "nowhere"])
async def test_drill_requires_an_accepted_ping(local_pair: LocalPair, entity: str) -> None:
    local_pair.primary.set_fault(Fault(kind=FaultKind.INTERNAL_ERROR, entity="flights"))
    with pytest.raises(DrillError, match=f"{entity} does not accept a ping, so it was not drilled"):
        await local_pair.pair.drill(entity)
    assert local_pair.recorder.of(HealthChanged) == []
    assert await local_pair.backlog_ids() == []


async def test_invalid_drill_is_rejected_before_any_change(local_pair: LocalPair) -> None:
    await local_pair.pair.fail_over("flights", reason="an outage", by="send")
    with pytest.raises(DrillError, match="failed over already \\(an outage\\)"):
        await local_pair.pair.drill("flights")
    with pytest.raises(DrillError, match="messages is 0"):
        await local_pair.pair.drill("flights", messages=0)
    for name in ("limit", "life"):
        with pytest.raises(DrillError, match=f"{name} is 0:00:00: it must be longer than 0"):
            await local_pair.pair.drill("flights", **{name: timedelta(0)})  # type: ignore[arg-type]
    assert local_pair.pair.health("flights").failed_over


async def test_session_queue_can_be_drilled(local_pair: LocalPair) -> None:
    local_pair.primary.namespace.create_queue(QueueDescription("seated", requires_session=True))
    report = await local_pair.pair.drill("seated", messages=2)
    assert report.passed, report.findings


@pytest.mark.parametrize("entity", ["flight", "flightsx"])
def test_observer_ignores_events_of_other_entities(entity: str) -> None:
    observer = _DrillObserver("Flights", "drill-1")
    for each in (entity, "FLIGHTS"):
        messages = (MessageRef("m", 1), MessageRef(f"drill-1-{each}", 1))
        observer.observe(MessagesAccepted(each, Route.BACKLOG, "q", messages, 1.0))
        observer.observe(MessagesSyphoned(each, "q", messages, 2.0))
    assert (observer.live, observer.arrived) == (1, {"drill-1-FLIGHTS"})
