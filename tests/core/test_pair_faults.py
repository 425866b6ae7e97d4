"""The sender against a primary that breaks on purpose (SPEC section 4: what counts, when it diverts, nothing lost)."""

from __future__ import annotations

import asyncio

import pytest

from servicebus_emulator import Fault, FaultKind, Operation
from servicebus_emulator.engine.descriptions import QueueDescription
from servicebus_pair.core import State
from tests.core.breakable import GRACE, INTERVAL, Breakable, numbered

RESET_ONCE = Fault(kind=FaultKind.RESET, count=1)
RESET_ALWAYS = Fault(kind=FaultKind.RESET, on=(Operation.SEND, Operation.OPEN_SENDER))
NO_ANSWER = Fault(kind=FaultKind.NO_DISPOSITION, entity="flights")
LATE = Fault(kind=FaultKind.LATE_DISPOSITION, entity="flights", delay=20)

# Under a live link, unless the fault is there from the beginning.
OUTAGES = [
    pytest.param([Fault(kind=FaultKind.REFUSE), RESET_ONCE], id="refuse"),
    pytest.param([Fault(kind=FaultKind.FREEZE)], id="freeze"),
    pytest.param([RESET_ALWAYS], id="reset"),
    pytest.param([NO_ANSWER], id="no disposition"),
    pytest.param([LATE], id="late disposition"),
    pytest.param([Fault(kind=FaultKind.RELEASED, entity="flights")], id="released"),
    pytest.param([Fault(kind=FaultKind.MODIFIED, entity="flights")], id="modified"),
    pytest.param([Fault(kind=FaultKind.INTERNAL_ERROR, entity="flights")], id="internal error"),
    pytest.param([Fault(kind=FaultKind.CLOSE_LINK, entity="flights")], id="link closed"),
    pytest.param([Fault(kind=FaultKind.CLOSE_CONNECTION, entity="flights")], id="connection closed"),
    pytest.param([Fault(kind=FaultKind.AUTH_FAILURE, status=503), RESET_ONCE], id="token service down"),
]
COLD_OUTAGES = [
    pytest.param([Fault(kind=FaultKind.REFUSE)], id="refuse"),
    pytest.param([Fault(kind=FaultKind.FREEZE)], id="freeze"),
    pytest.param([Fault(kind=FaultKind.RESET, on=(Operation.CONNECT,))], id="reset"),
    pytest.param([Fault(kind=FaultKind.INTERNAL_ERROR, on=(Operation.OPEN_SENDER,))], id="internal error"),
]


async def diverts_and_recovers(breakable: Breakable, faults: list[Fault], *, already: int) -> None:
    """Send under faults, mend them, and see everything arrive."""
    for fault in faults:
        breakable.primary.set_fault(fault)
    async with breakable.pair.sender("flights") as sender:
        began = asyncio.get_running_loop().time()
        result = await sender.send(numbered(10, start=already))
        took = asyncio.get_running_loop().time() - began
        assert (result.primary, result.diverted) == (0, 10)
        assert took < INTERVAL + GRACE
        assert breakable.pair.health("flights").failed_over
        breakable.primary.clear_faults()
        await asyncio.wait_for(breakable.recorder.healthy_again.wait(), 15)
        back = await sender.send(numbered(10, start=already + 10))
        assert (back.primary, back.diverted) == (10, 0)
    drained = await breakable.pair.syphon().drain()
    assert drained.moved == {"flights": 10}
    # At least once: what a client took for lost may be there too.
    assert set(await breakable.ids_on_the_primary()) >= {f"m{n}" for n in range(already + 20)}
    # A single call that hangs for the whole interval is suspect for no time at all.
    assert breakable.recorder.states in (
        [State.FAILED_OVER, State.HEALTHY],
        [State.SUSPECT, State.FAILED_OVER, State.HEALTHY],
    )


@pytest.mark.parametrize("faults", OUTAGES)
async def test_section_4_under_a_live_link_every_outage_diverts_in_time_and_nothing_is_lost(
    breakable: Breakable, faults: list[Fault]
) -> None:
    async with breakable.pair.sender("flights") as sender:
        assert (await sender.send(numbered(10))).primary == 10
        await diverts_and_recovers(breakable, faults, already=10)


@pytest.mark.parametrize("faults", COLD_OUTAGES)
async def test_section_4_an_outage_from_the_beginning_diverts_in_time_and_nothing_is_lost(
    breakable: Breakable, faults: list[Fault]
) -> None:
    await diverts_and_recovers(breakable, faults, already=0)


async def test_section_4_a_busy_server_is_waited_for_and_not_diverted_from(breakable: Breakable) -> None:
    busy = breakable.primary.set_fault(Fault(kind=FaultKind.SERVER_BUSY, count=6))
    async with breakable.pair.sender("flights") as sender:
        began = asyncio.get_running_loop().time()
        result = await sender.send(numbered(10))
    assert (result.primary, result.diverted) == (10, 0)
    # Longer than the failover interval, and yet no failure that counts.
    assert asyncio.get_running_loop().time() - began > 6 * 0.5
    assert [each.strikes for each in breakable.primary.faults if each.id == busy.id] == [6]
    assert breakable.recorder.states == []
    assert set(await breakable.ids_on_the_primary()) == {f"m{n}" for n in range(10)}


async def test_section_4_a_single_reset_is_forgiven(breakable: Breakable) -> None:
    async with breakable.pair.sender("flights") as sender:
        await sender.send(numbered(1))
        breakable.primary.set_fault(RESET_ONCE)
        assert (await sender.send(numbered(10, start=1))).primary == 10
    assert breakable.recorder.states == []


async def test_section_4_an_outage_of_one_entity_leaves_the_others_alone(breakable: Breakable) -> None:
    breakable.primary.namespace.create_queue(QueueDescription("calm"))
    breakable.primary.set_fault(Fault(kind=FaultKind.INTERNAL_ERROR, entity="flights"))
    async with breakable.pair.sender("flights") as flights, breakable.pair.sender("calm") as calm:
        assert (await flights.send(numbered(3))).diverted == 3
        assert (await calm.send(numbered(3))).primary == 3
    assert not breakable.pair.health("calm").failed_over
