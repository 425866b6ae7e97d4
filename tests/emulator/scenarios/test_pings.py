"""SPEC 5: a ping is accepted and not delivered, unless `deliver_pings` is set."""

from __future__ import annotations

import pytest
from azure.servicebus import ServiceBusClient as SyncClient
from azure.servicebus import ServiceBusMessage

from servicebus_emulator import Emulator, EmulatorProcess
from servicebus_emulator.config import NamespaceConfig
from servicebus_emulator.engine.model.descriptions import QueueDescription
from tests.emulator.support.sdk_client import bodies, connect_sdk

pytestmark = pytest.mark.simulated

PING = "application/vnd.ms-servicebus-ping"


async def test_pings_are_delivered_in_one_namespace_only():
    configs = [
        NamespaceConfig(name="contoso", queues=(QueueDescription("flights"),), deliver_pings=True),
        NamespaceConfig(name="contoso-dr", queues=(QueueDescription("flights"),)),
    ]
    async with Emulator(["contoso", "contoso-dr"], configs=configs) as emulator:
        for name, expected in (("contoso", ["", "x"]), ("contoso-dr", ["x"])):
            async with connect_sdk(emulator[name]) as sdk, sdk.queue("flights") as (sender, receiver):
                await sender.send_messages(ServiceBusMessage(b"", content_type=PING))
                await sender.send_messages(ServiceBusMessage(b"x"))
                received: list[str] = []
                while len(received) < len(expected):
                    received += bodies(await receiver.receive_messages(max_message_count=2))
                assert received == expected


def test_the_command_line_enables_pings_for_all_namespaces():
    with (
        EmulatorProcess(["contoso"], deliver_pings=True) as process,
        SyncClient.from_connection_string(process["contoso"].connection_string, retry_total=0) as client,
    ):
        path = process["contoso"].create_queue("flights")
        sender, receiver = client.get_queue_sender(path), client.get_queue_receiver(path, max_wait_time=5)
        sender.send_messages(ServiceBusMessage(b"", content_type=PING))
        (ping,) = receiver.receive_messages(max_message_count=1)
        assert ping.content_type == PING
