"""Linked shutdown of both clients, and closing with sends in flight (SPEC section 7)."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from servicebus_emulator import Fault, FaultKind
from servicebus_pair.core.model.errors import PairClosedError, PartnerFaultError, SendError
from servicebus_pair.core.model.events import Pinged
from tests.core.support.local_pair import LocalPair, numbered, open_quick_pair

pytestmark = pytest.mark.simulated

LATE = Fault(kind=FaultKind.LATE_DISPOSITION, entity="flights", delay=0.4)


def seconds() -> float:
    return asyncio.get_running_loop().time()


async def test_close_waits_for_sends_in_flight_and_rejects_new_ones(local_pair: LocalPair) -> None:
    sender = local_pair.pair.sender("flights")
    await sender.send(numbered(1))
    local_pair.primary.set_fault(LATE)
    sending = asyncio.create_task(sender.send(numbered(3, start=1)))
    await asyncio.sleep(0.1)
    closing = asyncio.create_task(local_pair.pair.close())
    await asyncio.sleep(0.1)
    with pytest.raises(PairClosedError, match="nothing was sent"):
        await sender.send(numbered(1, start=9))
    assert (await sending).primary == 3
    await closing
    assert await local_pair.primary_ids() == ["m0", "m1", "m2", "m3"]


async def test_send_longer_than_close_grace_fails_with_its_messages() -> None:
    options: dict[str, Any] = {"close_grace": timedelta(seconds=0.3), "failover_interval": timedelta(seconds=30)}
    async with open_quick_pair(**options) as local_pair:
        sender = local_pair.pair.sender("flights")
        await sender.send(numbered(1))
        local_pair.primary.set_fault(Fault(kind=FaultKind.NO_DISPOSITION, entity="flights"))
        sending = asyncio.create_task(sender.send(numbered(3, start=1)))
        await asyncio.sleep(0.1)
        began = seconds()
        await local_pair.pair.close()
        assert seconds() - began < 5
        with pytest.raises(SendError) as caught:
            await asyncio.wait_for(sending, 12)
    assert len(caught.value.unsent) == 3
    assert isinstance(caught.value.cause, PairClosedError)


async def test_close_stops_pings_and_is_fast_with_frozen_namespaces(local_pair: LocalPair) -> None:
    sender = local_pair.pair.sender("flights")
    await sender.send(numbered(1))
    local_pair.primary.set_fault(Fault(kind=FaultKind.FREEZE))
    local_pair.secondary.set_fault(Fault(kind=FaultKind.FREEZE))
    await local_pair.pair.fail_over("flights", reason="test")
    await asyncio.sleep(1.2)
    began = seconds()
    await local_pair.pair.close()
    assert seconds() - began < 10
    pings = len(local_pair.recorder.of(Pinged))
    await asyncio.sleep(1.2)
    assert len(local_pair.recorder.of(Pinged)) == pings


async def test_close_twice_is_allowed(local_pair: LocalPair) -> None:
    await local_pair.pair.close()
    await local_pair.pair.close()
    with pytest.raises(PairClosedError, match="the pair is not open"):
        local_pair.pair.sender("flights")


@pytest.mark.parametrize("side", ["primary", "secondary"])
@pytest.mark.parametrize("how", ["closes", "faults"])
async def test_client_that_ends_faults_its_partner_after_the_grace(side: str, how: str) -> None:
    async with open_quick_pair(close_grace=timedelta(seconds=0.4)) as local_pair:
        sender = local_pair.pair.sender("flights")
        await sender.send(numbered(1))
        shared = local_pair.pair._open()
        one, other = (shared.primary, shared.secondary)[:: 1 if side == "primary" else -1]
        closing = None
        if how == "closes":
            closing = asyncio.create_task(one.close())
            await asyncio.sleep(0)
        else:
            one.fault(PairClosedError("the process is stopping"))
        other.check_open()
        await asyncio.sleep(0.8)
        if closing is not None:
            await closing
        with pytest.raises(PartnerFaultError, match=rf"of namespace {other.namespace} was faulted .* {one.namespace}"):
            other.check_open()
        with pytest.raises(SendError) as caught:
            await sender.send(numbered(2))
        assert len(caught.value.unsent) == 2


def tasks_of_the_partner() -> list[asyncio.Task[object]]:
    return [task for task in asyncio.all_tasks() if task.get_name() == "fault the partner client"]


async def test_closed_pair_leaves_no_task() -> None:
    """The loop may end right after, and would destroy a pending task."""
    async with open_quick_pair(close_grace=timedelta(seconds=5)) as local_pair:
        sender = local_pair.pair.sender("flights")
        await sender.send(numbered(1))
        await local_pair.pair.close()
        assert tasks_of_the_partner() == []
    async with open_quick_pair(close_grace=timedelta(minutes=10)) as local_pair:
        local_pair.pair._open().secondary.fault(PairClosedError("the process is stopping"))
        await asyncio.sleep(0)
        assert len(tasks_of_the_partner()) == 1
        async with asyncio.timeout(60):
            await local_pair.pair.close()
        assert tasks_of_the_partner() == []


async def test_clients_closed_together_are_not_faulted() -> None:
    async with open_quick_pair(close_grace=timedelta(seconds=0.2)) as local_pair:
        shared = local_pair.pair._open()
        await asyncio.gather(shared.primary.close(), shared.secondary.close())
        await asyncio.sleep(0.4)
        with pytest.raises(PairClosedError, match="is closed: open a new pair") as caught:
            shared.secondary.check_open()
        assert not isinstance(caught.value, PartnerFaultError)
