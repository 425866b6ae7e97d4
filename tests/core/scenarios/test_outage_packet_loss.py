"""Packet loss on the connection to the primary, which depends on the kernel's timers (SPEC sections 2 and 4)."""

from __future__ import annotations

from datetime import timedelta

from servicebus_emulator import Fault, FaultKind
from tests.core.support.local_pair import LocalPair, open_quick_pair
from tests.core.support.outages import assert_all_operations_divert, assert_diverts_and_recovers

PACKET_LOSS = (Fault(kind=FaultKind.DROP),)


async def test_section_4_packet_loss_diverts_in_time(local_pair: LocalPair) -> None:
    await assert_diverts_and_recovers(local_pair, PACKET_LOSS, open_link=True)


async def test_section_2_with_a_zero_interval_packet_loss_while_connecting_diverts_in_two_seconds() -> None:
    async with open_quick_pair(failover_interval=timedelta(0)) as local_pair:
        await assert_all_operations_divert(local_pair, PACKET_LOSS, open_link=False)
