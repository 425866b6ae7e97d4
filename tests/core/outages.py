"""A primary that breaks, and what a sender makes of it in every case (SPEC section 4)."""

from __future__ import annotations

import asyncio

from servicebus_emulator import Fault, FaultKind
from servicebus_pair.core import State
from tests.core.breakable import GRACE, INTERVAL, PING, Breakable, numbered
from tests.core.stopwatch import Stopwatch

__all__ = ["RESET_ONCE", "diverts_and_recovers", "diverts_and_recovers_under_a_live_link"]

RESET_ONCE = Fault(kind=FaultKind.RESET, count=1)


async def diverts_and_recovers(breakable: Breakable, faults: list[Fault], *, already: int) -> None:
    """Send under faults, mend them, and see everything arrive."""
    for fault in faults:
        breakable.primary.set_fault(fault)
    async with breakable.pair.sender("flights") as sender:
        async with Stopwatch() as failing:
            result = await sender.send(numbered(10, start=already))
        assert (result.primary, result.diverted) == (0, 10)
        assert failing.seconds < INTERVAL + GRACE
        assert breakable.pair.health("flights").failed_over
        breakable.primary.clear_faults()
        async with Stopwatch() as recovering:
            await asyncio.wait_for(breakable.recorder.healthy_again.wait(), 15)
            back = await sender.send(numbered(10, start=already + 10))
        assert recovering.seconds < PING + GRACE
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


async def diverts_and_recovers_under_a_live_link(breakable: Breakable, faults: list[Fault]) -> None:
    """As :func:`diverts_and_recovers`, but for a first send that opens the link."""
    async with breakable.pair.sender("flights") as sender:
        assert (await sender.send(numbered(10))).primary == 10
        await diverts_and_recovers(breakable, faults, already=10)
