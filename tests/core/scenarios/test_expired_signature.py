"""A shared access signature that expires in use counts as a failure (SPEC section 4)."""

from __future__ import annotations

import asyncio
import time

import pytest

from servicebus_emulator import Fault, FaultKind, HostedNamespace
from servicebus_emulator.security.sas import sign
from servicebus_pair.core import Endpoint, NamespacePair
from servicebus_pair.core.model.health_state import HealthState
from tests.core.support.local_pair import (
    FAILOVER_INTERVAL,
    FAILOVER_MARGIN,
    QUICK_OPTIONS,
    EventRecorder,
    LocalPair,
    endpoint,
    numbered,
)

pytestmark = pytest.mark.simulated


def signed(hosted: HostedNamespace, *, expires: float) -> Endpoint:
    host = f"{hosted.host}:{hosted.amqp_port}"
    root = hosted.namespace.access_policies.root
    token = sign(f"sb://{host}/", rule="RootManageSharedAccessKey", key=root.primary_key, expires=int(expires))
    text = f"Endpoint=sb://{host};SharedAccessSignature={token};UseDevelopmentEmulator=true;"
    return Endpoint.from_connection_string(
        text, namespace=hosted.name, administration=f"{hosted.host}:{hosted.admin_port}"
    )


async def test_section_4_a_signature_that_expires_in_use_fails_over_with_its_reason(
    local_pair: LocalPair,
) -> None:
    recorder = EventRecorder()
    ends_at = time.time() + 4
    ends = signed(local_pair.primary, expires=ends_at), endpoint(local_pair.secondary)
    async with NamespacePair(*ends, QUICK_OPTIONS, observers=[recorder]) as pair, pair.sender("flights") as sender:
        assert (await sender.send(numbered(1))).primary == 1
        await asyncio.sleep(max(0.0, ends_at + 1 - time.time()))
        # Whatever makes the client bring its token again.
        local_pair.primary.set_fault(Fault(kind=FaultKind.RESET, count=1))
        began = asyncio.get_running_loop().time()
        assert (await sender.send(numbered(2, start=1))).diverted == 2
        assert asyncio.get_running_loop().time() - began < FAILOVER_INTERVAL + FAILOVER_MARGIN
        assert "ServiceBusAuthenticationError" in pair.health("flights").reason
    assert recorder.states[-1] is HealthState.FAILED_OVER
