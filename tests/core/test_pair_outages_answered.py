"""A service that takes nothing, and says so, diverts in time, and nothing is lost (SPEC section 4)."""

from __future__ import annotations

from typing import Any

import pytest

from servicebus_emulator import Fault, FaultKind
from tests.core.breakable import Breakable, breakable_pair
from tests.core.outages import diverts_and_recovers_under_a_live_link

pytestmark = pytest.mark.simulated

ANSWERED = [
    pytest.param([Fault(kind=FaultKind.RELEASED, entity="flights")], id="released"),
    pytest.param([Fault(kind=FaultKind.MODIFIED, entity="flights")], id="modified"),
    pytest.param([Fault(kind=FaultKind.INTERNAL_ERROR, entity="flights")], id="internal error"),
]
POLICIES = [
    pytest.param(FaultKind.QUOTA_EXCEEDED, {"on_quota_exceeded": "fail_over"}, id="full"),
    pytest.param(FaultKind.ENTITY_DISABLED, {"on_entity_disabled": "fail_over"}, id="disabled"),
]


@pytest.mark.parametrize("faults", ANSWERED)
async def test_section_4_a_send_refused_for_no_fault_of_its_own_diverts_in_time_and_nothing_is_lost(
    breakable: Breakable, faults: list[Fault]
) -> None:
    await diverts_and_recovers_under_a_live_link(breakable, faults)


@pytest.mark.parametrize(("kind", "policy"), POLICIES)
async def test_section_4_a_policy_makes_a_full_or_disabled_entity_count(
    kind: FaultKind, policy: dict[str, Any]
) -> None:
    async with breakable_pair(**policy) as breakable:
        await diverts_and_recovers_under_a_live_link(breakable, [Fault(kind=kind, entity="flights")])
