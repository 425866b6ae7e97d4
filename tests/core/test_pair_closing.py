"""Both clients live and die together; closing lets sends in flight finish (SPEC section 7)."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from servicebus_emulator import Fault, FaultKind
from servicebus_pair.core.errors import PairClosedError, PartnerFaultError, SendError
from servicebus_pair.core.events import Pinged
from tests.core.breakable import Breakable, breakable_pair, numbered

pytestmark = pytest.mark.simulated

LATE = Fault(kind=FaultKind.LATE_DISPOSITION, entity="flights", delay=0.4)


def seconds() -> float:
    return asyncio.get_running_loop().time()


async def test_section_7_closing_lets_sends_in_flight_finish_and_takes_no_new_ones(breakable: Breakable) -> None:
    sender = breakable.pair.sender("flights")
    await sender.send(numbered(1))
    breakable.primary.set_fault(LATE)
    sending = asyncio.create_task(sender.send(numbered(3, start=1)))
    await asyncio.sleep(0.1)
    closing = asyncio.create_task(breakable.pair.close())
    await asyncio.sleep(0.1)
    with pytest.raises(PairClosedError, match="nothing was sent"):
        await sender.send(numbered(1, start=9))
    assert (await sending).primary == 3
    await closing
    assert await breakable.ids_on_the_primary() == ["m0", "m1", "m2", "m3"]


async def test_section_7_a_send_that_outlives_the_grace_ends_with_its_messages() -> None:
    async with breakable_pair(close_grace=timedelta(seconds=0.3), failover_interval=timedelta(seconds=30)) as breakable:
        sender = breakable.pair.sender("flights")
        await sender.send(numbered(1))
        breakable.primary.set_fault(Fault(kind=FaultKind.NO_DISPOSITION, entity="flights"))
        sending = asyncio.create_task(sender.send(numbered(3, start=1)))
        await asyncio.sleep(0.1)
        began = seconds()
        await breakable.pair.close()
        assert seconds() - began < 5
        with pytest.raises(SendError) as caught:
            await asyncio.wait_for(sending, 12)
    assert len(caught.value.unsent) == 3
    assert isinstance(caught.value.cause, PairClosedError)


async def test_section_7_closing_stops_the_pings_and_is_quick_whatever_is_broken(breakable: Breakable) -> None:
    sender = breakable.pair.sender("flights")
    await sender.send(numbered(1))
    breakable.primary.set_fault(Fault(kind=FaultKind.FREEZE))
    breakable.secondary.set_fault(Fault(kind=FaultKind.FREEZE))
    breakable.pair.fail_over("flights", reason="test")
    await asyncio.sleep(1.2)
    began = seconds()
    await breakable.pair.close()
    assert seconds() - began < 10
    pings = len(breakable.recorder.of(Pinged))
    await asyncio.sleep(1.2)
    assert len(breakable.recorder.of(Pinged)) == pings


async def test_section_7_closing_twice_does_nothing_more(breakable: Breakable) -> None:
    await breakable.pair.close()
    await breakable.pair.close()
    with pytest.raises(PairClosedError, match="the pair is not open"):
        breakable.pair.sender("flights")


@pytest.mark.parametrize("side", ["primary", "secondary"])
@pytest.mark.parametrize("how", ["closes", "faults"])
async def test_section_7_a_client_that_ends_alone_takes_its_partner_with_it_after_the_grace(
    side: str, how: str
) -> None:
    async with breakable_pair(close_grace=timedelta(seconds=0.4)) as breakable:
        sender = breakable.pair.sender("flights")
        await sender.send(numbered(1))
        shared = breakable.pair._open()
        one, other = (shared.primary, shared.secondary)[:: 1 if side == "primary" else -1]
        closing = None
        if how == "closes":
            closing = asyncio.create_task(one.close())
            await asyncio.sleep(0)
        else:
            one.fault(PairClosedError("its process was told to stop"))
        other.check_open()
        await asyncio.sleep(0.8)
        if closing is not None:
            await closing
        with pytest.raises(PartnerFaultError, match=rf"of namespace {other.namespace} was faulted .* {one.namespace}"):
            other.check_open()
        with pytest.raises(SendError) as caught:
            await sender.send(numbered(2))
        assert len(caught.value.unsent) == 2


async def test_section_7_a_closed_pair_leaves_no_task_behind() -> None:
    """The loop may end right after: a task that still waited for a partner would be destroyed pending."""
    async with breakable_pair(close_grace=timedelta(seconds=5)) as breakable:
        sender = breakable.pair.sender("flights")
        await sender.send(numbered(1))
        await breakable.pair.close()
        assert not [task for task in asyncio.all_tasks() if task.get_name() == "follow the partner"]
    async with breakable_pair(close_grace=timedelta(seconds=5)) as breakable:
        breakable.pair._open().secondary.fault(PairClosedError("its process was told to stop"))
        await asyncio.sleep(0)
        await breakable.pair.close()
        assert not [task for task in asyncio.all_tasks() if task.get_name() == "follow the partner"]


async def test_section_7_two_clients_that_are_closed_together_fault_nobody() -> None:
    async with breakable_pair(close_grace=timedelta(seconds=0.2)) as breakable:
        shared = breakable.pair._open()
        await asyncio.gather(shared.primary.close(), shared.secondary.close())
        await asyncio.sleep(0.4)
        with pytest.raises(PairClosedError, match="is closed: open a new pair") as caught:
            shared.secondary.check_open()
        assert not isinstance(caught.value, PartnerFaultError)
