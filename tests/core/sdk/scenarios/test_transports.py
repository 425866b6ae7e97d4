"""TLS and WebSocket connections fail over within the same time, and lose nothing (SPEC section 4)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta

import pytest

from servicebus_emulator import Emulator, HostedNamespace
from servicebus_emulator.engine.model.descriptions import QueueDescription
from servicebus_pair.core import Endpoint, NamespacePair, PairOptions
from tests.core.support.local_pair import QUICK_OPTIONS, EventRecorder, LocalPair
from tests.core.support.outages import FAULTS_ON_OPEN_LINK, OPERATIONS, assert_all_operations_divert


def endpoint_over(hosted: HostedNamespace, transport: str) -> Endpoint:
    """The endpoint of a namespace over TLS, WebSocket, or both."""
    tls = "TLS" in transport
    return Endpoint.from_connection_string(
        hosted.tls_connection_string if tls else hosted.connection_string,
        namespace=hosted.name,
        administration=f"{hosted.host}:{hosted.amqp_port if tls else hosted.admin_port}",
        transport="websocket" if "WebSocket" in transport else "amqp",
        endpoint_address=hosted.endpoint_address,
        ca_file=str(hosted.ca_file) if tls else None,
    )


@asynccontextmanager
async def open_pair_over(transport: str, options: PairOptions) -> AsyncIterator[LocalPair]:
    async with Emulator(["contoso", "contoso-dr"]) as emulator:
        primary, secondary = emulator["contoso"], emulator["contoso-dr"]
        primary.namespace.create_queue(QueueDescription("flights"))
        recorder = EventRecorder()
        ends = endpoint_over(primary, transport), endpoint_over(secondary, transport)
        async with NamespacePair(*ends, options, observers=[recorder]) as pair:
            await pair.provision()
            yield LocalPair(primary, secondary, pair, recorder)
            primary.clear_faults()


# azure-servicebus 7.15 asks aiohttp for a WebSocket in clear with ssl=None.
@pytest.mark.filterwarnings("ignore:ssl=None is deprecated:DeprecationWarning")
@pytest.mark.parametrize(
    ("transport", "interval"),
    [("TLS", 0), ("WebSocket", 0), ("WebSocket under TLS", 1)],
)
async def test_section_4_outages_over_tls_and_websocket_divert_in_the_same_time(transport: str, interval: int) -> None:
    options = replace(QUICK_OPTIONS, failover_interval=timedelta(seconds=interval))
    async with open_pair_over(transport, options) as local_pair:
        await assert_all_operations_divert(local_pair, FAULTS_ON_OPEN_LINK["freeze"], open_link=True)
        drained = await local_pair.pair.syphon().drain()
        assert set(drained.moved) == set(OPERATIONS)
        assert drained.empty
