"""A drain to a distant primary sends batches in parallel (SPEC section 6)."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from servicebus_emulator import Fault, FaultKind, Operation
from servicebus_pair.core import PairOptions
from servicebus_pair.core.protocol.backlog_queues import backlog_queue_paths
from tests.core.support.local_pair import messages, open_local_pair

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
