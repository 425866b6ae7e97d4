"""A closed connection frees its memory at once, without the garbage collector."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, TransportType
from azure.servicebus.aio import ServiceBusClient
from proton import Delivery

from servicebus_emulator import Emulator, HostedNamespace
from servicebus_emulator.amqp.session.connection import AmqpConnection
from servicebus_emulator.engine.model.descriptions import QueueDescription
from tests.emulator.support import hostile_bytes as hostility
from tests.emulator.support.proton_client import attach_links, connected, send_messages

pytestmark = pytest.mark.filterwarnings("ignore:ssl=None is deprecated:DeprecationWarning")


# Connections of other tests, which may last for as long as this process.
_others: set[int] = set()


@pytest.fixture(autouse=True)
def no_garbage_is_collected() -> Iterator[None]:
    gc.collect()
    _others.clear()
    _others.update(id(each) for each in all_connections())
    gc.disable()
    yield
    gc.enable()


def all_connections() -> list[object]:
    return [each for each in gc.get_objects() if type(each) is AmqpConnection]


def connections() -> int:
    return sum(id(each) not in _others for each in all_connections())


async def all_are_gone() -> bool:
    """Whether no connection is left, as soon as the other side has noticed that its peer went."""
    for _ in range(100):
        if connections() == 0:
            return True
        await asyncio.sleep(0.02)
    return False


@pytest.mark.parametrize("under_tls", [False, True])
@pytest.mark.parametrize("way", [TransportType.Amqp, TransportType.AmqpOverWebsocket])
async def test_an_sdk_connection_leaks_nothing(hosted: HostedNamespace, way: TransportType, *, under_tls: bool):
    options: dict[str, Any] = {"transport_type": way, "custom_endpoint_address": hosted.endpoint_address}
    if under_tls:
        options["connection_verify"] = str(hosted.ca_file)
    address = hosted.tls_connection_string if under_tls else hosted.connection_string
    async with ServiceBusClient.from_connection_string(address, **options) as client:
        async with client.get_queue_sender("flights") as sender:
            await sender.send_messages([ServiceBusMessage("x"), ServiceBusMessage("y")])
        async with client.get_queue_receiver("flights") as receiver:
            [first] = await receiver.receive_messages(1, max_wait_time=5)
            await receiver.complete_message(first)
            await receiver.peek_messages(1)
            assert connections() > 0
    assert await all_are_gone()


async def test_a_connection_broken_during_deliveries_leaks_nothing():
    async with Emulator(["contoso"], open=True) as emulator:
        hosted = emulator["contoso"]
        hosted.namespace.create_queue(QueueDescription("flights"))
        async with connected(hosted) as peer:
            sender, _ = await attach_links(peer, credit=10)
            await send_messages(peer, sender)
            await peer.until(lambda: len(peer.received) == 1)
            peer.received[0][0].update(Delivery.ACCEPTED)
            sender.delivery("half")
            sender.send(b"\x00Su\xa0\x01")
            peer.push()
            peer.writer.transport.abort()
        assert await all_are_gone()


async def test_a_connection_with_malformed_bytes_leaks_nothing(hosted: HostedNamespace):
    async with connected(hosted) as peer:
        peer.writer.write(b"".join(hostility.begun()) + b"\x00\x00\x00\x08\x01\x00\x00\x00")
        async with asyncio.timeout(3):
            await peer.reader.read()
    assert await all_are_gone()


@pytest.mark.parametrize("sent", [hostility.SASL_HEADER, hostility.SASL_HEADER + bytes(8)], ids=["begun", "refused"])
async def test_a_connection_that_ends_during_sasl_leaks_nothing(hosted: HostedNamespace, sent: bytes):
    async with connected(hosted) as peer:
        peer.writer.write(sent)
        async with asyncio.timeout(3):
            assert await peer.reader.read(8) == hostility.SASL_HEADER
    assert await all_are_gone()
