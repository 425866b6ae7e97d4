"""What a destination, a message or a backlog queue can do to a syphon (SPEC section 6)."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from weakref import WeakSet

import proton
import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusClient

from servicebus_emulator import Fault, FaultKind, Operation
from servicebus_emulator.engine.descriptions import QueueDescription
from servicebus_pair.core import DrainReport, PairOptions
from servicebus_pair.core.clients import ReceiveLink
from tests.core.hosted import BACKLOG, Hosted, hosted, messages
from tests.core.peeking import peek_all
from tests.core.syphoning import Watch, put_raw

pytestmark = pytest.mark.simulated

QUEUES = 10
POLL = 1.0


async def reasons(both: Hosted) -> dict[str, str | None]:
    found = await peek_all(both.secondary.connection_string, BACKLOG, dead_letter=True)
    return {message.message_id or "": message.dead_letter_reason for message in found}


async def ids_of(both: Hosted, session: str) -> list[str | None]:
    """What the primary holds of one session."""
    async with (
        ServiceBusClient.from_connection_string(both.primary.connection_string) as client,
        client.get_queue_receiver("flights", session_id=session) as receiver,
    ):
        return [message.message_id for message in await receiver.peek_messages(max_message_count=250)]


async def test_section_6_a_message_without_session_for_an_entity_with_sessions_is_dead_lettered_and_no_other() -> None:
    async with hosted() as both:
        both.primary.namespace.create_queue(QueueDescription("flights", requires_session=True))
        good = [ServiceBusMessage("x", message_id=f"{s}{n}", session_id=s) for s in "ab" for n in range(20)]
        await both.put_into_backlog("flights", [*good[:25], *messages(1, 2), *good[25:]])
        async with asyncio.timeout(20):
            report = await both.pair.syphon().drain()
        assert (report.moved, report.dead_lettered, report.empty) == ({"flights": 40}, {"Refused": 2}, True)
        assert await reasons(both) == {"m1": "Refused", "m2": "Refused"}
        for session in "ab":
            assert await ids_of(both, session) == [f"{session}{n}" for n in range(20)]


@pytest.mark.parametrize("place", [0, 7, 15])
async def test_section_6_one_message_that_the_service_refuses_takes_none_of_its_batch_with_it(place: int) -> None:
    options = PairOptions(backlog_queue_count=1)
    async with hosted(options=options) as both:
        both.primary.namespace.create_queue(QueueDescription("flights", requires_session=True))
        sent = [ServiceBusMessage("x", message_id=f"m{n}", session_id="a") for n in range(16)]
        sent[place].session_id = None
        await both.put_into_backlog("flights", sent)
        report = await both.pair.syphon().drain()
        assert (report.moved, report.dead_lettered) == ({"flights": 15}, {"Refused": 1})
        assert await ids_of(both, "a") == [f"m{n}" for n in range(16) if n != place]
        assert await reasons(both) == {f"m{place}": "Refused"}


async def test_section_6_what_the_service_finds_too_large_is_dead_lettered_and_its_neighbours_arrive() -> None:
    async with hosted("flights") as both:
        await both.put_into_backlog("flights", messages(*range(8)))
        both.primary.set_fault(Fault(kind=FaultKind.SIZE_EXCEEDED, on=(Operation.SEND,), entity="flights", count=4))
        report = await both.pair.syphon().drain()
        # 8 refused, then 4, 2 and the first one.
        assert (report.moved, report.dead_lettered) == ({"flights": 7}, {"MessageTooLarge": 1})
        assert await both.ids("flights") == [f"m{n}" for n in range(1, 8)]


async def test_section_6_an_entity_deleted_while_it_is_drained_sends_the_rest_to_the_dead_letters() -> None:
    async with hosted("flights", "delays") as both:
        await both.put_into_backlog("flights", messages(*range(300)))
        await both.put_into_backlog("delays", messages(*range(30), name="d"))
        deleted: list[int] = []

        def delete(report: DrainReport) -> None:
            if report.moved.get("flights", 0) and not deleted:
                both.primary.namespace.delete_queue("flights")
                deleted.append(report.moved["flights"])

        # What was received while the destination seemed to be in trouble comes again when its lock of a minute ends.
        async with asyncio.timeout(90):
            report = await both.pair.syphon(rate=200).drain(progress=delete)
        assert report.moved["delays"] == 30
        assert report.moved["flights"] + report.dead_lettered["EntityNotFound"] >= 300
        assert report.empty
        both.primary.namespace.create_queue(QueueDescription("flights"))
        again = await both.pair.syphon(redrive=True).drain()
        assert again.moved == {"flights": report.dead_lettered["EntityNotFound"]}


@pytest.mark.parametrize("kind", [FaultKind.SERVER_BUSY, FaultKind.QUOTA_EXCEEDED, FaultKind.ENTITY_DISABLED])
async def test_section_6_a_destination_that_takes_nothing_costs_a_bounded_number_of_operations(
    kind: FaultKind,
) -> None:
    async with hosted("full") as both:
        await both.put_into_backlog("full", messages(*range(50)))
        struck = both.primary.set_fault(Fault(kind=kind, entity="full", on=(Operation.SEND,)))
        before = both.pair.meter.read()
        syphon = both.pair.syphon()
        running = asyncio.create_task(syphon.run())
        await asyncio.sleep(4.5)
        spent = both.pair.meter.read()
        [strikes] = [each.strikes for each in both.primary.faults if each.id == struck.id]
        # Rests of 1, 2 and 4 seconds: three tries of what is in hand, whose locks are kept for them, and two links
        # in the race for the first. Rests that do not grow would make five.
        assert strikes <= 4
        assert spent.receives - before.receives <= 50 + 50
        assert spent.empty_receives - before.empty_receives <= 20
        assert spent.management_calls == before.management_calls
        both.primary.clear_faults()
        watch = Watch()
        syphon._tell = watch
        async with asyncio.timeout(15):
            await watch.until(lambda report: report.moved_total == 50)
        syphon.stop()
        await running
        assert Counter(await both.ids("full")) == Counter(f"m{n}" for n in range(50))


async def test_section_6_only_what_the_service_did_not_confirm_of_a_run_is_a_possible_duplicate() -> None:
    async with hosted("flights", lock="PT5S") as both:
        await both.put_into_backlog("flights", messages(*range(12)))
        both.secondary.set_fault(Fault(kind=FaultKind.LOCK_LOST, on=(Operation.SETTLE,), count=1))
        async with asyncio.timeout(30):
            report = await both.pair.syphon().drain()
        copies = Counter(await both.ids("flights"))
        assert sum(copies.values()) - 12 == report.duplicates_possible == 1


async def test_sections_6_and_8_ten_idle_queues_cost_what_is_said_of_them_and_nothing_else() -> None:
    poll = timedelta(seconds=POLL)
    options = PairOptions(backlog_queue_count=QUEUES, syphon_long_poll=poll)
    async with hosted("flights", options=options) as both:
        before, loop = both.pair.meter.read(), asyncio.get_running_loop()
        syphon = both.pair.syphon()
        running = asyncio.create_task(syphon.run())
        began = loop.time()
        async with asyncio.timeout(60):
            while both.pair.meter.read().empty_receives < 4 * QUEUES:  # noqa: ASYNC110 - a meter tells nobody
                await asyncio.sleep(0.1)
        polls = (loop.time() - began) / POLL
        spent = both.pair.meter.read()
        syphon.stop()
        await running
        # One of each queue is not over yet; attaching anew takes what a poll of 15 minutes does not notice.
        assert 4 * QUEUES <= spent.empty_receives <= both.pair.cost(period=polls * poll).empty_receives
        assert spent.total - before.total == spent.empty_receives


@pytest.mark.parametrize("kind", [FaultKind.REFUSE, FaultKind.FREEZE])
async def test_section_6_the_secondary_goes_down_in_the_middle_and_what_it_holds_is_moved_when_it_is_back(
    kind: FaultKind,
) -> None:
    async with hosted("flights", lock="PT5S") as both:
        await both.put_into_backlog("flights", messages(*range(300)))
        syphon = both.pair.syphon(rate=60)
        watch = Watch()
        running = asyncio.create_task(syphon.run(progress=watch))
        await watch.until(lambda report: report.moved_total >= 60)
        both.secondary.set_fault(Fault(kind=kind))
        if kind is FaultKind.REFUSE:
            both.secondary.set_fault(Fault(kind=FaultKind.RESET, on=(Operation.RECEIVE, Operation.SETTLE)))
        await asyncio.sleep(4)
        both.secondary.clear_faults()
        syphon.rate = None
        async with asyncio.timeout(60):
            while both.secondary.namespace.counts(BACKLOG).active:  # noqa: ASYNC110 - a namespace tells nobody
                await asyncio.sleep(0.1)
        syphon.stop()
        report = await running
        copies = Counter(await both.ids("flights"))
        assert set(copies) == {f"m{n}" for n in range(300)}
        assert sum(copies.values()) - 300 <= report.duplicates_possible


@pytest.mark.slow
async def test_section_6_a_backlog_queue_deleted_under_a_drain_ends_it_with_a_failure_that_names_it() -> None:
    async with hosted("flights") as both:
        await both.put_into_backlog("flights", messages(*range(200)))
        deleted = asyncio.Event()

        def delete(report: DrainReport) -> None:
            if report.moved_total and not deleted.is_set():
                deleted.set()
                both.secondary.namespace.delete_queue(BACKLOG)

        async with asyncio.timeout(60):
            report = await both.pair.syphon(rate=100).drain(progress=delete)
        assert BACKLOG in report.failures
        assert not report.empty


async def test_section_6_a_filter_on_a_large_backlog_of_others_finds_its_own_and_keeps_nothing_of_them() -> None:
    async with hosted("flights", "delays") as both:
        for start in range(0, 3000, 500):
            await both.put_into_backlog("delays", messages(*range(start, start + 500), name="d"))
        await both.put_into_backlog("flights", messages(*range(20)))
        before = both.pair.meter.read()
        syphon = both.pair.syphon(entities=["flights"])
        async with asyncio.timeout(60):
            assert (await syphon.drain()).moved == {"flights": 20}
        spent = both.pair.meter.read()
        assert spent.management_calls - before.management_calls <= 200
        assert len(await both.ids_in_backlog()) == 3000


@pytest.mark.real_time
async def test_section_6_what_no_sender_of_ours_wrote_is_dead_lettered_by_its_reason_and_its_neighbours_arrive() -> (
    None
):
    strange = {
        "none": {},
        "number": {"x-ms-path": 7},
        "life": {"x-ms-path": "flights", "x-ms-timetolive": "soon"},
        "time": {"x-ms-path": "flights", "x-ms-scheduledenqueuetimeutc": "later"},
    }
    async with hosted("flights", unchecked=True) as both:
        for n, (name, properties) in enumerate(strange.items()):
            await both.put_into_backlog("flights", messages(n))
            bad = proton.Message(id=name, body="x", properties=properties)
            await asyncio.to_thread(put_raw, both.secondary, BACKLOG, bad)
        await both.put_into_backlog("flights", messages(len(strange)))
        report = await both.pair.syphon().drain()
        assert (report.moved, report.empty) == ({"flights": 5}, True)
        assert sum(report.dead_lettered.values()) == len(strange)
        assert await both.ids("flights") == [f"m{n}" for n in range(5)]
        assert Counter((await reasons(both)).values()) == Counter(report.dead_lettered)
        assert set(await reasons(both)) == set(strange)


async def test_section_6_a_dry_run_of_a_large_backlog_has_two_pages_in_memory_at_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    peek, alive, most_alive = ReceiveLink.peek, WeakSet[ServiceBusReceivedMessage](), 0

    async def noted(self: ReceiveLink, *, most: int, timeout: float, first: int = 1) -> list[ServiceBusReceivedMessage]:
        nonlocal most_alive
        page = await peek(self, most=most, timeout=timeout, first=first)
        alive.update(page)
        most_alive = max(most_alive, len(alive))
        return page

    async with hosted("flights") as both:
        for start in range(0, 2000, 500):
            await both.put_into_backlog("flights", messages(*range(start, start + 500)))
        monkeypatch.setattr(ReceiveLink, "peek", noted)
        survey = await both.pair.syphon().survey()
        assert survey.destinations["flights"].messages == 2000
        assert most_alive <= 2 * both.pair.options.syphon_batch_size


async def test_section_6_a_stop_while_completions_are_unanswered_is_bounded_and_counts_them() -> None:
    async with hosted("flights", lock="PT5S") as both:
        await both.put_into_backlog("flights", messages(*range(10)))
        both.secondary.set_fault(Fault(kind=FaultKind.NO_DISPOSITION, on=(Operation.SETTLE,)))
        syphon = both.pair.syphon()
        running = asyncio.create_task(syphon.run())
        async with asyncio.timeout(10):
            while not any(each.strikes for each in both.secondary.faults):  # noqa: ASYNC110 - a fault tells nobody
                await asyncio.sleep(0.01)
        syphon.stop()
        async with asyncio.timeout(6):
            report = await running
        assert (report.moved, report.duplicates_possible) == ({"flights": 10}, 10)
        both.secondary.clear_faults()
        async with asyncio.timeout(20):
            again = await both.pair.syphon().drain()
        assert again.moved == {"flights": 10}
