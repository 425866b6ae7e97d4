"""Connections that are lost under a live link divert in time, and nothing is lost (SPEC section 4)."""

from __future__ import annotations

import pytest

from servicebus_emulator import Fault, FaultKind, Operation
from tests.core.breakable import Breakable
from tests.core.outages import RESET_ONCE, diverts_and_recovers_under_a_live_link

pytestmark = pytest.mark.simulated

LOST = [
    pytest.param([Fault(kind=FaultKind.REFUSE), RESET_ONCE], id="refuse"),
    pytest.param([Fault(kind=FaultKind.RESET, on=(Operation.SEND, Operation.OPEN_SENDER))], id="reset"),
    pytest.param([Fault(kind=FaultKind.CLOSE_LINK, entity="flights")], id="link closed"),
    pytest.param([Fault(kind=FaultKind.CLOSE_CONNECTION, entity="flights")], id="connection closed"),
]


@pytest.mark.parametrize("faults", LOST)
async def test_section_4_a_connection_lost_under_a_live_link_diverts_in_time_and_nothing_is_lost(
    breakable: Breakable, faults: list[Fault]
) -> None:
    await diverts_and_recovers_under_a_live_link(breakable, faults)
