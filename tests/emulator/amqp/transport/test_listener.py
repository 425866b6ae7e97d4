"""A namespace listens on one port of all addresses of its host; faults pace its streams."""

from __future__ import annotations

import asyncio
import socket

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import ServiceBusConnectionError
from hypothesis import given
from hypothesis import strategies as st

from servicebus_emulator import Emulator, Fault, FaultKind, HostedNamespace
from servicebus_emulator.amqp.transport.stream_faults import departure_time
from servicebus_emulator.faults import (
    Pace,
)
from tests.emulator.support.hostile_bytes import SASL_HEADER
from tests.emulator.support.sdk_client import client_options


@pytest.mark.parametrize("kinds", [[FaultKind.REFUSE], [FaultKind.DROP, FaultKind.REFUSE]])
async def test_a_refusing_listener_keeps_its_port(hosted: HostedNamespace, kinds: list[FaultKind]):
    for kind in kinds:
        hosted.set_fault(Fault(kind=kind))
    connection, options = client_options(hosted)["TLS"]
    async with ServiceBusClient.from_connection_string(connection, retry_total=0, **options) as client:
        sender = client.get_queue_sender("flights")
        with pytest.raises(ServiceBusConnectionError):
            await sender.send_messages(ServiceBusMessage("x"), timeout=3)
        hosted.clear_faults()
        await sender.send_messages(ServiceBusMessage("x"), timeout=3)


async def test_all_addresses_of_a_host_share_one_port():
    async with Emulator(["contoso"], host="localhost") as emulator:
        port = emulator["contoso"].amqp_port
        found = await asyncio.get_running_loop().getaddrinfo("localhost", port, type=socket.SOCK_STREAM)
        for address in {str(address[0]) for *_, address in found}:
            reader, writer = await asyncio.open_connection(address, port)
            writer.write(SASL_HEADER)
            assert await asyncio.wait_for(reader.readexactly(8), 3) == SASL_HEADER
            writer.close()


@given(st.lists(st.tuples(st.floats(0, 5), st.integers(1, 10_000)), min_size=1, max_size=20), st.integers(100, 10_000))
def test_bytes_stay_in_order_within_the_bandwidth(writes: list[tuple[float, int]], rate: int):
    pace = Pace(delay=0.1, bytes_per_second=rate)
    now, last = 0.0, 0.0
    for wait, size in writes:
        now += wait
        due = departure_time(now=now, last=last, size=size, pace=pace)
        assert due >= last + size / rate
        assert due >= now + pace.delay
        last = due
