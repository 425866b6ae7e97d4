"""With an interval of zero, every way of sending diverts within 2 s under every fault (SPEC sections 2 and 4)."""

from __future__ import annotations

import pytest

from servicebus_emulator import Fault
from tests.core.breakable import breakable_pair
from tests.core.every_way import AT_ONCE, FROM_THE_BEGINNING, UNDER_A_LIVE_LINK, outage

pytestmark = pytest.mark.simulated


# Where the primary says that something is wrong, or its kernel does: nothing is waited for.
TOLD = ["refuse", "reset", "internal error", "link closed", "connection closed", "token service down"]


@pytest.mark.parametrize("faults", UNDER_A_LIVE_LINK.values(), ids=UNDER_A_LIVE_LINK.keys())
async def test_section_2_with_an_interval_of_zero_every_way_of_sending_diverts_within_two_seconds(
    faults: tuple[Fault, ...],
) -> None:
    async with breakable_pair(failover_interval=AT_ONCE) as breakable:
        await outage(breakable, faults, interval=AT_ONCE, warm=True)


@pytest.mark.parametrize("name", TOLD)
async def test_section_2_with_an_interval_of_zero_an_outage_that_is_told_diverts_at_once(name: str) -> None:
    async with breakable_pair(failover_interval=AT_ONCE) as breakable:
        await outage(breakable, UNDER_A_LIVE_LINK[name], interval=AT_ONCE, warm=True, grace=0.1)


@pytest.mark.parametrize("faults", FROM_THE_BEGINNING.values(), ids=FROM_THE_BEGINNING.keys())
async def test_section_2_with_an_interval_of_zero_an_outage_from_the_beginning_is_no_slower(
    faults: tuple[Fault, ...],
) -> None:
    async with breakable_pair(failover_interval=AT_ONCE) as breakable:
        await outage(breakable, faults, interval=AT_ONCE, warm=False)
