"""A drain of the backlog queues that require sessions: order, shares, ends (SPEC section 6)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from servicebus_pair.core import NamespacePair, PairOptions
from servicebus_pair.core.model.errors import EntityNotFoundError
from servicebus_pair.core.syphon import drain_run
from tests.core.support.drain_progress import ProgressWaiter
from tests.core.support.local_pair import endpoint, messages, open_local_pair
from tests.core.support.queues import peek_all
from tests.core.support.sessions import OPTIONS, QUEUES, arrivals, in_order, session_messages

pytestmark = pytest.mark.simulated


async def test_section_6_sessions_arrive_in_order_and_whole() -> None:
    async with open_local_pair("flights", "delays", options=OPTIONS) as local_pair:
        for entity in ("flights", "delays"):
            await local_pair.put_into_sessions(entity, session_messages(60, *"abcd"))
        await local_pair.put_into_backlog("flights", messages(1, 2, 3, name="plain/"))
        report = await local_pair.pair.syphon().drain()
        assert (report.moved, report.left, report.failures) == ({"flights": 243, "delays": 240}, 0, {})
        assert await arrivals(local_pair) == in_order(60, *"abcd") | {"plain": [1, 2, 3]}
        assert await arrivals(local_pair, "delays") == in_order(60, *"abcd")
        [first, *_] = await peek_all(local_pair.primary.connection_string, "delays")
        assert first.session_id == (first.message_id or "").partition("/")[0]


@pytest.mark.parametrize("position", [0, 20, 39])
async def test_section_6_a_message_that_can_never_be_delivered_is_dead_lettered_and_its_session_goes_on(
    position: int,
) -> None:
    async with open_local_pair("flights", options=OPTIONS) as local_pair:
        sent = session_messages(40, "a")
        await local_pair.put_into_sessions("flights", sent[:position])
        queue = next((queue for queue in QUEUES if local_pair.secondary.namespace.counts(queue).active), QUEUES[0])
        notes = '{"properties":{"a":["DECIMAL128",""]}}'
        own: dict[str | bytes, Any] = {"x-ms-path": "flights", "x-servicebus-pair-types": notes, "a": 5}
        bad = ServiceBusMessage("x", message_id="bad", session_id="flights", application_properties=own)
        await local_pair.put_raw_into_backlog([bad], queue=queue)
        await local_pair.put_into_sessions("flights", sent[position:])
        report = await local_pair.pair.syphon().drain()
        assert (report.moved, report.dead_lettered, report.left) == ({"flights": 40}, {"Unreadable": 1}, 0)
        assert await arrivals(local_pair) == in_order(40, "a")


async def test_section_6_two_syphons_share_the_sessions_and_keep_their_order() -> None:
    async with open_local_pair("flights", "delays", options=OPTIONS) as local_pair:
        for entity in ("flights", "delays"):
            await local_pair.put_into_sessions(entity, session_messages(200, *"abcd"))
        ends = endpoint(local_pair.primary), endpoint(local_pair.secondary)
        async with NamespacePair(*ends, OPTIONS) as other:
            reports = await asyncio.gather(local_pair.pair.syphon().drain(), other.syphon().drain())
        assert sum(report.moved_total for report in reports) == 1600
        assert [report.left for report in reports] == [0, 0]
        for entity in ("flights", "delays"):
            assert await arrivals(local_pair, entity) == in_order(200, *"abcd")


async def test_section_6_pause_stop_and_rate_hold_for_sessions() -> None:
    async with open_local_pair("flights", options=OPTIONS) as local_pair:
        await local_pair.put_into_sessions("flights", session_messages(100, "a", "b"))
        loop = asyncio.get_running_loop()
        syphon, watch = local_pair.pair.syphon(rate=10), ProgressWaiter()
        started = loop.time()
        running = asyncio.create_task(syphon.run(progress=watch))
        await watch.until(lambda report: report.moved_total >= 50)
        assert loop.time() - started == pytest.approx(5, abs=2)
        syphon.pause()
        await asyncio.sleep(2)
        moved = syphon.report().moved_total
        await asyncio.sleep(30)
        assert syphon.report().moved_total == moved
        assert (await syphon.progress()).remaining == 200 - moved
        syphon.rate = None
        syphon.resume()
        await watch.until(lambda report: report.moved_total == 200)
        started = loop.time()
        syphon.stop()
        await running
        assert loop.time() - started < 6
        assert await arrivals(local_pair) == in_order(100, "a", "b")


@pytest.mark.fast_sdk
async def test_section_6_an_idle_continuous_syphon_waits_without_further_operations() -> None:
    options = PairOptions(backlog_queue_count=2, ordering="session", syphon_long_poll=timedelta(seconds=60))
    async with open_local_pair("flights", options=options) as local_pair:
        before = local_pair.pair.meter.read()
        syphon, watch = local_pair.pair.syphon(), ProgressWaiter()
        running = asyncio.create_task(syphon.run(progress=watch))
        await asyncio.sleep(605)
        spent = local_pair.pair.meter.read()
        assert (
            36
            <= spent.empty_receives - before.empty_receives
            <= local_pair.pair.cost(period=timedelta(seconds=605)).empty_receives
        )
        assert spent.total - before.total == spent.empty_receives - before.empty_receives
        await local_pair.put_into_sessions("flights", session_messages(3, "a"))
        async with asyncio.timeout(5):
            await watch.until(lambda report: report.moved_total == 3)
        syphon.stop()
        await running


async def test_section_6_a_survey_counts_sessions_and_what_other_syphons_hold() -> None:
    async with open_local_pair("flights", options=replace(OPTIONS, syphon_batch_size=100)) as local_pair:
        await local_pair.put_into_sessions("flights", session_messages(200, "a", "b", "c"))
        await local_pair.put_into_sessions("delays", session_messages(30, "a", "b", "c"))
        await local_pair.put_into_backlog("flights", messages(1))
        counted = {"flights": 601, "delays": 90}
        syphon = local_pair.pair.syphon()
        survey = await syphon.survey()
        assert ({name: each.messages for name, each in survey.destinations.items()}, survey.locked) == (counted, 0)
        ends = endpoint(local_pair.primary), endpoint(local_pair.secondary)
        async with NamespacePair(*ends, OPTIONS) as other:
            held = other._open().secondary.session_link(QUEUES[0], wait=1.0, session_id="flights")
            assert await held.accept(timeout=5) == "flights"
            part = await syphon.survey()
            assert 0 < part.locked == counted["flights"] - part.destinations["flights"].messages
            selected = await local_pair.pair.syphon(entities=["delays", "flights"]).survey()
            assert selected.destinations == part.destinations
        first = await syphon.survey(first_page=True)
        assert 0 < first.messages <= 2 * 200
        assert (await syphon.drain(progress=None)).moved == {"flights": 601}


async def test_section_6_a_large_session_gives_way_to_others_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drain_run, "_MAX_SESSIONS", 1)
    options = PairOptions(backlog_queue_count=1, ordering="session")
    async with open_local_pair("flights", "delays", options=options) as local_pair:
        for start in range(0, 1200, 200):
            await local_pair.put_into_sessions("flights", session_messages(200, "a", start=start))
        await local_pair.put_into_sessions("delays", session_messages(10, "a"))
        syphon, watch = local_pair.pair.syphon(rate=10), ProgressWaiter()
        running = asyncio.create_task(syphon.run(progress=watch))
        async with asyncio.timeout(75):
            await watch.until(lambda report: report.moved.get("delays") == 10)
        assert syphon.report().moved["flights"] < 1000
        syphon.rate = None
        await watch.until(lambda report: report.moved_total == 1210)
        syphon.stop()
        await running
        assert await arrivals(local_pair) == in_order(1200, "a")


async def test_section_6_without_session_queues_the_other_backlog_is_drained_and_they_are_named() -> None:
    async with open_local_pair("flights", options=OPTIONS) as local_pair:
        for queue in QUEUES:
            local_pair.secondary.namespace.delete_queue(queue)
        with pytest.raises(EntityNotFoundError, match="create the backlog with provision"):
            await local_pair.pair.syphon().drain()
        await local_pair.put_into_backlog("flights", session_messages(30, "a", "b"))
        report = await local_pair.pair.syphon().drain()
        assert (report.moved, set(report.failures)) == ({"flights": 60}, set(QUEUES))
        assert await arrivals(local_pair) == in_order(30, "a", "b")
