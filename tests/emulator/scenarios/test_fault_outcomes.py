"""Outcomes of the fault table that combine faults with an operation of the SDK."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable

import pytest
from azure.servicebus import ServiceBusClient as SyncClient
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import ServiceBusConnectionError, ServiceBusError

from servicebus_emulator import EmulatorProcess, Fault, FaultKind, HostedNamespace, Operation
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


async def killed_send(client: ServiceBusClient, kill: Callable[[], None]) -> None:
    sender = client.get_queue_sender("flights")
    await send(sender)
    kill()
    await send(sender)


async def killed_receive(client: ServiceBusClient, kill: Callable[[], None]) -> None:
    receiver = client.get_queue_receiver("flights")
    assert await receive(receiver, wait=1) == []
    kill()
    await receive(receiver)


async def killed_settlement(client: ServiceBusClient, kill: Callable[[], None]) -> None:
    receiver, message = await delivered(client)
    kill()
    await asyncio.wait_for(receiver.complete_message(message), TIMEOUT)


@pytest.mark.parametrize("work", [killed_send, killed_receive, killed_settlement])
async def test_a_process_killed_under_a_live_link_is_a_connection_error_soon(
    work: Callable[[ServiceBusClient, Callable[[], None]], Awaitable[None]],
):
    with EmulatorProcess(["contoso"]) as process:
        served = process["contoso"]
        served.create_queue("flights")
        async with ServiceBusClient.from_connection_string(served.connection_string, retry_total=0) as client:
            with pytest.raises(ServiceBusConnectionError):
                await asyncio.wait_for(work(client, process.kill), TIMEOUT)


async def test_the_sdks_retries_hide_one_reset_of_a_send(broken: HostedNamespace):
    broken.set_fault(Fault(kind=FaultKind.RESET, on=(Operation.SEND,), count=1))
    async with client_of(broken, retries=3) as client:
        await send(client.get_queue_sender("flights"), timeout=7)
    assert stored_count(broken) == 1


async def test_the_sdks_retries_hide_one_reset_of_a_waiting_receiver(broken: HostedNamespace):
    async with client_of(broken, retries=3) as client, client_of(broken) as other:
        receiver = client.get_queue_receiver("flights")
        assert await receive(receiver, wait=1) == []
        broken.set_fault(Fault(kind=FaultKind.RESET, on=(Operation.RECEIVE,), count=1))
        await send(other.get_queue_sender("flights"))
        assert len(await receive_some(receiver)) == 1


async def test_the_sdks_retries_hide_one_reset_of_a_settlement(broken: HostedNamespace):
    async with client_of(broken, retries=3) as client:
        receiver, message = await delivered(client)
        broken.set_fault(Fault(kind=FaultKind.RESET, on=(Operation.SETTLE,), count=1))
        await asyncio.wait_for(receiver.complete_message(message), 60)
    assert stored_count(broken) == 0


def test_a_silent_peer_hangs_the_synchronous_client():
    with EmulatorProcess(["contoso"]) as process:
        served = process["contoso"]
        served.create_queue("flights")
        fault = served.set_fault(Fault(kind=FaultKind.FREEZE))
        ended = threading.Event()

        def work() -> None:
            with (
                SyncClient.from_connection_string(served.connection_string, retry_total=0) as client,
                client.get_queue_sender("flights") as sender,
            ):
                sender.send_messages(ServiceBusMessage("x"), timeout=1)
            ended.set()

        thread = threading.Thread(target=work)
        thread.start()
        assert not ended.wait(2)
        served.clear_faults(fault)
        assert ended.wait(TIMEOUT)
        thread.join()


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


async def test_an_unanswered_settlement_is_retried_through_management_after_a_minute(
    broken: HostedNamespace, client: ServiceBusClient
):
    receiver, message = await delivered(client)
    assert receiver._config.timeout == 60
    receiver._config.timeout = 1
    broken.set_fault(Fault(kind=FaultKind.NO_DISPOSITION, on=(Operation.SETTLE,), count=1))
    started = time.monotonic()
    await asyncio.wait_for(receiver.complete_message(message), TIMEOUT)
    assert stored_count(broken) == 0
    assert time.monotonic() - started > 0.9


async def test_a_port_of_another_protocol_is_an_immediate_error(broken: HostedNamespace):
    address = broken.connection_string.replace(str(broken.amqp_port), str(broken.admin_port))
    async with ServiceBusClient.from_connection_string(address) as client:
        started = time.monotonic()
        with pytest.raises(ServiceBusError, match="Handler failed"):
            await send(client.get_queue_sender("flights"))
        assert time.monotonic() - started < 3
