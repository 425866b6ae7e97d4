"""A pair in other processes, threads and event loops, and its reopening (SPEC sections 5 and 7)."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from servicebus_emulator import Fault, FaultKind
from servicebus_pair.core import Endpoint, NamespacePair, Operations, PairOptions, TimeToLive
from servicebus_pair.core.model.errors import ConfigurationError, PairClosedError
from servicebus_pair.core.model.events import Pinged
from servicebus_pair.core.model.health_state import EntityHealth
from servicebus_pair.core.model.interfaces import InMemoryHealthStore
from servicebus_pair.core.protocol.backlog_queues import backlog_queue_paths, session_queue_paths
from servicebus_pair.core.sdk.messages import to_amqp_message
from servicebus_pair.core.spool.drain import SpoolReport
from tests.core.support.local_pair import BACKLOG, LocalPair, numbered, open_quick_pair

FORKED = """
import asyncio, os
from servicebus_pair.core.model.errors import PairClosedError
from tests.core.support.local_pair import open_quick_pair, numbered

async def run_in_child(sender, pair):
    for call in (lambda: sender.send(numbered(1)), pair.close, lambda: sender.cancel_scheduled(1)):
        try:
            await call()
            print("worked", flush=True)
        except PairClosedError as error:
            print(error, flush=True)

async def main():
    async with open_quick_pair() as local_pair, local_pair.pair.sender("flights") as sender:
        await sender.send(numbered(1))
        child = os.fork()
        if child == 0:
            asyncio.run(run_in_child(sender, local_pair.pair))
            os._exit(0)
        await asyncio.to_thread(os.waitpid, child, 0)
        print("parent", (await sender.send(numbered(1))).primary, flush=True)

asyncio.run(main())
"""


async def test_forked_process_is_rejected_and_parent_keeps_working() -> None:
    command = (sys.executable, "-W", "ignore", "-c", FORKED)
    program = await asyncio.create_subprocess_exec(
        *command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[3], stderr=subprocess.PIPE
    )
    output, errors = await asyncio.wait_for(program.communicate(), 40)
    lines = output.decode().splitlines()
    assert len(lines) == 4, errors.decode()
    assert all("open a pair in each process, after the fork" in line for line in lines[:3])
    assert lines[3] == "parent 1"


async def test_sender_and_syphon_can_be_created_in_a_thread(local_pair: LocalPair) -> None:
    sender = await asyncio.to_thread(local_pair.pair.sender, "flights")
    syphon = await asyncio.to_thread(local_pair.pair.syphon)
    assert (await asyncio.to_thread(local_pair.pair.receiver, "flights")).entity == "flights"
    async with sender:
        assert (await sender.send(numbered(1))).primary == 1
    assert (await syphon.drain()).empty


async def test_a_syphon_in_another_loop_is_rejected(local_pair: LocalPair) -> None:
    syphon = local_pair.pair.syphon()
    for call in (syphon.drain, syphon.run, syphon.survey):
        with pytest.raises(PairClosedError, match="is used in another one"):
            await asyncio.to_thread(asyncio.run, _awaited(call))
    assert (await syphon.drain()).empty


async def test_use_in_another_loop_is_rejected_and_is_no_outage() -> None:
    unhurried = timedelta(seconds=20)
    async with open_quick_pair(failover_interval=unhurried) as local_pair, local_pair.pair.sender("flights") as sender:
        calls: tuple[Callable[[], Awaitable[object]], ...] = (
            lambda: sender.send(numbered(1)),
            lambda: sender.cancel_scheduled(1),
            sender.__aenter__,
            local_pair.pair.close,
            lambda: local_pair.pair.ping("flights"),
            lambda: local_pair.pair.fail_over("flights", reason="test"),
            lambda: local_pair.pair.mark_healthy("flights"),
        )
        for call in calls:
            with pytest.raises(PairClosedError, match="is used in another one"):
                await asyncio.to_thread(asyncio.run, _awaited(call))
        assert (await sender.send(numbered(1))).primary == 1
    assert local_pair.recorder.states == []


async def _awaited(call: Callable[[], Awaitable[object]]) -> object:
    return await call()


async def test_pair_cannot_be_opened_twice(local_pair: LocalPair) -> None:
    with pytest.raises(ConfigurationError, match="open already"):
        await local_pair.pair.__aenter__()


async def test_reopened_pair_pings_failed_over_entity(
    local_pair: LocalPair,
) -> None:
    await local_pair.pair.fail_over("flights", reason="test")
    await local_pair.pair.close()
    async with local_pair.pair:
        await asyncio.wait_for(local_pair.recorder.recovered.wait(), 5)
    assert [ping.succeeded for ping in local_pair.recorder.of(Pinged)] == [True]


async def test_a_secret_in_the_reason_of_a_manual_change_is_masked_wherever_it_is_recorded(
    local_pair: LocalPair,
) -> None:
    secret = "SharedAccessKey=own"
    await local_pair.pair.fail_over("flights", reason=f"with {secret}", by=secret)
    failed_over = local_pair.pair.health("flights")
    await local_pair.pair.mark_healthy("flights", reason=f"with {secret}", by=secret)
    healthy = local_pair.pair.health("flights")
    assert [(each.reason, each.by.partition("=")[2]) for each in (failed_over, healthy)] == [
        ("with SharedAccessKey=***", "***")
    ] * 2


async def test_cancelled_close_disconnects(local_pair: LocalPair) -> None:
    async with local_pair.pair.sender("flights") as sender:
        await sender.send(numbered(1))
        local_pair.primary.set_fault(Fault(kind=FaultKind.LATE_DISPOSITION, delay=1))
        shared = local_pair.pair._open()
        sending = asyncio.create_task(sender.send(numbered(1, start=1)))
        await asyncio.sleep(0.1)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(local_pair.pair.close(), 0.2)
        assert shared.primary.is_closed
        assert shared.secondary.is_closed
        await asyncio.gather(sending, return_exceptions=True)


async def test_close_cancelled_at_any_moment_and_called_again_leaves_no_socket(local_pair: LocalPair) -> None:
    """Also when it is cancelled twice, as by a time-out in a task that is cancelled."""
    pair = local_pair.pair
    await pair.close()
    for delay in range(12):
        for cancels in (1, 2):
            await pair.__aenter__()
            async with pair.sender("flights") as sender:
                await sender.send(numbered(1))
                await pair.fail_over("flights", reason="test")
                await sender.send(numbered(1))
                await pair.mark_healthy("flights")
            closing = asyncio.create_task(pair.close())
            for _ in range(cancels):
                for _ in range(delay):
                    await asyncio.sleep(0)
                closing.cancel()
            await asyncio.wait({closing})
            await pair.close()
            await until_disconnected(local_pair)


async def until_disconnected(local_pair: LocalPair) -> None:
    brokers = [namespace._broker for namespace in (local_pair.primary, local_pair.secondary)]
    async with asyncio.timeout(5):
        while any(broker.connection_count for broker in brokers):  # noqa: ASYNC110 - connections have no event
            await asyncio.sleep(0.01)


def closed_pair(**options: Any) -> NamespacePair:
    one, two = (
        Endpoint.from_connection_string(f"Endpoint=sb://{name}.example/;SharedAccessKeyName=n;SharedAccessKey=k")
        for name in ("contoso", "contoso-dr")
    )
    return NamespacePair(one, two, PairOptions(**options))


def test_section_8_cost_plans_polls_pings_and_messages() -> None:
    pair = closed_pair(backlog_queue_count=2, ping_primary_interval=timedelta(minutes=2))
    assert pair.cost() == Operations(empty_receives=2 * 30 * 96)
    planned = pair.cost(period=timedelta(hours=1), messages=3, size_bytes=65_537, outage=timedelta(minutes=10))
    assert planned == Operations(
        empty_receives=8, pings=5, diverts=3, receives=6, sends=3, settlements=6, further_increments=12
    )
    assert pair.cost(period=timedelta(0), messages=1) == Operations(diverts=1, receives=2, sends=1, settlements=2)


def test_section_8_session_queues_are_polled_as_well() -> None:
    assert closed_pair(ordering="session").cost() == Operations(empty_receives=2 * 28_800)


async def test_section_6_session_queues_are_counted_with_the_others() -> None:
    async with open_quick_pair(ordering="session") as made:
        [used, *_] = sessions = session_queue_paths("contoso", 3)
        link = made.pair._open().secondary.send_link(used)
        await link.send_ping(to_amqp_message(ServiceBusMessage("x", session_id="flights")), timeout=5)
        depths = {depth.path: depth.active for depth in await made.pair.backlog_depths()}
        assert depths == dict.fromkeys((*backlog_queue_paths("contoso", 3), *sessions), 0) | {used: 1}
        assert await made.pair._count_messages([used.upper(), BACKLOG]) == 1
        assert await made.pair._count_messages([BACKLOG]) == 0
        assert [await made.pair.waiting_sessions(queue) for queue in sessions] == [["flights"], [], []]


async def test_a_pair_that_is_not_open_rejects_calls_and_can_be_closed() -> None:
    pair = closed_pair()
    for call in (lambda: pair.sender("flights"), pair.syphon):
        with pytest.raises(PairClosedError, match="the pair is not open"):
            call()
    for other in ("orders", "tasks"):
        with pytest.raises(ConfigurationError, match=f"'{other}' is not a backlog queue"):
            pair.syphon(["Contoso/x-servicebus-transfer/0", "spool", other])
    await pair.close()


@pytest.mark.parametrize(
    "path", ["a\n2026-11-23 CRITICAL forged", "a\x1b[31m", "a\u202eb", "a\x85b", "a\x00"], ids=ascii
)
async def test_a_path_that_would_forge_lines_of_logs_is_refused_before_anything_is_done(
    local_pair: LocalPair, path: str
) -> None:
    pair = local_pair.pair
    calls: list[Callable[[], Any]] = [
        lambda: pair.sender(path),
        lambda: pair.receiver(path),
        lambda: pair.syphon(entities=["flights", path]),
        lambda: pair.syphon([f"contoso/x-servicebus-transfer/{path}"]),
        lambda: pair.ping(path),
        lambda: pair.fail_over(path, reason="test"),
        lambda: pair.mark_healthy(path),
        lambda: pair.drill(path),
        lambda: pair.waiting_sessions(path),
    ]
    for call in calls:
        with pytest.raises(ConfigurationError, match="entity is '") as caught:
            await call()
        assert str(caught.value).isprintable()
    assert pair._registry.entities() == {}


async def test_no_task_has_the_name_of_an_entity_which_asyncio_would_log(local_pair: LocalPair) -> None:
    async with local_pair.pair.receiver("flights"):
        saving = asyncio.create_task(local_pair.pair.fail_over("flights", reason="test"), name="caller")
        names = set()
        while not saving.done():
            names |= {task.get_name() for task in asyncio.all_tasks()}
            await asyncio.sleep(0)
    assert {"caller", "keep locks", "ping an entity", "share health"} <= names
    assert not [name for name in names if "flights" in name]


async def test_section_6_ordering_by_session_applies_to_sends_pings_and_syphons() -> None:
    for ordering in ("none", "session"):
        async with closed_pair(ordering=ordering) as pair:
            shared = pair._open()
            ordered = ordering == "session"
            assert (shared.order is not None, pair.syphon()._context.ordered) == (ordered, ordered)
            assert shared.prober._order is shared.order


async def test_a_syphon_has_the_options_of_its_pair(local_pair: LocalPair) -> None:
    context = local_pair.pair.syphon(
        entities=["Flights"], rate=5, redrive=True, time_to_live=TimeToLive.ELAPSE
    )._context
    assert (context.max_batch_messages, context.rate_limiter.rate, context.redrive) == (500, 5, True)
    assert context.max_batch_bytes == 64 * 2**20 // 8
    assert context.selection.matches("flights")
    assert not context.selection.matches("delays")
    assert (context.ordered, context.time_to_live) == (False, TimeToLive.ELAPSE)
    default = local_pair.pair.syphon()
    assert (default._context.redrive, default.rate, default._queues) == (False, None, local_pair.pair._queues)
    assert default._context.time_to_live is TimeToLive.RESTART
    assert (default._initial_delay, default._long_poll) == (1.0, 900.0)


@pytest.mark.parametrize("ordering", ["none", "session"])
async def test_section_3_a_pair_plans_creates_and_cleans_up_its_own_queues(ordering: str) -> None:
    async with open_quick_pair(ordering=ordering) as made:
        queues = [*backlog_queue_paths("contoso", 3)]
        if ordering == "session":
            queues += session_queue_paths("contoso", 3)
        assert ((await made.pair.plan()).create, await made.pair.plan_cleanup()) == ((), ())
        assert sorted(await made.pair.plan_cleanup(everything=True)) == sorted(queues)
        assert await made.pair.plan_cleanup(everything=True, only=[BACKLOG]) == (BACKLOG,)
        await made.put_into_backlog("flights", numbered(1))
        kept = await made.pair.cleanup(everything=True, only=[BACKLOG])
        assert (kept.deleted, set(kept.kept)) == ((), {BACKLOG})
        assert (await made.pair.cleanup(everything=True, force=True, only=[BACKLOG])).deleted == (BACKLOG,)
        assert (await made.pair.plan()).create == (BACKLOG,)
        assert (await made.pair.provision()).created == (BACKLOG,)
        assert sorted((await made.pair.cleanup(everything=True)).deleted) == sorted(queues)


async def test_a_receiver_is_of_the_primary_and_pings_as_often_as_its_pair(local_pair: LocalPair) -> None:
    async with local_pair.pair.sender("flights") as sender:
        await sender.send(numbered(1))
    async with local_pair.pair.receiver("flights") as receiver:
        [taken] = await receiver.receive()
        assert (taken.fields["message_id"], await receiver.complete([taken])) == ("m0", 0)
        assert receiver._context.ping_interval == local_pair.pair.options.ping_primary_interval.total_seconds()
    by_session = local_pair.pair.receiver("flights", session_id="a")
    dead = local_pair.pair.receiver("flights", dead_letter=True)
    assert (by_session._session_id, dead._session_id) == ("a", None)
    assert (by_session._dead_letter, dead._dead_letter) == (False, True)


async def test_section_10_without_a_spool_nothing_is_spooled_and_nothing_is_emptied(local_pair: LocalPair) -> None:
    assert (await local_pair.pair.spooled(), await local_pair.pair.empty_spool()) == ({}, SpoolReport())
    assert local_pair.pair.syphon()._spool is None


@pytest.mark.simulated
async def test_section_10_the_spool_of_a_pair_has_a_name_once_something_is_in_it(tmp_path: Path) -> None:
    async with open_quick_pair(spool=str(tmp_path)) as both:
        assert await both.pair.spool_name() is None
        assert (await both.pair.drill("flights", messages=1, both=True)).passed
        assert str(tmp_path) in (await both.pair.spool_name() or "")
    assert await closed_pair().spool_name() is None


async def test_section_10_in_session_order_a_spool_needs_a_shared_store(tmp_path: Path) -> None:
    async with open_quick_pair(spool=str(tmp_path), ordering="session") as both:
        for call in (both.pair.empty_spool, lambda: both.pair.drill("flights", both=True)):
            with pytest.raises(ConfigurationError, match="both options together need a store of shared health"):
                await call()


class RefusingStore(InMemoryHealthStore):
    """A store that takes nothing."""

    async def save(self, entity: str, health: EntityHealth) -> None:
        raise OSError(f"read only: {entity} {health}")


async def test_section_6_in_session_order_a_failover_that_no_store_takes_has_no_effect(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with open_quick_pair(store=RefusingStore(), ordering="session") as both:
        assert not await both.pair.fail_over("flights", reason="test")
        assert not both.pair.health("flights").failed_over
    assert "entity=flights: its health was not changed" in caplog.text


@pytest.mark.simulated
async def test_closing_says_how_many_sends_it_did_not_wait_for(caplog: pytest.LogCaptureFixture) -> None:
    async with open_quick_pair(close_grace=timedelta(seconds=0.5)) as both, both.pair.sender("flights") as sender:
        both.primary.set_fault(Fault(kind=FaultKind.FREEZE))
        sending = asyncio.create_task(sender.send(numbered(1)))
        await asyncio.sleep(0)
        await both.pair.close()
        await asyncio.gather(sending, return_exceptions=True)
    assert "closing: sends in flight=1 did not finish in 0.5s" in caplog.text


async def test_an_error_of_closing_is_raised_and_leaves_no_socket(
    local_pair: LocalPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared, close = local_pair.pair._open(), local_pair.pair._registry.close

    async def fail() -> None:
        await close()
        raise RuntimeError("planted")

    monkeypatch.setattr(local_pair.pair._registry, "close", fail)
    with pytest.raises(RuntimeError, match="planted"):
        await local_pair.pair.close()
    assert shared.primary.is_closed
    assert shared.secondary.is_closed
