"""Every kind of outage of the primary: messages are diverted in time, and none is lost (SPEC sections 2 and 4)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from servicebus_emulator import Fault, FaultKind
from servicebus_pair.core.sdk._private.capabilities import fast_path
from tests.core.support.local_pair import FAILOVER_MARGIN, LocalPair, open_quick_pair
from tests.core.support.outages import (
    FAULTS_ON_OPEN_LINK,
    FAULTS_WHILE_CONNECTING,
    assert_all_operations_divert,
    assert_diverts_and_recovers,
)

pytestmark = pytest.mark.simulated

# The primary or its kernel reports these failures, so there is nothing to wait for.
EXPLICIT = {"refuse", "reset", "internal error", "link closed", "connection closed", "token service down"}
POLICIES = [
    pytest.param(FaultKind.QUOTA_EXCEEDED, {"on_quota_exceeded": "fail_over"}, id="full"),
    pytest.param(FaultKind.ENTITY_DISABLED, {"on_entity_disabled": "fail_over"}, id="disabled"),
]


@pytest.mark.parametrize("faults", FAULTS_ON_OPEN_LINK.values(), ids=FAULTS_ON_OPEN_LINK)
async def test_section_4_an_outage_on_an_open_link_diverts_in_time(
    local_pair: LocalPair, faults: tuple[Fault, ...]
) -> None:
    await assert_diverts_and_recovers(local_pair, faults, open_link=True)


@pytest.mark.parametrize("faults", FAULTS_WHILE_CONNECTING.values(), ids=FAULTS_WHILE_CONNECTING)
async def test_section_4_an_outage_while_connecting_diverts_in_time(
    local_pair: LocalPair, faults: tuple[Fault, ...]
) -> None:
    await assert_diverts_and_recovers(local_pair, faults, open_link=False)


@pytest.mark.parametrize(("kind", "policy"), POLICIES)
async def test_section_4_a_full_or_disabled_entity_fails_over_if_the_policy_says_so(
    kind: FaultKind, policy: dict[str, Any]
) -> None:
    async with open_quick_pair(**policy) as local_pair:
        await assert_diverts_and_recovers(local_pair, [Fault(kind=kind, entity="flights")], open_link=True)


@pytest.mark.parametrize("name", ["freeze", "no disposition", "internal error"])
async def test_section_4_single_and_scheduled_messages_divert_as_fast_as_batches(
    local_pair: LocalPair, name: str
) -> None:
    await assert_all_operations_divert(local_pair, FAULTS_ON_OPEN_LINK[name], open_link=True)


@pytest.mark.parametrize("name", FAULTS_ON_OPEN_LINK)
async def test_section_2_with_a_zero_interval_an_outage_on_an_open_link_diverts_at_once(name: str) -> None:
    # Through its public interface alone, the SDK opens and closes links with fixed delays.
    margin = 0.1 if name in EXPLICIT and fast_path() else FAILOVER_MARGIN
    async with open_quick_pair(failover_interval=timedelta(0)) as local_pair:
        await assert_all_operations_divert(local_pair, FAULTS_ON_OPEN_LINK[name], open_link=True, margin=margin)


@pytest.mark.parametrize("name", ["refuse", "freeze", "internal error", "token service silent"])
async def test_section_2_with_a_zero_interval_an_outage_while_connecting_diverts_in_two_seconds(name: str) -> None:
    async with open_quick_pair(failover_interval=timedelta(0)) as local_pair:
        await assert_all_operations_divert(local_pair, FAULTS_WHILE_CONNECTING[name], open_link=False)
