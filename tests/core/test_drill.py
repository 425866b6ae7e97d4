"""The drill: an outage on purpose, with the primary up (SPEC sections 4 and 5)."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from servicebus_emulator import Fault, FaultKind
from servicebus_emulator.engine.descriptions import QueueDescription, TopicDescription
from servicebus_pair.core import State
from servicebus_pair.core.drill import drill_of, is_ping
from servicebus_pair.core.errors import DrillError
from servicebus_pair.core.events import HealthChanged, MessagesAccepted, Pinged, Route
from servicebus_pair.core.health import HEALTHY, EntityHealth, FailOver, MarkHealthy, PingSucceeded, decide
from servicebus_pair.core.ports import InMemoryHealthStore
from servicebus_pair.core.prober import ping_message
from tests.core.breakable import QUICK, Breakable, breakable_pair, endpoint, numbered
from tests.core.peeking import peek_all

pytestmark = pytest.mark.simulated


async def test_section_4_a_drill_fails_over_sends_fails_back_drains_and_reports(breakable: Breakable) -> None:
    report = await breakable.pair.drill("flights", messages=5, by="ann")
    assert report.passed, report.findings
    assert (report.sent, report.arrived, report.live, report.drain.moved) == (5, 5, 0, {"flights": 5})
    assert breakable.pair.health("flights").state is State.HEALTHY
    changes = [(event.after.state, event.after.by) for event in breakable.recorder.of(HealthChanged)]
    assert changes == [(State.FAILED_OVER, "ann"), (State.HEALTHY, "ann")]


async def test_section_4_consumers_tell_the_messages_of_a_drill_from_their_own(breakable: Breakable) -> None:
    async with breakable.pair.sender("flights") as sender:
        await sender.send(numbered(2))
    report = await breakable.pair.drill("flights", messages=3)
    held = await peek_all(breakable.primary.connection_string, "flights")
    ours = [message for message in held if not is_ping(message.content_type)]
    assert [drill_of(message.application_properties) for message in ours] == [None, None, *[report.drill] * 3]


async def test_section_5_a_drill_finds_out_whether_the_service_delivers_pings(breakable: Breakable) -> None:
    breakable.primary.namespace.create_topic(TopicDescription("news"))
    await breakable.pair.ping("flights")
    seen = any(is_ping(each.content_type) for each in await peek_all(breakable.primary.connection_string, "flights"))
    assert (await breakable.pair.drill("flights", messages=1)).pings_delivered is seen
    assert (await breakable.pair.drill("news", messages=1)).pings_delivered is None
    assert is_ping(ping_message().content_type)
    assert not is_ping("text/plain")
    assert not is_ping(None)


async def test_section_4_live_messages_of_a_drill_are_neither_lost_nor_delayed_beyond_it(
    breakable: Breakable,
) -> None:
    sent = 0
    done = asyncio.Event()

    async def application() -> None:
        nonlocal sent
        async with breakable.pair.sender("flights") as sender:
            while not done.is_set():
                await sender.send(numbered(1, start=sent))
                sent += 1
                await asyncio.sleep(0.001)

    living = asyncio.create_task(application())
    await breakable.recorder.next_of(MessagesAccepted)
    report = await breakable.pair.drill("flights", messages=200)
    done.set()
    await living
    held = await breakable.ids_on_the_primary()
    assert report.passed, report.findings
    assert set(held) >= {f"m{n}" for n in range(sent)}
    assert await breakable.ids_in_the_backlog() == []
    diverted = [event for event in breakable.recorder.of(MessagesAccepted) if event.route is Route.BACKLOG]
    assert report.live == sum(len(event.messages) for event in diverted) - 200


async def test_section_4_no_ping_ends_a_drill_before_its_time_in_this_process_or_another() -> None:
    store = InMemoryHealthStore()
    async with breakable_pair(store=store) as breakable:
        ends = endpoint(breakable.primary), endpoint(breakable.secondary)
        async with (
            type(breakable.pair)(*ends, QUICK, store=store) as elsewhere,
            breakable.pair.sender("flights"),
        ):
            breakable.pair.fail_over("flights", reason="drill", hold=timedelta(seconds=2.5))
            await asyncio.sleep(0)
            async with elsewhere.sender("flights") as sender:
                assert (await sender.send(numbered(1))).diverted == 1
            await asyncio.sleep(2)
            assert breakable.pair.health("flights").failed_over
            assert elsewhere.health("flights").failed_over
            assert breakable.recorder.of(Pinged) == []
            # It heals itself, should the drill have died.
            await asyncio.wait_for(breakable.recorder.healthy_again.wait(), 4)


async def test_section_4_a_drill_that_is_cancelled_or_fails_leaves_nothing_failed_over(breakable: Breakable) -> None:
    breakable.secondary.set_fault(Fault(kind=FaultKind.NO_DISPOSITION))
    drilling = asyncio.create_task(breakable.pair.drill("flights"))
    await asyncio.wait_for(breakable.recorder.failed_over.wait(), 5)
    await asyncio.sleep(0.2)
    drilling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await drilling
    assert not breakable.pair.health("flights").failed_over
    with pytest.raises(DrillError, match="were not sent"):
        await breakable.pair.drill("flights", limit=timedelta(seconds=0.5))
    assert not breakable.pair.health("flights").failed_over


async def test_section_4_a_drill_that_is_cancelled_in_its_drain_leaves_the_entity_healthy_and_says_what_waits(
    breakable: Breakable, caplog: pytest.LogCaptureFixture
) -> None:
    drilling = asyncio.create_task(breakable.pair.drill("flights", messages=3))
    await asyncio.wait_for(breakable.recorder.failed_over.wait(), 5)
    breakable.primary.set_fault(Fault(kind=FaultKind.NO_DISPOSITION))
    await asyncio.wait_for(breakable.recorder.healthy_again.wait(), 5)
    drilling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await drilling
    assert not breakable.pair.health("flights").failed_over
    assert "waits in the backlog for a syphon or the next drain" in caplog.text
    breakable.primary.clear_faults()
    assert (await breakable.pair.syphon().drain()).moved == {"flights": 3}


async def test_section_4_an_outage_in_the_middle_of_a_drill_loses_nothing_and_the_report_says_so(
    breakable: Breakable,
) -> None:
    drilling = asyncio.create_task(breakable.pair.drill("flights", messages=3, limit=timedelta(seconds=4)))
    await asyncio.wait_for(breakable.recorder.failed_over.wait(), 5)
    breakable.primary.set_fault(Fault(kind=FaultKind.INTERNAL_ERROR))
    report = await drilling
    assert not report.passed
    assert any("what is left waits for a syphon" in finding for finding in report.findings)
    async with breakable.pair.sender("flights") as sender:
        assert (await sender.send(numbered(1))).diverted == 1
    breakable.primary.clear_faults()
    await breakable.pair.ping("flights")
    await breakable.pair.syphon().drain()
    held = await breakable.ids_on_the_primary()
    assert {name for name in held if name is not None} >= {"m0", *(f"{report.drill}-{n}" for n in range(3))}


@pytest.mark.parametrize("entity", ["flights", "nowhere"])
async def test_section_4_an_entity_that_takes_no_ping_is_not_drilled_and_nothing_is_done(
    breakable: Breakable, entity: str
) -> None:
    breakable.primary.set_fault(Fault(kind=FaultKind.INTERNAL_ERROR, entity="flights"))
    with pytest.raises(DrillError, match=f"{entity} does not take a ping, so it was not drilled"):
        await breakable.pair.drill(entity)
    assert breakable.recorder.of(HealthChanged) == []
    assert await breakable.ids_in_the_backlog() == []


async def test_section_4_arguments_of_a_drill_that_make_no_sense_are_refused_by_name(breakable: Breakable) -> None:
    for name in ("limit", "life"):
        with pytest.raises(DrillError, match=f"{name} is 0:00:00: it must be longer than 0"):
            await breakable.pair.drill("flights", **{name: timedelta(0)})  # type: ignore[arg-type]
    assert breakable.recorder.of(HealthChanged) == []


async def test_section_4_an_entity_that_is_failed_over_is_not_drilled(breakable: Breakable) -> None:
    breakable.pair.fail_over("flights", reason="an outage", by="send")
    with pytest.raises(DrillError, match="failed over already \\(an outage\\)"):
        await breakable.pair.drill("flights")
    with pytest.raises(DrillError, match="messages is 0"):
        await breakable.pair.drill("flights", messages=0)
    assert breakable.pair.health("flights").failed_over


async def test_section_4_a_queue_with_sessions_is_drilled_too(breakable: Breakable) -> None:
    breakable.primary.namespace.create_queue(QueueDescription("seated", requires_session=True))
    report = await breakable.pair.drill("seated", messages=2)
    assert report.passed, report.findings


def test_section_4_a_held_failover_ends_by_hand_or_by_a_ping_after_its_time() -> None:
    held = decide(HEALTHY, FailOver("drill", "ann", hold=60.0), now=100.0, failover_interval=60.0).health
    assert held == EntityHealth(State.FAILED_OVER, 100.0, None, "drill", "ann", held_until=160.0)
    early = decide(held, PingSucceeded(159.0), now=159.9, failover_interval=60.0).health
    assert early.failed_over
    assert not decide(held, PingSucceeded(160.0), now=160.0, failover_interval=60.0).health.failed_over
    assert not decide(held, MarkHealthy("done", "ann"), now=101.0, failover_interval=60.0).health.failed_over
    assert EntityHealth.from_json(held.to_json()) == held
    older = {name: value for name, value in held.to_json().items() if name != "held_until"}
    assert EntityHealth.from_json(older).held_until is None
