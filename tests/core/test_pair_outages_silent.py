"""Silence under a live link diverts in time, and nothing is lost (SPEC section 4)."""

from __future__ import annotations

import pytest

from servicebus_emulator import Fault, FaultKind
from tests.core.breakable import Breakable
from tests.core.outages import diverts_and_recovers_under_a_live_link

pytestmark = pytest.mark.simulated

SILENT = [
    pytest.param([Fault(kind=FaultKind.FREEZE)], id="freeze"),
    pytest.param([Fault(kind=FaultKind.NO_DISPOSITION, entity="flights")], id="no disposition"),
    pytest.param([Fault(kind=FaultKind.LATE_DISPOSITION, entity="flights", delay=20)], id="late disposition"),
    pytest.param([Fault(kind=FaultKind.LATENCY, delay=8)], id="slow beyond the interval"),
]


@pytest.mark.parametrize("faults", SILENT)
async def test_section_4_silence_under_a_live_link_diverts_in_time_and_nothing_is_lost(
    breakable: Breakable, faults: list[Fault]
) -> None:
    await diverts_and_recovers_under_a_live_link(breakable, faults)
