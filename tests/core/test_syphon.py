"""The syphon over two embedded namespaces (SPEC section 6)."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import proton
import pytest
from azure.servicebus import ServiceBusMessage
from proton.utils import BlockingConnection

from servicebus_emulator import Fault, FaultKind, HostedNamespace, Operation
from servicebus_emulator.engine.descriptions import QueueDescription
from servicebus_pair.core import DrainReport, PairOptions, clients
from servicebus_pair.core.backlog import backlog_queues
from servicebus_pair.core.clients import ReceiveLink
from servicebus_pair.core.parcels import TimeToLive
from servicebus_pair.core.sdk_inside import settle_run
from tests.core.hosted import BACKLOG, hosted, messages
from tests.core.peeking import peek_all


@pytest.fixture(autouse=True)
def collect_what_the_client_leaks() -> Iterator[None]:
    """The client leaves the socket of a connection that broke to the garbage collector, which warns of it."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def put_raw(namespace: HostedNamespace, queue: str, *sent: proton.Message) -> None:
    """Over another AMQP client, which sends what the SDK would not."""
    connection = BlockingConnection(f"amqp://127.0.0.1:{namespace.amqp_port}", allowed_mechs="ANONYMOUS")
    sender = connection.create_sender(queue)
    for message in sent:
        sender.send(message)
    connection.close()


class Watch:
    """A progress callback to wait on."""

    def __init__(self) -> None:
        self.report = DrainReport()
        self._told = asyncio.Event()

    def __call__(self, report: DrainReport) -> None:
        self.report = report
        self._told.set()

    async def until(self, holds: Callable[[DrainReport], object]) -> None:
        while not holds(self.report):
            self._told.clear()
            await self._told.wait()


UNREADABLE = [
    pytest.param(proton.decimal128(bytes([0x30, 0x40] + [0] * 13 + [5])), id="decimal128 out of range"),
    pytest.param(proton.decimal64(5), id="decimal64"),
    pytest.param(proton.char("z"), id="char"),
]


@pytest.mark.parametrize("value", UNREADABLE)
async def test_section_6_what_the_sdk_cannot_decode_is_dead_lettered_and_blocks_nothing(value: object) -> None:
    async with hosted("flights", unchecked=True) as both:
        await both.put_into_backlog("flights", messages(1, 2))
        bad = proton.Message(id="bad", body="x", properties={"x-ms-path": "flights", "value": value})
        await asyncio.to_thread(put_raw, both.secondary, BACKLOG, bad)
        await both.put_into_backlog("flights", messages(3))
        survey = await both.pair.syphon().survey()
        assert (survey.destinations["flights"].messages, survey.unreadable) == (3, 1)
        report = await both.pair.syphon().drain()
        assert (report.moved, report.dead_lettered, report.empty) == ({"flights": 3}, {"Unreadable": 1}, True)
        assert await both.ids("flights") == ["m1", "m2", "m3"]
        assert both.secondary.namespace.counts(BACKLOG).dead_lettered == 1


@pytest.mark.parametrize(
    "kind", [FaultKind.SERVER_BUSY, FaultKind.QUOTA_EXCEEDED, FaultKind.ENTITY_DISABLED, FaultKind.INTERNAL_ERROR]
)
async def test_section_6_a_destination_in_trouble_rests_and_the_others_go_on(kind: FaultKind) -> None:
    async with hosted("full", "flights") as both:
        await both.put_into_backlog("full", messages(*range(300), name="f"))
        await both.put_into_backlog("flights", messages(*range(50)))
        both.primary.set_fault(Fault(kind=kind, entity="full", on=(Operation.SEND,)))
        syphon = both.pair.syphon()
        watch = Watch()
        draining = asyncio.create_task(syphon.drain(progress=watch))
        await watch.until(lambda report: report.moved.get("flights", 0) == 50)
        assert "full" in syphon.report().failures
        assert syphon.report().dead_lettered == {}
        both.primary.clear_faults()
        report = await draining
        assert report.moved == {"full": 300, "flights": 50}
        assert report.empty
        assert Counter(await both.ids("full")) == Counter(f"f{n}" for n in range(300))


async def test_section_6_it_never_spins_on_what_a_destination_does_not_take() -> None:
    async with hosted("full") as both:
        await both.put_into_backlog("full", messages(*range(20)))
        refused = both.primary.set_fault(Fault(kind=FaultKind.SERVER_BUSY, entity="full", on=(Operation.SEND,)))
        received = both.secondary.set_fault(Fault(kind=FaultKind.LATENCY, delay=0.001))
        syphon = both.pair.syphon()
        draining = asyncio.create_task(syphon.drain())
        await asyncio.sleep(4)
        syphon.stop()
        report = await draining
        # Rests of 1 and 2 seconds: at most three tries, with two links in the race for the first.
        [strikes] = [each.strikes for each in both.primary.faults if each.id == refused.id]
        assert 1 <= strikes <= 4
        assert received.id
        assert (report.moved, report.dead_lettered) == ({}, {})
        assert len(await both.ids_in_backlog()) == 20


async def test_section_6_the_rate_holds_and_can_be_changed_while_it_runs() -> None:
    async with hosted("flights") as both:
        await both.put_into_backlog("flights", messages(*range(400)))
        syphon = both.pair.syphon(rate=20)
        draining = asyncio.create_task(syphon.drain())
        await asyncio.sleep(2)
        assert 1 <= syphon.report().moved_total <= 20 * 2 + 20
        progress = await syphon.progress()
        assert progress.remaining is not None
        assert 400 - progress.moved <= progress.remaining + 100 <= 500
        assert progress.eta_seconds is not None
        assert progress.eta_seconds > 5
        syphon.rate = None
        assert (await draining).moved == {"flights": 400}


async def test_section_6_it_can_be_paused_resumed_and_stopped() -> None:
    async with hosted("flights") as both:
        await both.put_into_backlog("flights", messages(*range(200)))
        syphon = both.pair.syphon(rate=50)
        watch = Watch()
        running = asyncio.create_task(syphon.run(progress=watch))
        await watch.until(lambda report: report.moved_total)
        syphon.pause()
        await asyncio.sleep(0.5)
        moved = syphon.report().moved_total
        await asyncio.sleep(1)
        assert syphon.report().moved_total == moved < 200
        assert len(await both.ids("flights")) + len(await both.ids_in_backlog()) == 200
        syphon.resume()
        syphon.rate = None
        await watch.until(lambda report: report.moved_total == 200)
        syphon.stop()
        report = await running
        assert (report.moved, report.duplicates_possible) == ({"flights": 200}, 0)


async def test_section_6_stopping_releases_what_was_not_sent_at_once() -> None:
    async with hosted("flights") as both:
        await both.put_into_backlog("flights", messages(*range(30)))
        both.primary.set_fault(Fault(kind=FaultKind.SERVER_BUSY, entity="flights", on=(Operation.SEND,)))
        syphon = both.pair.syphon()
        watch = Watch()
        draining = asyncio.create_task(syphon.drain(progress=watch))
        await watch.until(lambda report: report.failures)
        syphon.stop()
        await draining
        both.primary.clear_faults()
        async with asyncio.timeout(10):
            assert (await both.pair.syphon().drain()).moved == {"flights": 30}


async def test_section_6_a_continuous_syphon_moves_what_arrives_while_it_waits_in_a_long_poll() -> None:
    async with hosted("flights") as both:
        syphon = both.pair.syphon()
        watch = Watch()
        running = asyncio.create_task(syphon.run(progress=watch))
        await asyncio.sleep(1)
        await both.put_into_backlog("flights", messages(1, 2, 3))
        async with asyncio.timeout(10):
            await watch.until(lambda report: report.moved_total == 3)
        syphon.stop()
        await running
        assert await both.ids("flights") == ["m1", "m2", "m3"]
        assert await both.ids_in_backlog() == []


async def test_section_6_without_a_backlog_a_queue_costs_one_receive_for_each_long_poll() -> None:
    options = PairOptions(backlog_queue_count=2, syphon_long_poll=timedelta(seconds=2))
    async with hosted("flights", options=options) as both:
        syphon = both.pair.syphon()
        running = asyncio.create_task(syphon.run())
        await asyncio.sleep(7)
        syphon.stop()
        await running
        operations = both.pair.meter.read()
        assert 2 * 2 <= operations.empty_receives <= 2 * 4
        assert operations.receives == 0


async def test_section_6_a_dry_run_counts_ages_and_sizes_by_destination_and_takes_nothing() -> None:
    async with hosted("flights", "delays", unchecked=True) as both:
        await both.put_into_backlog("flights", messages(*range(250), body="x" * 100))
        await both.put_into_backlog("delays", messages(*range(5)))
        await asyncio.to_thread(put_raw, both.secondary, BACKLOG, proton.Message(id="lost sheep", body="x"))
        survey = await both.pair.syphon().survey()
        now = datetime.now(UTC).timestamp()
        assert {entity: each.messages for entity, each in survey.destinations.items()} == {"flights": 250, "delays": 5}
        assert survey.undeliverable == {"NoPath": 1}
        assert survey.messages == 256
        flights = survey.destinations["flights"]
        assert 250 * 100 <= flights.bytes <= 250 * 300
        newest, oldest = flights.ages(now)
        assert 0 <= newest <= oldest < 30
        assert len(await both.ids_in_backlog()) == 256


async def test_section_6_only_the_entities_asked_for_are_moved_and_the_others_stay() -> None:
    async with hosted("flights", "delays") as both:
        await both.put_into_backlog("delays", messages(*range(150), name="d"))
        await both.put_into_backlog("flights", messages(*range(20)))
        report = await both.pair.syphon(entities=["FLIGHTS"]).drain()
        assert report.moved == {"flights": 20}
        assert report.left >= 100
        assert len(await both.ids_in_backlog()) == 150
        assert set((await both.pair.syphon(entities=["flights"]).survey()).destinations) == set()
        async with asyncio.timeout(30):
            assert (await both.pair.syphon().drain()).moved == {"delays": 150}


async def test_section_6_dead_letters_are_driven_again_once_their_cause_is_mended() -> None:
    async with hosted("flights") as both:
        await both.put_into_backlog("later", messages(*range(10)))
        await both.put_into_backlog("never", messages(99, name="n"))
        assert (await both.pair.syphon().drain()).dead_lettered == {"EntityNotFound": 11}
        both.primary.namespace.create_queue(QueueDescription("later"))
        report = await both.pair.syphon(redrive=True).drain()
        assert (report.moved, report.dead_lettered) == ({"later": 10}, {})
        assert await both.ids("later") == [f"m{n}" for n in range(10)]
        assert await both.ids_in_backlog(dead_letter=True) == ["n99"]


async def test_section_6_a_time_to_live_starts_again_or_elapses_as_asked() -> None:
    life = timedelta(hours=1)
    async with hosted("flights") as both:
        await both.put_into_backlog("flights", messages(1, 2, time_to_live=life))
        await both.put_into_backlog("flights", messages(3, time_to_live=timedelta(milliseconds=200)))
        await asyncio.sleep(0.5)
        report = await both.pair.syphon(time_to_live=TimeToLive.ELAPSE).drain()
        assert (report.moved, report.dead_lettered) == ({"flights": 2}, {"Expired": 1})
        await both.put_into_backlog("flights", messages(4, time_to_live=life))
        assert (await both.pair.syphon().drain()).moved == {"flights": 1}
        *elapsed, again = await peek_all(both.primary.connection_string, "flights")
        for message in elapsed:
            assert message.time_to_live is not None
            assert life - timedelta(seconds=30) < message.time_to_live < life
        assert again.time_to_live == life
        [expired] = await peek_all(both.secondary.connection_string, BACKLOG, dead_letter=True)
        assert (expired.message_id, expired.dead_letter_reason) == ("m3", "Expired")


async def test_section_6_what_was_scheduled_for_a_time_that_is_over_is_sent_at_once() -> None:
    async with hosted("flights") as both:
        soon = datetime.now(UTC) + timedelta(seconds=0.3)
        await both.put_into_backlog("flights", messages(1, scheduled_enqueue_time_utc=soon))
        await asyncio.sleep(0.5)
        assert (await both.pair.syphon().drain()).moved == {"flights": 1}
        [message] = await peek_all(both.primary.connection_string, "flights")
        assert message.scheduled_enqueue_time_utc is None
        assert both.primary.namespace.counts("flights").active == 1


async def test_section_6_several_syphons_at_once_share_the_work_and_double_nothing() -> None:
    options = PairOptions(backlog_queue_count=2)
    async with hosted("flights", options=options) as both:
        for n, queue in enumerate(backlog_queues("contoso", 2)):
            await both.put_into_backlog("flights", messages(*range(n * 500, n * 500 + 500)), queue=queue)
        reports = await asyncio.gather(*(both.pair.syphon().drain() for _ in range(3)))
        assert sum(report.moved_total for report in reports) == 1000
        assert all(report.empty for report in reports)
        assert Counter(await both.ids("flights")) == Counter(f"m{n}" for n in range(1000))


async def test_section_6_a_lost_lock_is_counted_as_a_possible_duplicate() -> None:
    async with hosted("flights", lock="PT5S") as both:
        await both.put_into_backlog("flights", messages(*range(5)))
        both.secondary.set_fault(Fault(kind=FaultKind.LOCK_LOST, on=(Operation.SETTLE,), count=1))
        report = await both.pair.syphon().drain()
        assert report.empty
        copies = Counter(await both.ids("flights"))
        extra = sum(copies.values()) - 5
        assert set(copies) == {f"m{n}" for n in range(5)}
        assert 1 <= extra <= report.duplicates_possible


async def test_section_6_the_end_is_found_by_looking_so_what_arrives_during_a_drain_is_moved_too() -> None:
    async with hosted("flights") as both:
        await both.put_into_backlog("flights", messages(*range(100)))
        arrived: list[asyncio.Task[None]] = []

        def arrive(report: DrainReport) -> None:
            if report.moved_total and not arrived:
                arrived.append(asyncio.create_task(both.put_into_backlog("flights", messages(*range(100, 150)))))

        report = await both.pair.syphon(rate=60).drain(progress=arrive)
        await arrived[0]
        assert (report.moved, report.empty) == ({"flights": 150}, True)


async def test_section_6_large_messages_make_small_hands_so_that_memory_stays_bounded() -> None:
    async with hosted("flights") as both:
        syphon = both.pair.syphon()
        syphon._shop.bytes_in_hand = 200_000
        for n in range(20):
            await both.put_into_backlog("flights", [ServiceBusMessage("x" * 50_000, message_id=f"m{n}")])
        sizes: list[int] = []
        fit = _hands(sizes)
        report = await syphon.drain()
        fit.undo()
        assert report.moved == {"flights": 20}
        assert sizes[0] == 16  # before anything is known
        assert max(sizes[1:]) <= 4


async def test_section_6_neighbours_are_settled_together_with_the_sdk_at_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    async def noted(receiver: Any, run: Sequence[Any], *, complete: bool, timeout: float) -> None:
        sizes.append(len(run))
        await settle_run(receiver, run, complete=complete, timeout=timeout)

    monkeypatch.setattr(clients, "settle_run", noted)
    async with hosted("flights", "delays") as both:
        await both.put_into_backlog("flights", messages(*range(100)))
        await both.put_into_backlog("delays", messages(*range(100)))
        assert (await both.pair.syphon().drain()).moved == {"flights": 100, "delays": 100}
    assert sum(sizes) == 200
    assert len(sizes) < 20


async def test_section_6_an_sdk_without_that_inside_settles_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "can_settle_runs", lambda *_: False)
    async with hosted("flights") as both:
        await both.put_into_backlog("flights", messages(*range(60)))
        report = await both.pair.syphon().drain()
        assert (report.moved, report.duplicates_possible) == ({"flights": 60}, 0)
        assert await both.ids_in_backlog() == []


def _hands(sizes: list[int]) -> pytest.MonkeyPatch:
    """Note how many messages each receive asks for."""
    patch = pytest.MonkeyPatch()
    receive = ReceiveLink.receive

    async def noted(self: ReceiveLink, *, most: int, wait: float, timeout: float) -> object:
        sizes.append(most)
        return await receive(self, most=most, wait=wait, timeout=timeout)

    patch.setattr(ReceiveLink, "receive", noted)
    return patch
