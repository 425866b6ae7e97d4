"""Single and scheduled messages keep the bounds of batches (SPEC section 4)."""

from __future__ import annotations

import pytest

from tests.core.breakable import QUICK, Breakable
from tests.core.every_way import UNDER_A_LIVE_LINK, outage

pytestmark = pytest.mark.simulated


@pytest.mark.parametrize("name", ["refuse", "freeze", "no disposition", "internal error", "released"])
async def test_section_4_single_and_scheduled_messages_keep_the_bounds_of_batches(
    breakable: Breakable, name: str
) -> None:
    await outage(breakable, UNDER_A_LIVE_LINK[name], interval=QUICK.failover_interval, warm=True)
