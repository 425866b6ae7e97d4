"""EMULATOR 2: the rows of the table that no single kind of fault stands for, and the columns of those that do."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta

import pytest
from azure.servicebus import ServiceBusClient as SyncClient
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import (
    OperationTimeoutError,
    ServiceBusAuthenticationError,
    ServiceBusConnectionError,
    ServiceBusError,
)

from servicebus_emulator import EmulatorProcess, Fault, FaultKind, HostedNamespace, Operation
from servicebus_emulator.engine.descriptions import QueueDescription
from servicebus_emulator.engine.timespan import TimeSpan
from tests.emulator.broken import PATIENCE, client_of, held, receive, send

pytestmark = pytest.mark.usefixtures("leaks_collected")


async def test_a_refused_connection_is_a_connection_error_at_once_for_a_receiver_too(broken: HostedNamespace):
    broken.set_fault(Fault(kind=FaultKind.REFUSE))
    async with client_of(broken) as client:
        begun = time.monotonic()
        with pytest.raises(ServiceBusConnectionError):
            await receive(client.get_queue_receiver("flights"))
        assert time.monotonic() - begun < 2


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
    await send(client.get_queue_sender("flights"))
    receiver = client.get_queue_receiver("flights")
    (message,) = await receive(receiver)
    kill()
    await asyncio.wait_for(receiver.complete_message(message), PATIENCE)


@pytest.mark.parametrize("work", [killed_send, killed_receive, killed_settlement])
async def test_a_process_killed_under_a_live_link_is_a_connection_error_soon(
    work: Callable[[ServiceBusClient, Callable[[], None]], Awaitable[None]],
):
    with EmulatorProcess(["contoso"]) as process:
        served = process["contoso"]
        served.create_queue("flights")
        async with ServiceBusClient.from_connection_string(served.connection_string, retry_total=0) as client:
            with pytest.raises(ServiceBusConnectionError):
                await asyncio.wait_for(work(client, process.kill), PATIENCE)


@pytest.mark.parametrize("operation", [Operation.CONNECT, Operation.SEND])
async def test_one_reset_is_made_up_for_by_the_clients_own_retries(broken: HostedNamespace, operation: Operation):
    broken.set_fault(Fault(kind=FaultKind.RESET, on=(operation,), count=1))
    async with client_of(broken, retries=3) as client:
        await send(client.get_queue_sender("flights"), timeout=7)
    assert held(broken) == 1


async def test_one_reset_while_waiting_is_no_message_to_a_receiver_that_may_retry(broken: HostedNamespace):
    async with client_of(broken, retries=3) as client, client_of(broken) as other:
        receiver = client.get_queue_receiver("flights")
        assert await receive(receiver, wait=1) == []
        broken.set_fault(Fault(kind=FaultKind.RESET, on=(Operation.RECEIVE,), count=1))
        await send(other.get_queue_sender("flights"))
        # It comes with the first receive or with the next: no error either way.
        found = [*await receive(receiver, wait=5), *await receive(receiver, wait=2)]
    assert len(found) == 1


async def test_one_reset_in_a_settlement_is_made_up_for_by_the_clients_own_retries(broken: HostedNamespace):
    async with client_of(broken, retries=3) as client:
        await send(client.get_queue_sender("flights"))
        receiver = client.get_queue_receiver("flights")
        (message,) = await receive(receiver)
        broken.set_fault(Fault(kind=FaultKind.RESET, on=(Operation.SETTLE,), count=1))
        await asyncio.wait_for(receiver.complete_message(message), 60)
    assert held(broken) == 0


async def test_a_peer_silent_from_the_start_is_a_time_out_or_nothing_to_a_receiver(broken: HostedNamespace):
    broken.set_fault(Fault(kind=FaultKind.FREEZE))
    async with client_of(broken) as client:
        with suppress(OperationTimeoutError):
            assert await receive(client.get_queue_receiver("flights"), wait=1) == []


def test_a_peer_silent_from_the_start_hangs_the_synchronous_client_in_spite_of_its_timeout():
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
        assert not ended.wait(4)
        served.clear_faults(fault)
        assert ended.wait(PATIENCE)
        thread.join()


async def test_a_settlement_hangs_while_the_peer_is_frozen_under_a_live_link(broken: HostedNamespace):
    async with client_of(broken) as client:
        await send(client.get_queue_sender("flights"))
        receiver = client.get_queue_receiver("flights")
        (message,) = await receive(receiver)
        broken.set_fault(Fault(kind=FaultKind.FREEZE))
        settling = asyncio.ensure_future(receiver.complete_message(message))
        done, _ = await asyncio.wait([settling], timeout=3)
        assert not done
        broken.clear_faults()
        await asyncio.wait_for(settling, PATIENCE)
    assert held(broken) == 0


async def test_packets_lost_are_a_connection_error_to_a_receiver_that_asks_for_more(broken: HostedNamespace):
    async with client_of(broken) as client:
        await send(client.get_queue_sender("flights"))
        receiver = client.get_queue_receiver("flights")
        assert len(await receive(receiver)) == 1
        broken.set_fault(Fault(kind=FaultKind.DROP))
        with pytest.raises(ServiceBusConnectionError):
            await receive(receiver, wait=5)


@pytest.mark.slow
async def test_a_settlement_without_an_answer_is_tried_through_management_after_a_minute(broken: HostedNamespace):
    begun = time.monotonic()
    async with client_of(broken) as client:
        broken.namespace.create_queue(QueueDescription("patient", lock_duration=TimeSpan.of(timedelta(minutes=5))))
        await send(client.get_queue_sender("patient"))
        receiver = client.get_queue_receiver("patient")
        (message,) = await receive(receiver)
        broken.set_fault(Fault(kind=FaultKind.NO_DISPOSITION, on=(Operation.SETTLE,), count=1))
        await asyncio.wait_for(receiver.complete_message(message), 90)
    assert broken.namespace.counts("patient").active == 0
    assert 50 < time.monotonic() - begun < 80


@pytest.mark.parametrize("kind", [FaultKind.SERVER_BUSY, FaultKind.INTERNAL_ERROR])
async def test_a_rejection_that_may_pass_is_made_up_for_by_the_clients_own_retries(
    broken: HostedNamespace, kind: FaultKind
):
    broken.set_fault(Fault(kind=kind, count=1))
    async with client_of(broken, retries=3) as client:
        await send(client.get_queue_sender("flights"), timeout=7)
    assert held(broken) == 1


async def test_a_failure_of_a_token_is_an_authentication_error_for_a_receiver_too(broken: HostedNamespace):
    broken.set_fault(Fault(kind=FaultKind.AUTH_FAILURE, status=503))
    async with client_of(broken) as client:
        with pytest.raises(ServiceBusAuthenticationError):
            await receive(client.get_queue_receiver("flights"))


async def test_a_port_that_speaks_something_else_is_an_error_at_once_and_is_not_tried_again(broken: HostedNamespace):
    address = broken.connection_string.replace(str(broken.amqp_port), str(broken.admin_port))
    async with ServiceBusClient.from_connection_string(address) as client:
        begun = time.monotonic()
        with pytest.raises(ServiceBusError, match="Handler failed"):
            await send(client.get_queue_sender("flights"))
        assert time.monotonic() - begun < 3
