"""Frozen peers, packet loss, and missing or late dispositions."""

from __future__ import annotations

import asyncio

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import (
    OperationTimeoutError,
    ServiceBusConnectionError,
)

from servicebus_emulator import Fault, FaultKind, HostedNamespace, Operation
from servicebus_emulator.amqp.transport import packet_loss as packets
from servicebus_emulator.faults import FaultError
from tests.emulator.support.impatient_client import TIMEOUT, client_of, receive, send, stored_count

pytestmark = pytest.mark.usefixtures("leaks_collected")


@pytest.mark.parametrize(("kind", "stored"), [(FaultKind.FREEZE, 0), (FaultKind.NO_DISPOSITION, 1)])
async def test_a_send_without_an_answer_times_out(
    broken: HostedNamespace, client: ServiceBusClient, kind: FaultKind, stored: int
):
    broken.set_fault(Fault(kind=kind))
    with pytest.raises(OperationTimeoutError):
        await send(client.get_queue_sender("flights"), timeout=1)
    assert stored_count(broken) == stored


async def test_during_a_freeze_sends_time_out_and_receives_are_empty(broken: HostedNamespace, client: ServiceBusClient):
    sender, receiver = client.get_queue_sender("flights"), client.get_queue_receiver("flights")
    await send(sender, "before")
    assert len(await receive(receiver)) == 1
    broken.set_fault(Fault(kind=FaultKind.FREEZE))
    with pytest.raises(OperationTimeoutError):
        await send(sender, "during", timeout=1)
    assert await receive(receiver, wait=1) == []
    broken.clear_faults()
    assert [str(message) for message in await receive(receiver)] == ["during"]


async def test_a_freeze_at_an_operation_freezes_that_connection_only(broken: HostedNamespace):
    broken.set_fault(Fault(kind=FaultKind.FREEZE, on=(Operation.SEND,), entity="flights", count=1))
    async with client_of(broken) as client, client_of(broken) as other:
        with pytest.raises(OperationTimeoutError):
            await send(client.get_queue_sender("flights"), timeout=1)
        await send(other.get_queue_sender("flights"))


async def test_packet_loss_is_soon_a_connection_error_for_a_send(broken: HostedNamespace, client: ServiceBusClient):
    sender = client.get_queue_sender("flights")
    await send(sender, "before")
    broken.set_fault(Fault(kind=FaultKind.DROP))
    began = asyncio.get_running_loop().time()
    with pytest.raises(ServiceBusConnectionError, match="amqp:socket-error"):
        await send(sender, "during", timeout=6)
    # Nothing was acknowledged, and the client's TCP gave up after its second; a freeze would be a time-out.
    assert 0.5 < asyncio.get_running_loop().time() - began < 5
    broken.clear_faults()
    await send(sender, "after")
    assert [str(message) for message in await receive(client.get_queue_receiver("flights"))] == ["before", "after"]


async def test_a_dropped_syn_times_out_and_open_connections_stay(broken: HostedNamespace):
    async with client_of(broken) as other, client_of(broken) as client:
        linked = other.get_queue_sender("flights")
        await send(linked)
        broken.set_fault(Fault(kind=FaultKind.DROP, on=(Operation.CONNECT,)))
        with pytest.raises(OperationTimeoutError):
            await send(client.get_queue_sender("flights"), timeout=1)
        await send(linked)
    async with client_of(broken) as later:
        await send(later.get_queue_sender("flights"))
    assert stored_count(broken) == 3


async def test_packet_loss_from_an_operation_on_affects_its_connection_only(broken: HostedNamespace):
    broken.set_fault(Fault(kind=FaultKind.DROP, on=(Operation.SEND,), entity="flights", count=1, duration=0.5))
    async with client_of(broken) as client, client_of(broken) as other:
        sending = asyncio.create_task(send(client.get_queue_sender("flights"), timeout=6))
        await send(other.get_queue_sender("calm"))
        # Shorter than the client's timeout: TCP retransmits what was lost.
        await sending
    assert stored_count(broken) == 1


async def test_a_namespace_stops_during_packet_loss(broken: HostedNamespace, monkeypatch: pytest.MonkeyPatch):
    reader, writer = await asyncio.open_connection(broken.host, broken.amqp_port)
    writer.write(b"AMQP\x03\x01\x00\x00")
    await asyncio.wait_for(reader.readexactly(8), TIMEOUT)
    broken.set_fault(Fault(kind=FaultKind.DROP))
    await asyncio.wait_for(broken.stop(), 1)
    assert await asyncio.wait_for(reader.read(), TIMEOUT) is not None
    writer.close()
    monkeypatch.setattr(packets, "_SO_ATTACH_FILTER", -1)
    with pytest.raises(FaultError, match=r"kind is 'drop'; allowed: on Linux"):
        broken.set_fault(Fault(kind=FaultKind.DROP))
    assert broken.faults == ()


async def test_a_send_with_a_late_disposition_is_stored(broken: HostedNamespace, client: ServiceBusClient):
    broken.set_fault(Fault(kind=FaultKind.LATE_DISPOSITION, delay=0.7))
    sender = client.get_queue_sender("flights")
    began = asyncio.get_running_loop().time()
    await send(sender, timeout=5)
    assert asyncio.get_running_loop().time() - began > 0.6
    with pytest.raises(OperationTimeoutError):
        await send(sender, timeout=0.3)
    assert stored_count(broken) == 2


@pytest.mark.parametrize("kind", [FaultKind.RELEASED, FaultKind.MODIFIED])
async def test_a_released_or_modified_send_hangs_even_with_a_timeout(
    broken: HostedNamespace, client: ServiceBusClient, kind: FaultKind
):
    sender = client.get_queue_sender("flights")
    await send(sender)
    broken.set_fault(Fault(kind=kind, count=1))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(sender.send_messages(ServiceBusMessage("x"), timeout=0.5), 2)
    assert stored_count(broken) == 1
