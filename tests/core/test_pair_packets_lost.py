"""Packets that the kernel loses are an outage like others, in time that is the kernel's too (SPEC sections 2 and 4)."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.core.breakable import QUICK, Breakable, breakable_pair
from tests.core.every_way import AT_ONCE, PACKETS_LOST, outage
from tests.core.outages import diverts_and_recovers, diverts_and_recovers_under_a_live_link


async def test_section_4_packets_lost_under_a_live_link_divert_in_time_and_nothing_is_lost(
    breakable: Breakable,
) -> None:
    await diverts_and_recovers_under_a_live_link(breakable, list(PACKETS_LOST))


async def test_section_4_packets_lost_from_the_beginning_divert_in_time_and_nothing_is_lost(
    breakable: Breakable,
) -> None:
    await diverts_and_recovers(breakable, list(PACKETS_LOST), already=0)


@pytest.mark.parametrize("warm", [True, False], ids=["under a live link", "from the beginning"])
@pytest.mark.parametrize("interval", [AT_ONCE, QUICK.failover_interval], ids=["at once", "after the interval"])
async def test_section_2_every_way_of_sending_keeps_the_bounds_when_packets_are_lost(
    interval: timedelta, warm: bool
) -> None:
    async with breakable_pair(failover_interval=interval) as breakable:
        await outage(breakable, PACKETS_LOST, interval=interval, warm=warm)
