"""A token service that fails where it worked before is an outage (SPEC section 4)."""

from __future__ import annotations

import pytest

from servicebus_emulator import Fault, FaultKind
from tests.core.breakable import Breakable
from tests.core.outages import RESET_ONCE, diverts_and_recovers_under_a_live_link

pytestmark = pytest.mark.simulated

TOKENS = [
    pytest.param([Fault(kind=FaultKind.AUTH_FAILURE, status=status), RESET_ONCE], id=f"token service says {status}")
    for status in (401, 403, 404, 500, 503)
]


@pytest.mark.parametrize("faults", TOKENS)
async def test_section_4_tokens_refused_where_they_were_taken_divert_in_time_and_nothing_is_lost(
    breakable: Breakable, faults: list[Fault]
) -> None:
    await diverts_and_recovers_under_a_live_link(breakable, faults)
