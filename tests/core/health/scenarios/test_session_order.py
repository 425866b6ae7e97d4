"""``ordering="session"``: no inversion within a session, whatever breaks in between (SPEC section 6)."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import replace
from datetime import timedelta
from random import Random

import pytest
from azure.servicebus import ServiceBusMessage

from servicebus_emulator import Fault, FaultKind, Operation
from servicebus_pair.core import NamespacePair, PairOptions
from servicebus_pair.core.health import session_ordering as ordering
from servicebus_pair.core.model.errors import SendError
from servicebus_pair.core.model.interfaces import InMemoryHealthStore
from tests.core.support.local_pair import LocalPair, endpoint, open_local_pair
from tests.core.support.queues import peek_all

pytestmark = pytest.mark.simulated

OPTIONS = PairOptions(
    ordering="session",
    backlog_queue_count=3,
    failover_interval=timedelta(seconds=0.5),
    ping_primary_interval=timedelta(seconds=1),
    ping_timeout=timedelta(seconds=2),
    server_busy_delay=timedelta(seconds=0.2),
)


def numbered(session: str, *numbers: int) -> list[ServiceBusMessage]:
    return [ServiceBusMessage(f"{n}", message_id=f"{session}/{n}", session_id=session) for n in numbers]


async def arrived(both: LocalPair) -> dict[str, list[int]]:
    """The numbers of each session in the order in which the primary has them, first arrivals only."""
    sessions: dict[str, dict[int, None]] = defaultdict(dict)
    for message in await peek_all(both.primary.connection_string, "flights"):
        session, _, number = (message.message_id or "").rpartition("/")
        sessions[session].setdefault(int(number))
    return {session: list(numbers) for session, numbers in sessions.items()}


async def failed_back(pair: NamespacePair) -> None:
    """Ping until the entity is failed back; the pair's own pings may be doing that at this moment."""
    async with asyncio.timeout(20):
        while not await pair.ping("flights"):  # noqa: ASYNC110 - time must pass between two
            await asyncio.sleep(0.1)


async def test_an_entity_fails_back_only_when_its_backlog_is_empty() -> None:
    # The pair's own pings would compete with those of the test.
    options = replace(OPTIONS, ping_primary_interval=timedelta(minutes=5))
    async with open_local_pair("flights", options=options) as both, both.pair.sender("flights") as sender:
        await both.pair.fail_over("flights", reason="test")
        await sender.send(numbered("a", 1, 2, 3))
        assert not await both.pair.ping("flights")
        assert both.pair.health("flights").failed_over
        assert (await sender.send(numbered("a", 4))).diverted == 1
        assert (await both.pair.syphon().drain()).moved == {"flights": 4}
        await failed_back(both.pair)
        assert (await sender.send(numbered("a", 5))).primary == 1
        assert await arrived(both) == {"a": [1, 2, 3, 4, 5]}


async def test_with_a_silent_secondary_nothing_fails_back_and_calls_time_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ordering, "_CALL_TIMEOUT", 2.0)
    async with open_local_pair("flights", options=OPTIONS) as both, both.pair.sender("flights") as sender:
        await both.pair.fail_over("flights", reason="test")
        await sender.send(numbered("a", 1, 2))
        both.secondary.set_fault(Fault(kind=FaultKind.FREEZE))
        async with asyncio.timeout(6):
            assert not await both.pair.ping("flights")
        assert both.pair.health("flights").failed_over
        async with asyncio.timeout(6):
            with pytest.raises(SendError) as caught:
                await sender.send(numbered("a", 3), timeout=3)
        assert [each.message_id for each in caught.value.unsent] == ["a/3"]
        assert await arrived(both) == {}
        both.secondary.clear_faults()
        await sender.send(caught.value.unsent)
        assert (await both.pair.syphon().drain()).moved_total >= 3
        await failed_back(both.pair)
        assert (await sender.send(numbered("a", 4))).primary == 1
        assert await arrived(both) == {"a": [1, 2, 3, 4]}


async def test_a_process_that_cannot_read_the_backlog_does_not_overtake_it() -> None:
    async with open_local_pair("flights", options=OPTIONS) as both:
        await both.pair.fail_over("flights", reason="test")
        async with both.pair.sender("flights") as sender:
            await sender.send(numbered("a", 1, 2))
        both.secondary.set_fault(Fault(kind=FaultKind.REFUSE))
        ends = endpoint(both.primary), endpoint(both.secondary)
        async with NamespacePair(*ends, OPTIONS) as successor, successor.sender("flights") as sender:
            with pytest.raises(SendError) as caught:
                await sender.send(numbered("a", 3), timeout=3)
            assert await arrived(both) == {}
            both.secondary.clear_faults()
            assert (await successor.syphon().drain()).moved == {"flights": 2}
            await failed_back(successor)
            await sender.send(caught.value.unsent)
            assert await arrived(both) == {"a": [1, 2, 3]}


def another_process(both: LocalPair, store: InMemoryHealthStore | None = None) -> NamespacePair:
    return NamespacePair(endpoint(both.primary), endpoint(both.secondary), OPTIONS, store=store)


@pytest.mark.slow
@pytest.mark.real_time
async def test_random_outages_and_drains_keep_the_order_of_each_session() -> None:
    """Three senders of their own sessions, an outage every second, two syphons in the race for every queue."""
    random = Random(4)  # noqa: S311 - a plan that can be repeated
    ended = asyncio.Event()

    async def send(pair: NamespacePair, sessions: str) -> dict[str, int]:
        sent = dict.fromkeys(sessions, 0)
        async with pair.sender("flights") as sender:
            while not ended.is_set():
                session, size = random.choice(sessions), random.randint(1, 20)
                unsent = numbered(session, *range(sent[session], sent[session] + size))
                while unsent:
                    try:
                        await sender.send(unsent)
                        unsent = []
                    except SendError as error:
                        unsent = list(error.unsent)
                sent[session] += size
                await asyncio.sleep(random.uniform(0, 0.03))
        return sent

    async def break_things(both: LocalPair) -> None:
        while not ended.is_set():
            await asyncio.sleep(random.uniform(0.3, 1.2))
            kind = random.choice([FaultKind.INTERNAL_ERROR, FaultKind.RESET, FaultKind.NO_DISPOSITION])
            both.primary.set_fault(Fault(kind=kind, on=(Operation.SEND,), duration=random.uniform(0.3, 1.5)))
            if random.random() < 0.5:
                both.secondary.set_fault(Fault(kind=FaultKind.LOCK_LOST, count=3))

    async with open_local_pair("flights", options=OPTIONS, lock="PT5S") as both:
        pair, other = both.pair, another_process(both)
        async with other:
            syphons = [pair.syphon(), other.syphon()]
            moving = [asyncio.create_task(syphon.run()) for syphon in syphons]
            breaking = asyncio.create_task(break_things(both))
            plan = [(pair, "abc"), (pair, "de"), (other, "fgh")]
            sending = [asyncio.create_task(send(each, sessions)) for each, sessions in plan]
            await asyncio.sleep(12)
            ended.set()
            await breaking
            both.primary.clear_faults()
            both.secondary.clear_faults()
            sent = [await each for each in sending]
            for syphon in syphons:
                syphon.stop()
            moved = sum([(await each).moved_total for each in moving])
            moved += (await pair.syphon().drain()).moved_total
        found = await arrived(both)
        expected = {session: list(range(count)) for part in sent for session, count in part.items() if count}
        assert {session: sorted(numbers) for session, numbers in found.items()} == expected
        assert found == expected
        assert moved > 0
