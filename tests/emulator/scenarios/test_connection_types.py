"""One port serves AMQP in clear, under TLS and over WebSocket, and administration over HTTP and HTTPS."""

from __future__ import annotations

import asyncio
import gc
import socket

import pytest
from azure.servicebus import ServiceBusClient as BlockingServiceBusClient
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from azure.servicebus.management import ServiceBusAdministrationClient as BlockingAdministrationClient

from servicebus_emulator import Emulator, Fault, FaultKind, HostedNamespace, Operation
from tests.emulator.support.sdk_client import client_options, open_link

# azure-servicebus 7.15 asks aiohttp for a WebSocket in clear with ssl=None.
pytestmark = pytest.mark.filterwarnings("ignore:ssl=None is deprecated:DeprecationWarning")
LARGE = "x" * 200_000


WAYS = ("in clear", "TLS", "WebSocket", "WebSocket under TLS")


@pytest.mark.parametrize("way", WAYS)
async def test_the_asynchronous_sdk_sends_and_receives(hosted: HostedNamespace, way: str):
    connection, options = client_options(hosted)[way]
    async with ServiceBusClient.from_connection_string(connection, retry_total=0, **options) as client:
        sender, receiver = client.get_queue_sender("flights"), client.get_queue_receiver("flights")
        await open_link(sender)
        await open_link(receiver)
        await sender.send_messages(ServiceBusMessage(LARGE), timeout=5)
        [message] = await receiver.receive_messages(1, max_wait_time=5)
        await receiver.complete_message(message)
        assert str(message) == LARGE


# What differs from the asynchronous one is its WebSocket.
@pytest.mark.parametrize("way", WAYS[3:])
async def test_the_synchronous_sdk_sends_and_receives(hosted: HostedNamespace, way: str):
    connection, options = client_options(hosted)[way]

    def send_and_receive() -> str:
        with (
            BlockingServiceBusClient.from_connection_string(connection, retry_total=0, **options) as client,
            client.get_queue_sender("flights") as sender,
            client.get_queue_receiver("flights") as receiver,
        ):
            sender.send_messages(ServiceBusMessage(LARGE), timeout=5)
            [message] = receiver.receive_messages(1, max_wait_time=5)
            receiver.complete_message(message)
            return str(message)

    assert await asyncio.to_thread(send_and_receive) == LARGE


async def test_one_connection_string_serves_messages_and_administration(hosted: HostedNamespace):
    ca_file = str(hosted.ca_file)
    for connection in (hosted.connection_string, hosted.tls_connection_string, hosted.admin_connection_string):
        client = ServiceBusAdministrationClient.from_connection_string(connection, connection_verify=ca_file)
        async with client:
            assert [queue.name async for queue in client.list_queues()] == ["flights"]

    def list_queues(connection: str) -> list[str]:
        with BlockingAdministrationClient.from_connection_string(connection, connection_verify=ca_file) as client:
            return [queue.name for queue in client.list_queues()]

    assert await asyncio.to_thread(list_queues, hosted.tls_connection_string) == ["flights"]
    assert await asyncio.to_thread(list_queues, hosted.admin_connection_string) == ["flights"]


# Those in clear have modules of their own.
@pytest.mark.parametrize("way", ["TLS", "WebSocket"])
async def test_connection_faults_apply_to_every_transport(hosted: HostedNamespace, way: str):
    connection, options = client_options(hosted)[way]
    async with ServiceBusClient.from_connection_string(connection, retry_total=0, **options) as client:
        sender = client.get_queue_sender("flights")

        async def send(timeout: float = 3) -> None:
            await asyncio.wait_for(sender.send_messages(ServiceBusMessage("x"), timeout=timeout), 8)

        await send()
        for fault in (
            Fault(kind=FaultKind.RESET, on=(Operation.SEND,), count=1),
            Fault(kind=FaultKind.RESET, on=(Operation.CONNECT,), count=1),
        ):
            hosted.set_fault(fault)
            with pytest.raises(Exception, match=r"."):
                await send()
        await send()
        began = asyncio.get_running_loop().time()
        hosted.set_fault(Fault(kind=FaultKind.LATENCY, delay=0.3))
        await send()
        assert asyncio.get_running_loop().time() - began > 0.29
        hosted.set_fault(Fault(kind=FaultKind.FREEZE, duration=0.5))
        await send()
        assert asyncio.get_running_loop().time() - began > 0.8
        hosted.clear_faults()


async def test_replies_do_not_wait_for_tcp_acknowledgements():
    """Nagle's algorithm would delay small replies until the client's kernel acknowledges, after 40 ms."""
    async with Emulator(["contoso"], host="localhost") as emulator:
        reader, writer = await asyncio.open_connection(emulator["contoso"].host, emulator["contoso"].amqp_port)
        writer.write(b"AMQP\x03\x01\x00\x00")
        assert await reader.readexactly(8) == b"AMQP\x03\x01\x00\x00"
        own = writer.get_extra_info("sockname")
        # Not by isinstance, which raises for dead weak proxies.
        ends = [each for each in gc.get_objects() if type(each) is socket.socket and peer_of(each) == own]
        assert [each.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) for each in ends] == [1]
        writer.close()
        await writer.wait_closed()


def peer_of(end: socket.socket) -> object:
    try:
        return end.getpeername()
    except OSError:
        return None
