"""Backoff of failing destinations during a drain (SPEC section 6)."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from servicebus_emulator import Fault, FaultKind, Operation
from tests.core.support.drain_progress import ProgressWaiter
from tests.core.support.local_pair import messages, open_local_pair

pytestmark = pytest.mark.simulated


@pytest.mark.parametrize(
    "kind", [FaultKind.SERVER_BUSY, FaultKind.QUOTA_EXCEEDED, FaultKind.ENTITY_DISABLED, FaultKind.INTERNAL_ERROR]
)
async def test_section_6_a_failing_destination_does_not_delay_the_others(kind: FaultKind) -> None:
    async with open_local_pair("full", "flights") as local_pair:
        await local_pair.put_into_backlog("full", messages(*range(300), name="f"))
        await local_pair.put_into_backlog("flights", messages(*range(50)))
        local_pair.primary.set_fault(Fault(kind=kind, entity="full", on=(Operation.SEND,)))
        syphon = local_pair.pair.syphon()
        watch = ProgressWaiter()
        draining = asyncio.create_task(syphon.drain(progress=watch))
        await watch.until(lambda report: report.moved.get("flights", 0) == 50)
        assert "full" in syphon.report().failures
        assert syphon.report().dead_lettered == {}
        local_pair.primary.clear_faults()
        report = await draining
        assert report.moved == {"full": 300, "flights": 50}
        assert report.empty
        assert Counter(await local_pair.primary_ids("full")) == Counter(f"f{n}" for n in range(300))
