"""Refused, reset and closed connections produce the measured SDK errors."""

from __future__ import annotations

import asyncio

import pytest
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import ServiceBusConnectionError

from servicebus_emulator import Fault, FaultKind, HostedNamespace, Operation
from tests.emulator.support.impatient_client import (
    TIMEOUT,
    client_of,
    delivered,
    receive,
    receive_some,
    send,
    stored_count,
)

pytestmark = pytest.mark.usefixtures("leaks_collected")


async def test_refused_connections_are_immediate_connection_errors(broken: HostedNamespace):
    port = broken.amqp_port
    for _ in range(2):
        fault = broken.set_fault(Fault(kind=FaultKind.REFUSE))
        async with client_of(broken) as client:
            began = asyncio.get_running_loop().time()
            with pytest.raises(ServiceBusConnectionError):
                await send(client.get_queue_sender("flights"))
            assert asyncio.get_running_loop().time() - began < 2
            broken.clear_faults(fault.id)
            await send(client.get_queue_sender("flights"))
    assert (broken.amqp_port, stored_count(broken)) == (port, 2)


@pytest.mark.parametrize(
    "operation", [Operation.CONNECT, Operation.AUTHENTICATE, Operation.OPEN_SENDER, Operation.SEND]
)
async def test_a_reset_is_a_connection_error_and_the_next_attempt_succeeds(
    broken: HostedNamespace, client: ServiceBusClient, operation: Operation
):
    broken.set_fault(Fault(kind=FaultKind.RESET, on=(operation,), count=1))
    with pytest.raises(ServiceBusConnectionError):
        await send(client.get_queue_sender("flights"))
    await send(client.get_queue_sender("flights"))
    assert stored_count(broken) == 1


@pytest.mark.parametrize("kind", [FaultKind.CLOSE_LINK, FaultKind.CLOSE_CONNECTION])
async def test_a_receiver_is_detached_at_a_delivery(broken: HostedNamespace, kind: FaultKind):
    async with client_of(broken) as other, client_of(broken) as client:
        receiver = client.get_queue_receiver("flights")
        assert await receive(receiver, wait=1) == []
        broken.set_fault(Fault(kind=kind, on=(Operation.RECEIVE,), entity="flights", count=1))
        await send(other.get_queue_sender("calm"))
        await send(other.get_queue_sender("flights"))
        with pytest.raises(ServiceBusConnectionError, match="forced"):
            await receive(receiver)
        assert len(await receive_some(receiver)) == 1
        assert [armed.strikes for armed in broken.faults] == [1]


async def test_a_reset_while_receiving_is_a_connection_error_and_the_message_stays(
    broken: HostedNamespace, client: ServiceBusClient
):
    await send(client.get_queue_sender("flights"))
    broken.set_fault(Fault(kind=FaultKind.RESET, on=(Operation.RECEIVE,), count=1))
    receiver = client.get_queue_receiver("flights")
    with pytest.raises(ServiceBusConnectionError):
        await receive(receiver)
    assert len(await receive(receiver)) == 1


@pytest.mark.parametrize(
    "fault", [Fault(kind=FaultKind.RESET, on=(Operation.SETTLE,), count=1), Fault(kind=FaultKind.DROP)]
)
async def test_a_reset_or_packet_loss_in_a_settlement_is_a_connection_error_and_the_message_stays(
    broken: HostedNamespace, client: ServiceBusClient, fault: Fault
):
    receiver, message = await delivered(client)
    broken.set_fault(fault)
    with pytest.raises(ServiceBusConnectionError):
        await asyncio.wait_for(receiver.complete_message(message), TIMEOUT)
    assert stored_count(broken) == 1


@pytest.mark.parametrize("kind", [FaultKind.CLOSE_LINK, FaultKind.CLOSE_CONNECTION])
async def test_the_sdk_hides_the_condition_of_a_close(
    broken: HostedNamespace, client: ServiceBusClient, kind: FaultKind
):
    broken.set_fault(Fault(kind=kind, condition="com.microsoft:server-busy", count=1))
    sender = client.get_queue_sender("flights")
    with pytest.raises(ServiceBusConnectionError, match="amqp:unknown-error"):
        await send(sender)
    await send(sender)
    assert stored_count(broken) == 1
