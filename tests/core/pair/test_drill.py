"""Failover drills with the primary up (SPEC sections 4 and 5)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest

from servicebus_emulator import Fault, FaultKind
from servicebus_emulator.engine.model.descriptions import TopicDescription
from servicebus_pair.core import DrainReport, DrillReport, EntityHealth, HealthState, SendResult
from servicebus_pair.core.model.errors import DrillError, ServiceFaultError
from servicebus_pair.core.model.events import (
    HealthChanged,
    MessageRef,
    MessagesAccepted,
    MessagesSyphoned,
    MessagesUnspooled,
    Pinged,
    Route,
)
from servicebus_pair.core.model.interfaces import InMemoryHealthStore
from servicebus_pair.core.pair.drill import _Drill, _DrillObserver, drill_id
from servicebus_pair.core.protocol.amqp_message import AmqpMessage, is_ping
from tests.core.support.encoding import properties_of
from tests.core.support.local_pair import QUICK_OPTIONS, LocalPair, endpoint, numbered, open_quick_pair
from tests.core.support.manual_clock import ManualClock
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


async def test_section_10_a_drill_of_both_namespaces_goes_through_the_spool(tmp_path: Path) -> None:
    async with open_quick_pair(spool=str(tmp_path)) as both:
        report = await both.pair.drill("flights", messages=5, both=True)
        assert report.passed, report.findings
        assert (report.sent, report.arrived, report.drain.moved, report.drain.unspooled) == (5, 5, {}, {"flights": 5})
        accepted = [each.route for each in both.recorder.of(MessagesAccepted)]
        assert set(accepted) == {Route.SPOOLED}
        plain = await both.pair.drill("flights", messages=5)
        assert (plain.passed, plain.drain.moved) == (True, {"flights": 5})
    store = InMemoryHealthStore()
    async with open_quick_pair(spool=str(tmp_path / "ordered"), ordering="session", store=store) as ordered:
        report = await ordered.pair.drill("flights", messages=5, both=True)
        assert (report.findings, report.drain.unspooled) == ((), {"flights": 5})
    async with open_quick_pair() as without:
        with pytest.raises(DrillError, match="the pair has no spool"):
            await without.pair.drill("flights", both=True)


async def test_drill_reports_whether_pings_are_delivered(local_pair: LocalPair) -> None:
    local_pair.primary.namespace.create_topic(TopicDescription("news"))
    await local_pair.pair.ping("flights")
    seen = any(is_ping(each.content_type) for each in await peek_all(local_pair.primary.connection_string, "flights"))
    assert (await local_pair.pair.drill("flights", messages=1)).pings_delivered is seen
    assert (await local_pair.pair.drill("news", messages=1)).pings_delivered is None
    assert is_ping("application/vnd.ms-servicebus-ping")
    assert not is_ping("text/plain")
    assert not is_ping(None)


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
        for span in (timedelta(0), timedelta(seconds=-1)):
            with pytest.raises(DrillError, match=f"{name} is {span}: it must be longer than 0"):
                await local_pair.pair.drill("flights", **{name: span})  # type: ignore[arg-type]
    assert local_pair.pair.health("flights").failed_over


@pytest.mark.parametrize("entity", ["flight", "flightsx"])
def test_observer_ignores_events_of_other_entities(entity: str) -> None:
    observer = _DrillObserver("Flights", "drill-1")
    for each in (entity, "FLIGHTS"):
        messages = (MessageRef("m", 1), MessageRef(f"drill-1-{each}", 1))
        observer.observe(MessagesAccepted(each, Route.BACKLOG, "q", messages, 1.0))
        observer.observe(MessagesAccepted(each, Route.PRIMARY, None, messages, 1.0))
        observer.observe(MessagesSyphoned(each, "q", messages, 2.0))
    assert (observer.live, observer.arrived) == (1, {"drill-1-FLIGHTS"})
    for route, name in ((Route.BACKLOG, "drill-1-a"), (Route.PRIMARY, "drill-1-b")):
        observer.observe(MessagesUnspooled("flights", route, None, (MessageRef(name, 1),), 3.0))
    assert observer.arrived == {"drill-1-FLIGHTS", "drill-1-b"}
    well, out = EntityHealth(), EntityHealth(HealthState.FAILED_OVER)
    for each, before in ((entity, out), ("flights", well), ("flights", EntityHealth(HealthState.SUSPECT))):
        observer.observe(HealthChanged(each, before, well, 4.0))
        assert not observer.interrupted
    observer.observe(HealthChanged("FLIGHTS", out, well, 4.0))
    assert (observer.interrupted, observer.live) == (True, 1)


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({"a": 1, "x-servicebus-pair-drill": "d1"}, "d1"),
        ({b"x-servicebus-pair-drill": b"d1"}, "d1"),
        ({"x-servicebus-pair-drill": 5}, "5"),
        ({"x-servicebus-pair": "d1"}, None),
        (None, None),
    ],
)
def test_drill_id_is_read_from_text_and_bytes(properties: Any, expected: str | None) -> None:
    assert drill_id(properties) == expected


class FakePair:
    """A pair on a manual clock: sending takes 2 s, each attempt to fail back 3 s, the drain 5 s.

    :ivar order: with session ordering, fails back at the second attempt.
    """

    def __init__(self, *, ordered: bool, drain: DrainReport, arrived: int, primary: int) -> None:
        self.clock = ManualClock()
        self.calls: list[Any] = []
        self.interrupted = False
        self.messages: list[AmqpMessage] = []
        self.order = self if ordered else None
        self.sender = self.syphon = lambda *_: self
        self._drain, self._arrived, self._primary = drain, arrived, primary
        self._attempts: list[float] = []
        self._stopped = asyncio.Event()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    @contextmanager
    def observing(self, observer: _DrillObserver) -> Iterator[None]:
        self.observer = observer
        yield

    async def fail_over(self, entity: str, *, reason: str, by: str, hold: timedelta) -> None:
        self.calls.append(("fail over", entity, by, hold, reason.partition(": ")[2]))

    async def mark_healthy(self, entity: str, *, reason: str, by: str) -> None:
        self.calls.append(("mark healthy", entity, by, reason.partition(" ")[2]))

    async def send(self, messages: list[AmqpMessage]) -> SendResult:
        self.messages = messages
        self.clock.time += 2
        ids = tuple(str(properties_of(message).message_id) for message in messages)
        refs = tuple(MessageRef(name, 1) for name in ids[: self._arrived])
        self.observer.observe(MessagesAccepted("flights", Route.BACKLOG, "q", (*refs, MessageRef("m", 1)), 0.0))
        self.observer.observe(MessagesSyphoned("flights", "q", refs, 0.0))
        if self.interrupted:
            self.observer.observe(HealthChanged("flights", EntityHealth(HealthState.FAILED_OVER), EntityHealth(), 0.0))
        return SendResult(self._primary, len(ids) - self._primary, ("q",), ids)

    async def drain(self) -> DrainReport:
        self.clock.time += 5
        return self._drain

    async def run(self) -> DrainReport:
        await self._stopped.wait()
        return self._drain

    def stop(self) -> None:
        self._stopped.set()

    async def fail_back(self, entity: str, *, reason: str, by: str, look_first: bool) -> bool:
        assert (entity, look_first) == ("flights", False)
        self.clock.time += 3
        self._attempts.append(asyncio.get_running_loop().time())
        if len(self._attempts) < 2:
            return False
        await self.mark_healthy(entity, reason=reason, by=by)
        return True


async def drilled(pair: FakePair, messages: int, monkeypatch: pytest.MonkeyPatch, *, both: bool = False) -> DrillReport:
    async def no_pings(_: object) -> None:
        return None

    monkeypatch.setattr(_Drill, "_pings_are_delivered", no_pings)
    shared: Any = SimpleNamespace(clock=pair.clock, registry=pair, order=pair.order)
    limit = timedelta(seconds=30)
    made: Any = pair
    drill = _Drill(made, shared, "flights", "ann", limit, both=both)
    monkeypatch.setattr(drill, "_sender", lambda: pair)
    return await drill.run(messages, timedelta(minutes=3))


@pytest.mark.parametrize(("ordered", "failed_over", "draining"), [(False, 2.0, 5.0), (True, 8.0, 6.0)])
async def test_drill_measures_failover_and_drain(
    ordered: bool, failed_over: float, draining: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = FakePair(ordered=ordered, drain=DrainReport(moved={"flights": 3}), arrived=3, primary=0)
    report = await drilled(pair, 3, monkeypatch)
    assert (report.failed_over_seconds, report.drain_seconds, report.findings) == (failed_over, draining, ())
    assert (report.sent, report.arrived, report.live, report.drain.moved) == (3, 3, 1, {"flights": 3})
    assert pair.calls == [
        ("fail over", "flights", "ann", timedelta(seconds=30), "a drill, the primary is up"),
        ("mark healthy", "flights", "ann", "is over"),
    ]
    assert [properties_of(message).message_id for message in pair.messages] == [f"{report.drill}-{n}" for n in range(3)]
    assert re.fullmatch("drill-[0-9a-f]{12}", report.drill)
    if ordered:
        # Sends are not held for the whole time.
        assert pair._attempts[1] - pair._attempts[0] == pytest.approx(1, abs=0.01)
    for message in pair.messages:
        assert message.header is not None
        assert (properties_of(message).group_id, message.header.time_to_live) == (report.drill, 180_000)
        assert drill_id(message.application_properties) == report.drill


async def test_drill_reports_each_deviation(monkeypatch: pytest.MonkeyPatch) -> None:
    drain = DrainReport(dead_lettered={"Refused": 1}, left=2, failures={"q": "lost"})
    pair = FakePair(ordered=False, drain=drain, arrived=3, primary=1)
    pair.interrupted = True
    report = await drilled(pair, 7, monkeypatch)
    assert not report.passed
    assert report.findings == (
        "the entity was marked healthy before the drill ended",
        "1 marked messages went to the primary in spite of the failover",
        "4 marked messages were not moved by this drain: another syphon may have moved them",
        "the backlog is not empty: left=2 failures={'q': 'lost'}",
        "dead-lettered in the backlog: {'Refused': 1}",
    )


@pytest.mark.parametrize("both", [False, True])
async def test_a_drill_of_both_namespaces_reports_what_the_backlog_took(
    both: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = FakePair(ordered=False, drain=DrainReport(), arrived=3, primary=0)
    report = await drilled(pair, 3, monkeypatch, both=both)
    assert report.findings == ("3 marked messages went to the backlog and not to the spool",) * both


async def test_section_6_a_drill_whose_drain_fails_in_session_order_raises_its_error_and_ends_its_hold(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pair = FakePair(ordered=True, drain=DrainReport(), arrived=0, primary=0)

    async def fail() -> DrainReport:
        raise ServiceFaultError("broken")

    pair.run = fail  # type: ignore[method-assign]
    with pytest.raises(ServiceFaultError):
        await drilled(pair, 1, monkeypatch)
    assert pair.calls[1:] == [("fail over", "flights", "ann", timedelta(milliseconds=1), "")]


@pytest.mark.parametrize(
    ("pages", "seconds", "delivered"),
    [
        ([["a", "ping"]], 0.0, True),
        ([["a", "b"], ["ping"]], 0.0, True),
        ([["a"], []], 0.0, False),
        ([["zz"], []], 0.0, False),
        ([["a"], ["b"], ["ping"]], 0.5, None),
    ],
)
async def test_drill_searches_for_its_ping_during_its_lifetime(
    pages: list[list[str]], seconds: float, delivered: bool | None
) -> None:
    clock, asked = ManualClock(), list[int]()

    async def peek(*, max_messages: int, timeout: float, from_sequence_number: int) -> list[Any]:
        assert (max_messages, timeout) == (250, 5.0)
        asked.append(from_sequence_number)
        clock.time += seconds
        page = pages[len(asked) - 1]
        return [SimpleNamespace(message_id=name, sequence_number=10 * len(asked) + n) for n, name in enumerate(page)]

    shared: Any = SimpleNamespace(clock=clock)
    unused: Any = None
    receiver: Any = SimpleNamespace(peek=peek)
    assert await _Drill(unused, shared, "flights", "ann", timedelta(0))._can_peek(receiver, "ping") is delivered
    assert asked[:2] == [1, 10 + len(pages[0])][: len(asked)]
