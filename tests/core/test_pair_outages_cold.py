"""Outages that are there before the first link is opened (SPEC section 4)."""

from __future__ import annotations

import pytest

from servicebus_emulator import Fault, FaultKind, Operation
from tests.core.breakable import Breakable
from tests.core.outages import diverts_and_recovers

pytestmark = pytest.mark.simulated

# And what is broken before the first link is opened.
COLD_OUTAGES = [
    pytest.param([Fault(kind=FaultKind.REFUSE)], id="refuse"),
    pytest.param([Fault(kind=FaultKind.FREEZE)], id="freeze"),
    pytest.param([Fault(kind=FaultKind.RESET, on=(Operation.CONNECT,))], id="reset"),
    pytest.param([Fault(kind=FaultKind.INTERNAL_ERROR, on=(Operation.OPEN_SENDER,))], id="internal error"),
    pytest.param([Fault(kind=FaultKind.CLOSE_CONNECTION, on=(Operation.OPEN_SENDER,))], id="connection closed"),
    pytest.param([Fault(kind=FaultKind.NO_DISPOSITION, on=(Operation.AUTHENTICATE,))], id="token service silent"),
]


@pytest.mark.parametrize("faults", COLD_OUTAGES)
async def test_section_4_an_outage_from_the_beginning_diverts_in_time_and_nothing_is_lost(
    breakable: Breakable, faults: list[Fault]
) -> None:
    await diverts_and_recovers(breakable, faults, already=0)
