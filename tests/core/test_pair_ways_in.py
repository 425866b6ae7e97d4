"""Over TLS and WebSocket a pair keeps its bounds, and loses nothing (SPEC section 4)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta

import pytest

from servicebus_emulator import Emulator, HostedNamespace
from servicebus_emulator.engine.descriptions import QueueDescription
from servicebus_pair.core import Endpoint, NamespacePair, PairOptions
from tests.core.breakable import QUICK, Breakable, Recorder
from tests.core.every_way import UNDER_A_LIVE_LINK, WAYS, outage


def over(hosted: HostedNamespace, way_in: str) -> Endpoint:
    """The endpoint of a namespace that is reached by TLS or WebSocket, or by one in the other."""
    tls = "TLS" in way_in
    return Endpoint.from_connection_string(
        hosted.tls_connection_string if tls else hosted.connection_string,
        namespace=hosted.name,
        administration=f"{hosted.host}:{hosted.amqp_port if tls else hosted.admin_port}",
        transport="websocket" if "WebSocket" in way_in else "amqp",
        endpoint_address=hosted.endpoint_address,
        ca_file=str(hosted.ca_file) if tls else None,
    )


@asynccontextmanager
async def reached_by(way_in: str, options: PairOptions) -> AsyncIterator[Breakable]:
    async with Emulator(["contoso", "contoso-dr"]) as emulator:
        primary, secondary = emulator["contoso"], emulator["contoso-dr"]
        primary.namespace.create_queue(QueueDescription("flights"))
        recorder = Recorder()
        async with NamespacePair(over(primary, way_in), over(secondary, way_in), options, observers=[recorder]) as pair:
            await pair.provision()
            yield Breakable(primary, secondary, pair, recorder)
            primary.clear_faults()


# azure-servicebus 7.15 asks aiohttp for a WebSocket in clear with ssl=None.
@pytest.mark.filterwarnings("ignore:ssl=None is deprecated:DeprecationWarning")
@pytest.mark.parametrize(
    ("way_in", "interval"), [("TLS", 0), ("WebSocket", 0), ("WebSocket under TLS", 0), ("WebSocket under TLS", 1)]
)
async def test_section_4_over_tls_and_websocket_the_bounds_are_the_same(way_in: str, interval: int) -> None:
    options = replace(QUICK, failover_interval=timedelta(seconds=interval))
    async with reached_by(way_in, options) as breakable:
        await outage(breakable, UNDER_A_LIVE_LINK["freeze"], interval=options.failover_interval, warm=True)
        drained = await breakable.pair.syphon().drain()
        assert set(drained.moved) == set(WAYS)
        assert drained.empty
