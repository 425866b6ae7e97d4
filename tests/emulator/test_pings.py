"""SPEC 5 and issue 3: a ping is accepted and never delivered, unless `deliver_pings` says that it is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient as SyncClient
from azure.servicebus import ServiceBusMessage

from servicebus_emulator import Emulator, EmulatorProcess
from servicebus_emulator.config import ConfigError, NamespaceConfig, parse_config
from servicebus_emulator.engine.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from servicebus_emulator.engine.entities import QueueEntity, SubscriptionEntity, TopicEntity
from servicebus_emulator.engine.namespace import Namespace
from tests.emulator.broker import content, texts
from tests.emulator.clock import ManualClock
from tests.emulator.talk import bodies, talk

pytestmark = pytest.mark.simulated

PING = "application/vnd.ms-servicebus-ping"


def made(*, deliver_pings: bool) -> Namespace:
    return Namespace("contoso", clock=ManualClock(), deliver_pings=deliver_pings)


def queue_of(namespace: Namespace, **options: bool) -> QueueEntity:
    namespace.create_queue(QueueDescription("flights", **options))
    entity = namespace.find("flights")
    assert isinstance(entity, QueueEntity)
    return entity


def test_a_queue_delivers_pings_where_the_switch_is_on():
    entity = queue_of(made(deliver_pings=True))
    entity.send([content("a"), content("p", ping=True), content("b")])
    assert texts(entity.main.take(5)) == ["a", "p", "b"]


def test_a_topic_delivers_pings_where_the_switch_is_on():
    namespace = made(deliver_pings=True)
    namespace.create_topic(TopicDescription("delays"))
    namespace.create_subscription(SubscriptionDescription("delays", "all"))
    topic, subscription = namespace.find("delays"), namespace.find("delays/Subscriptions/all")
    assert isinstance(topic, TopicEntity)
    assert isinstance(subscription, SubscriptionEntity)
    topic.send([content("p", ping=True)])
    assert texts(subscription.main.take(5)) == ["p"]


def test_pings_that_are_delivered_can_be_duplicates():
    entity = queue_of(made(deliver_pings=True), requires_duplicate_detection=True)
    entity.send([content("p", ping=True)] * 2)
    assert texts(entity.main.take(5)) == ["p"]


@pytest.mark.parametrize("deliver_pings", [True, False])
def test_a_ping_that_is_scheduled_is_delivered_only_where_others_are(*, deliver_pings: bool):
    entity = queue_of(made(deliver_pings=deliver_pings))
    numbers = entity.schedule([content("a"), content("p", ping=True), content("b")])
    assert [number > 0 for number in numbers] == [True, deliver_pings, True]
    assert texts(entity.main.take(5)) == (["a", "p", "b"] if deliver_pings else ["a", "b"])


async def test_one_namespace_may_deliver_pings_and_the_other_not():
    configs = [
        NamespaceConfig(name="contoso", queues=(QueueDescription("flights"),), deliver_pings=True),
        NamespaceConfig(name="contoso-dr", queues=(QueueDescription("flights"),)),
    ]
    async with Emulator(["contoso", "contoso-dr"], configs=configs) as emulator:
        for name, expected in (("contoso", ["", "x"]), ("contoso-dr", ["x"])):
            async with talk(emulator[name]) as sdk, sdk.queue("flights") as (sender, receiver):
                await sender.send_messages(ServiceBusMessage(b"", content_type=PING))
                await sender.send_messages(ServiceBusMessage(b"x"))
                received: list[str] = []
                while len(received) < len(expected):
                    received += bodies(await receiver.receive_messages(max_message_count=2))
                assert received == expected


def test_the_configuration_file_says_which_namespace_delivers_pings():
    namespaces = [{"Name": "contoso", "DeliverPings": True}, {"Name": "contoso-dr"}]
    configs = parse_config(json.dumps({"UserConfig": {"Namespaces": namespaces}}))
    assert [config.deliver_pings for config in configs] == [True, False]


def test_a_switch_that_is_no_boolean_is_refused_by_name():
    namespaces = [{"Name": "contoso", "DeliverPings": "yes"}]
    with pytest.raises(ConfigError, match=r"Namespaces\[0\]\.DeliverPings is 'yes'; allowed: true, false"):
        parse_config(json.dumps({"UserConfig": {"Namespaces": namespaces}}))


def test_the_command_line_has_all_namespaces_deliver_pings(tmp_path: Path):
    config = tmp_path / "config.json"
    config.write_text(
        json.dumps({"UserConfig": {"Namespaces": [{"Name": "contoso", "Queues": [{"Name": "flights"}]}]}})
    )
    with (
        EmulatorProcess(["contoso"], config=config, deliver_pings=True) as process,
        SyncClient.from_connection_string(process["contoso"].connection_string, retry_total=0) as client,
        client.get_queue_sender("flights") as sender,
        client.get_queue_receiver("flights", max_wait_time=5) as receiver,
    ):
        sender.send_messages(ServiceBusMessage(b"", content_type=PING))
        (ping,) = receiver.receive_messages(max_message_count=1)
        assert ping.content_type == PING
