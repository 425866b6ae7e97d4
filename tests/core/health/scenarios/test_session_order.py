"""``ordering="session"``: no inversion within a session, whatever breaks in between (SPEC section 6)."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import replace
from datetime import timedelta

import pytest
from azure.servicebus import ServiceBusMessage

from servicebus_emulator import Fault, FaultKind
from servicebus_pair.core import NamespacePair, PairOptions
from servicebus_pair.core.health import session_ordering as ordering
from servicebus_pair.core.model.errors import SendError
from tests.core.support.local_pair import LocalPair, open_local_pair
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
