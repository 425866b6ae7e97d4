"""With session order, an attempt starts and ends within a lease (SPEC section 6)."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from servicebus_emulator import Fault, FaultKind
from servicebus_pair.core import PairOptions
from servicebus_pair.core.model.errors import HealthStoreError, SendError, SendTimeoutError
from servicebus_pair.core.model.interfaces import InMemoryHealthStore
from tests.core.support.local_pair import open_local_pair

pytestmark = pytest.mark.simulated

OPTIONS = PairOptions(
    ordering="session",
    backlog_queue_count=2,
    failover_interval=timedelta(seconds=20),
    ping_primary_interval=timedelta(seconds=3),
    health_refresh=timedelta(seconds=2),
)


@pytest.mark.parametrize("failed_over", [False, True])
async def test_section_6_slow_confirmations_outlast_a_lease_that_is_renewed(failed_over: bool) -> None:
    async with open_local_pair("flights", options=OPTIONS, store=InMemoryHealthStore()) as both:
        async with both.pair.sender("flights") as sender:
            await sender.send(in_session(0))
            if failed_over:
                await both.pair.fail_over("flights", reason="test", hold=timedelta(minutes=5))
            for side in (both.primary, both.secondary):
                side.set_fault(Fault(kind=FaultKind.LATE_DISPOSITION, delay=4.0))
            result = await sender.send(in_session(1))
        assert (result.diverted, result.primary) == ((1, 0) if failed_over else (0, 1))
        assert result.duplicates_possible_ids == ()


def in_session(*numbers: int) -> list[ServiceBusMessage]:
    return [ServiceBusMessage("x", message_id=f"m{number}", session_id="a") for number in numbers]


class BrokenStore(InMemoryHealthStore):
    """A store that can be read until it breaks."""

    broken = False

    async def load(self, entity: str) -> Any:
        if self.broken:
            raise OSError("the store is gone")
        return await super().load(entity)


async def test_section_6_a_store_that_cannot_be_read_stops_sends_with_an_error() -> None:
    store = BrokenStore()
    async with open_local_pair("flights", options=OPTIONS, store=store) as both, both.pair.sender("flights") as sender:
        await sender.send(in_session(0))
        store.broken = True
        await asyncio.sleep(3)
        with pytest.raises(SendError) as caught:
            await sender.send(in_session(1, 2))
        assert isinstance(caught.value.cause, HealthStoreError)
        assert (len(caught.value.unsent), len(caught.value.in_doubt)) == (2, 0)
        store.broken = False
        assert (await sender.send(caught.value.unsent)).primary == 2


async def test_section_6_an_attempt_ends_with_its_lease_and_leaves_its_messages_in_doubt() -> None:
    store, clock = BrokenStore(), asyncio.get_running_loop().time
    async with open_local_pair("flights", options=OPTIONS, store=store) as both, both.pair.sender("flights") as sender:
        await sender.send(in_session(0))
        both.primary.set_fault(Fault(kind=FaultKind.NO_DISPOSITION))
        store.broken, began = True, clock()
        with pytest.raises(SendError) as caught:
            await sender.send(in_session(1))
        assert isinstance(caught.value.cause, HealthStoreError)
        assert (len(caught.value.unsent), len(caught.value.in_doubt)) == (1, 1)
        # A lease of one second, and the time for which a store that fails is tried again.
        assert 1 <= clock() - began <= 1 + 2 + 1


@pytest.mark.parametrize("held", [False, True])
async def test_section_6_a_send_waits_for_a_change_to_settle_within_its_time_limit(held: bool) -> None:
    clock = asyncio.get_running_loop().time
    async with (
        open_local_pair("flights", options=OPTIONS, store=InMemoryHealthStore()) as both,
        both.pair.sender("flights") as sender,
    ):
        await both.pair.fail_over("flights", reason="test", hold=timedelta(minutes=5))
        began = clock()
        if not held:
            with pytest.raises(SendTimeoutError, match=r"not finished within the 0.5 s"):
                await sender.send(in_session(1), timeout=0.5)
            assert clock() - began == pytest.approx(0.5, abs=0.2)
        assert (await sender.send(in_session(2))).diverted == 1
        assert clock() - began == pytest.approx(2, abs=0.5)
