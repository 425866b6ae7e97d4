"""Outcomes of the fault table that combine faults with an operation of the SDK."""

from __future__ import annotations

import asyncio
import time

import pytest
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import ServiceBusConnectionError, ServiceBusError

from servicebus_emulator import Fault, FaultKind, HostedNamespace
from tests.emulator.support.impatient_client import (
    TIMEOUT,
    delivered,
    receive,
    send,
    stored_count,
)

pytestmark = pytest.mark.usefixtures("leaks_collected")


async def test_a_settlement_hangs_while_the_peer_is_frozen_under_a_live_link(
    broken: HostedNamespace, client: ServiceBusClient
):
    receiver, message = await delivered(client)
    broken.set_fault(Fault(kind=FaultKind.FREEZE))
    settling = asyncio.ensure_future(receiver.complete_message(message))
    done, _ = await asyncio.wait([settling], timeout=1)
    assert not done
    broken.clear_faults()
    await asyncio.wait_for(settling, TIMEOUT)
    assert stored_count(broken) == 0


async def test_packet_loss_is_a_connection_error_for_a_receiver_that_requests_more(
    broken: HostedNamespace, client: ServiceBusClient
):
    await send(client.get_queue_sender("flights"))
    receiver = client.get_queue_receiver("flights")
    assert len(await receive(receiver)) == 1
    broken.set_fault(Fault(kind=FaultKind.DROP))
    with pytest.raises(ServiceBusConnectionError):
        await receive(receiver, wait=5)


async def test_a_port_of_another_protocol_is_an_immediate_error(broken: HostedNamespace):
    address = broken.connection_string.replace(str(broken.amqp_port), str(broken.admin_port))
    async with ServiceBusClient.from_connection_string(address) as client:
        started = time.monotonic()
        with pytest.raises(ServiceBusError, match="Handler failed"):
            await send(client.get_queue_sender("flights"))
        assert time.monotonic() - started < 3
