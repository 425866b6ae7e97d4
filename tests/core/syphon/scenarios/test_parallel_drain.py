"""A drain to a distant primary sends batches in parallel (SPEC section 6)."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from servicebus_emulator import Fault, FaultKind, Operation
from servicebus_pair.core import PairOptions
from servicebus_pair.core.protocol.backlog_queues import backlog_queue_paths
from tests.core.support.local_pair import messages, numbered, open_local_pair

pytestmark = pytest.mark.simulated

QUEUES = 3


@pytest.mark.parametrize("ordering", ["none", "session"])
async def test_section_6_batches_without_sessions_to_one_destination_are_sent_in_parallel(
    ordering: str, sdk_path: str
) -> None:
    decodes = sdk_path != "fast"
    options = PairOptions(backlog_queue_count=QUEUES, ordering=ordering)
    async with open_local_pair("flights", options=options) as local_pair:
        for number, queue in enumerate(backlog_queue_paths("contoso", QUEUES)):
            await local_pair.put_into_backlog("flights", messages(*range(16), name=f"q{number}-"), queue=queue)
        local_pair.primary.set_fault(
            Fault(kind=FaultKind.LATE_DISPOSITION, entity="flights", on=(Operation.SEND,), delay=1.0)
        )
        clock = asyncio.get_running_loop().time
        started = clock()
        report = await local_pair.pair.syphon().drain()
        assert decodes or clock() - started < 2.5  # one after another would take 3 s
        assert (report.moved, report.duplicates_possible) == ({"flights": QUEUES * 16}, 0)
        primary = local_pair.pair._open().primary
        assert {link for path, link in primary._send_links if path == "flights"} == ({0, 1, 2} if decodes else set())
        assert list(primary._relay_links) == ([] if decodes else ["flights"])
        assert set(Counter(await local_pair.primary_ids("flights")).values()) == {1}


@pytest.mark.parametrize(
    ("queues", "count", "round_trips", "delay"),
    [(10, 80, 17, 0.02), (10, 340, 17, 0.02), (10, 1340, 21, 0.02), (10, 1340, 21, 0.14), (1, 1340, 21, 0.02)],
)
async def test_section_6_a_batch_takes_two_round_trips_and_queues_share_them(
    queues: int, count: int, round_trips: int, delay: float, sdk_path: str
) -> None:
    """Sending a batch is one, in which the next one arrives; confirming the completions is the other.

    A round trip may take longer than the silence of 0.1 s after which what has arrived is sent. The second link to a
    queue alone takes none away that the first one would wait for.
    """
    if sdk_path != "fast":
        pytest.skip("the public interface of the SDK waits in between")
    options = PairOptions(backlog_queue_count=queues)
    async with open_local_pair("flights", options=options) as local_pair:
        for queue in backlog_queue_paths("contoso", queues):
            await local_pair.put_into_backlog("flights", numbered(count), queue=queue)
        for namespace in (local_pair.primary, local_pair.secondary):
            namespace.set_fault(Fault(kind=FaultKind.LATENCY, delay=delay))
        clock = asyncio.get_running_loop().time
        started = clock()
        report = await local_pair.pair.syphon().drain()
        assert (report.moved_total, report.duplicates_possible, report.left) == (queues * count, 0, 0)
        assert round((clock() - started - 0.1) / delay) == round_trips
