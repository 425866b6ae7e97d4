"""The unmodified administration client manages entities over real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceNotFoundError
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from azure.servicebus.management import AuthorizationRule, CorrelationRuleFilter
from azure.servicebus.management import ServiceBusAdministrationClient as BlockingAdministrationClient

from servicebus_emulator.admin.operations import Administration
from servicebus_emulator.admin.requests import Request
from servicebus_emulator.engine.model.descriptions import (
    EntityStatus,
    QueueDescription,
)
from servicebus_emulator.engine.model.timespan import TimeSpan
from servicebus_emulator.engine.namespace.namespace import Namespace
from tests.emulator.support.admin_server import admin_server
from tests.emulator.support.authorizers import authorizer_for
from tests.emulator.support.engine import content, queue_of
from tests.emulator.support.manual_clock import ManualClock
from tests.emulator.support.plain_http import BlockingPlainTransport, PlainTransport

BACKLOG = "contoso/x-servicebus-transfer/0"
FAR = 4_000_000_000_000
FOR_EVER = timedelta(days=10675199, hours=2, minutes=48, seconds=5.477581)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def namespace(clock: ManualClock) -> Namespace:
    return Namespace("contoso", clock=clock)


@pytest.fixture
async def connection_string(namespace: Namespace) -> AsyncIterator[str]:
    server = admin_server(namespace, authorizer=authorizer_for(namespace))
    await server.start()
    yield f"Endpoint=sb://127.0.0.1:{server.port};SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE"
    await server.stop()


@pytest.fixture
async def client(connection_string: str) -> AsyncIterator[ServiceBusAdministrationClient]:
    async with ServiceBusAdministrationClient.from_connection_string(
        connection_string, transport=PlainTransport()
    ) as client:
        yield client


async def test_a_queue_is_created_with_the_service_s_defaults(
    client: ServiceBusAdministrationClient, namespace: Namespace
):
    created = await client.create_queue("flights")

    assert namespace.get_queue("flights") == QueueDescription("flights")
    assert created.lock_duration == timedelta(minutes=1)
    assert created.max_delivery_count == 10
    assert created.max_size_in_megabytes == 1024
    assert created.default_message_time_to_live == FOR_EVER
    assert created.auto_delete_on_idle == FOR_EVER
    assert created.enable_batched_operations is True
    assert (created.status, created.availability_status) == ("Active", "Available")


async def test_a_duration_rounded_up_by_the_client_is_refused_as_in_section_3(
    client: ServiceBusAdministrationClient, namespace: Namespace
):
    with pytest.raises(HttpResponseError, match=r"AutoDeleteOnIdle.*P10675199DT2H48M5\.477581S.*at most") as refused:
        await client.create_queue(BACKLOG, auto_delete_on_idle="P10675199DT2H48M5.4775807S")

    assert refused.value.status_code == 400
    assert namespace.list_queues() == ()


async def test_every_property_of_a_queue_is_returned(client: ServiceBusAdministrationClient):
    settings = {
        "auto_delete_on_idle": timedelta(hours=3),
        "dead_lettering_on_message_expiration": True,
        "default_message_time_to_live": timedelta(minutes=11, seconds=32),
        "duplicate_detection_history_time_window": timedelta(minutes=12),
        "enable_batched_operations": False,
        "enable_express": True,
        "enable_partitioning": True,
        "lock_duration": timedelta(seconds=13.5),
        "max_delivery_count": 14,
        "max_size_in_megabytes": 3072,
        "max_message_size_in_kilobytes": 1024,
        "requires_duplicate_detection": True,
        "requires_session": True,
        "user_metadata": "owner <ops> & 'co' \n ",
    }
    rule = AuthorizationRule(
        type="SharedAccessAuthorizationRule",
        claim_type="SharedAccessKey",
        claim_value="None",
        rights=["Send", "Listen"],
        key_name="app",
        primary_key="cHJpbWFyeQ==",
        secondary_key="c2Vjb25kYXJ5",
    )

    await client.create_queue("archive")
    await client.create_queue(
        "q", authorization_rules=[rule], forward_dead_lettered_messages_to="archive", status="SendDisabled", **settings
    )
    queue = await client.get_queue("q")

    assert {name: queue[name] for name in settings} == {**settings, "max_size_in_megabytes": 16 * 3072}
    assert queue.status == "SendDisabled"
    assert queue.forward_dead_lettered_messages_to.endswith("/archive")
    [kept] = queue.authorization_rules
    assert (kept.created_at_utc, kept.modified_at_utc) != (None, None)
    times = {"created_at_utc": kept.created_at_utc, "modified_at_utc": kept.modified_at_utc}
    assert vars(kept) == {**vars(rule), **times}


async def test_every_property_of_a_topic_and_of_a_subscription_is_returned(client: ServiceBusAdministrationClient):
    of_topic = {
        "auto_delete_on_idle": timedelta(hours=3),
        "default_message_time_to_live": timedelta(days=2),
        "duplicate_detection_history_time_window": timedelta(days=7),
        "enable_batched_operations": False,
        "enable_express": True,
        "enable_partitioning": True,
        "max_size_in_megabytes": 2048,
        "max_message_size_in_kilobytes": 512,
        "requires_duplicate_detection": True,
        "support_ordering": False,
        "user_metadata": "delays",
    }
    of_subscription = {
        "auto_delete_on_idle": timedelta(minutes=5),
        "dead_lettering_on_filter_evaluation_exceptions": False,
        "dead_lettering_on_message_expiration": True,
        "default_message_time_to_live": timedelta(seconds=1),
        "enable_batched_operations": False,
        "lock_duration": timedelta(minutes=5),
        "max_delivery_count": 1,
        "requires_session": True,
        "user_metadata": "board",
    }

    await client.create_topic("t", **of_topic)
    await client.create_subscription("t", "s", **of_subscription)
    topic, subscription = await client.get_topic("t"), await client.get_subscription("t", "s")

    assert {name: topic[name] for name in of_topic} == {**of_topic, "max_size_in_megabytes": 16 * 2048}
    assert {name: subscription[name] for name in of_subscription} == of_subscription


async def test_a_path_may_contain_slashes_and_is_case_insensitive(client: ServiceBusAdministrationClient):
    await client.create_queue(BACKLOG)

    assert (await client.get_queue(BACKLOG.upper())).name == BACKLOG.upper()
    assert [queue.name async for queue in client.list_queues()] == [BACKLOG]
    with pytest.raises(ResourceExistsError):
        await client.create_queue(BACKLOG.upper())
    await client.delete_queue(BACKLOG.title())
    assert [queue.name async for queue in client.list_queues()] == []


async def test_subscriptions_of_a_topic_with_slashes_are_found(client: ServiceBusAdministrationClient):
    await client.create_topic("air/delays")
    await client.create_subscription("air/delays", "Board")

    assert (await client.get_subscription("AIR/Delays", "board")).name == "board"
    assert [found.name async for found in client.list_subscriptions("air/delays")] == ["Board"]
    listed = [(topic.name, topic.subscription_count) async for topic in client.list_topics_runtime_properties()]
    assert listed == [("air/delays", 1)]
    await client.delete_subscription("air/delays", "BOARD")
    assert [found.name async for found in client.list_subscriptions("air/delays")] == []


async def test_an_update_changes_its_fields_and_ends_forwarding_if_omitted(
    client: ServiceBusAdministrationClient, namespace: Namespace
):
    await client.create_queue("other")
    queue = await client.create_queue("q", forward_to="other", max_delivery_count=7)
    queue.forward_to = None

    await client.update_queue(queue, lock_duration=timedelta(seconds=30), status="SendDisabled")

    described = namespace.get_queue("q")
    assert described.forward_to is None
    assert described.max_delivery_count == 7
    assert described.lock_duration == TimeSpan.of(timedelta(seconds=30))
    assert described.status is EntityStatus.SEND_DISABLED
    assert described.default_message_time_to_live.unbounded


async def test_topics_and_subscriptions_are_updated(client: ServiceBusAdministrationClient, namespace: Namespace):
    topic = await client.create_topic("t")
    subscription = await client.create_subscription("t", "s")

    await client.update_topic(topic, user_metadata="new")
    await client.update_subscription("t", subscription, max_delivery_count=3)

    assert namespace.get_topic("t").user_metadata == "new"
    assert namespace.get_subscription("t", "s").max_delivery_count == 3


async def test_a_missing_entity_is_not_found(client: ServiceBusAdministrationClient):
    await client.create_topic("t")
    queue = await client.create_queue("gone")
    await client.delete_queue("gone")

    for asked in (
        client.get_queue("gone"),
        client.get_queue_runtime_properties("gone"),
        client.update_queue(queue),
        client.delete_queue("gone"),
        client.get_topic("gone"),
        client.get_subscription("t", "gone"),
        client.create_subscription("gone", "s"),
        client.delete_subscription("t", "gone"),
        client.get_rule("t", "gone", "$Default"),
        anext(client.list_subscriptions("gone")),
    ):
        with pytest.raises(ResourceNotFoundError):
            await asked


async def test_a_name_belongs_to_one_entity_only(client: ServiceBusAdministrationClient):
    await client.create_queue("q")
    await client.create_topic("t")
    await client.create_subscription("t", "s")

    for created in (client.create_queue("T"), client.create_topic("Q"), client.create_subscription("t", "S")):
        with pytest.raises(ResourceExistsError):
            await created


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_delivery_count": 0}, "max_delivery_count is 0; allowed: 1 .. 2147483647"),
        ({"lock_duration": timedelta(minutes=6)}, "lock_duration is 'PT6M'; allowed: .* PT5M"),
        ({"auto_delete_on_idle": timedelta(minutes=1)}, "auto_delete_on_idle is 'PT1M'; allowed: PT5M"),
        (
            {"duplicate_detection_history_time_window": timedelta(seconds=19)},
            "duplicate_detection_history_time_window is 'PT19S'; allowed: PT20S",
        ),
        ({"max_size_in_megabytes": 100_000}, "max_size_in_megabytes is 100000; allowed: 1 .. 81920"),
        ({"user_metadata": "x" * 1025}, "user_metadata is '1025 characters'; allowed: at most 1024"),
        ({"status": "Sleeping"}, "Status is 'Sleeping'; allowed: Active, Disabled, SendDisabled, ReceiveDisabled"),
        ({"forward_to": "bad"}, "forward_to is .*; allowed: the path of a queue or topic that exists"),
    ],
)
async def test_a_value_out_of_range_is_refused_with_its_name_and_range(
    client: ServiceBusAdministrationClient, namespace: Namespace, settings: dict[str, Any], message: str
):
    with pytest.raises(HttpResponseError, match=message) as refused:
        await client.create_queue("bad", **settings)

    assert refused.value.status_code == 400
    assert namespace.list_queues() == ()


async def test_a_long_list_is_complete_with_any_page_size(client: ServiceBusAdministrationClient, namespace: Namespace):
    names = [f"q{number:03}" for number in range(205)]
    for name in names:
        namespace.create_queue(QueueDescription(name))

    assert [queue.name async for queue in client.list_queues()] == names
    assert [queue.name async for queue in client.list_queues(max_page_size=41)] == names
    assert [queue.name async for queue in client.list_queues(start_index=200)] == names[200:]
    pages = [[queue.name async for queue in page] async for page in client.list_queues(max_page_size=205).by_page()]
    assert pages == [names]


async def test_runtime_properties_have_the_times_of_creation_and_update(
    client: ServiceBusAdministrationClient, clock: ManualClock
):
    await client.create_queue("q")
    before = await client.get_queue_runtime_properties("q")
    clock.advance(1)
    await client.update_queue(await client.get_queue("q"), max_delivery_count=5)
    after = await client.get_queue_runtime_properties("q")

    assert before.created_at_utc == before.updated_at_utc == after.created_at_utc < after.updated_at_utc
    assert after.accessed_at_utc == datetime(1, 1, 1, tzinfo=UTC)


async def test_runtime_properties_count_messages_by_state(client: ServiceBusAdministrationClient, namespace: Namespace):
    await client.create_queue("q")
    queue = queue_of(namespace)
    queue.send([content("a flight") for _ in range(5)])
    queue.schedule([content("a flight", scheduled_for=FAR)])
    (taken,) = queue.main.receive(1)
    queue.main.dead_letter(taken.lock.token, reason="bad", description="test")

    seen = await client.get_queue_runtime_properties("q")

    counts = ("active", "scheduled", "dead_letter", "transfer", "transfer_dead_letter", "total")
    assert [getattr(seen, f"{name}_message_count") for name in counts] == [4, 1, 1, 0, 0, 6]
    assert seen.size_in_bytes == 6 * len("a flight")


async def test_a_topic_counts_the_filters_of_its_subscriptions_by_kind(client: ServiceBusAdministrationClient):
    await client.create_topic("t")
    for name in ("s1", "s2"):
        await client.create_subscription("t", name)
    await client.create_rule("t", "s1", "correlated", filter=CorrelationRuleFilter(label="late"))

    properties = await client.get_topic_runtime_properties("t")
    assert (properties.sql_filter_count, properties.correlation_filter_count) == (2, 1)


async def test_the_namespace_reports_its_name(client: ServiceBusAdministrationClient):
    properties = await client.get_namespace_properties()

    assert (properties.name, properties.messaging_sku, properties.namespace_type) == (
        "contoso",
        "Standard",
        "Messaging",
    )


async def test_an_old_api_version_lacks_later_properties(connection_string: str):
    def administer() -> tuple[int | None, int | None]:
        with BlockingAdministrationClient.from_connection_string(
            connection_string, transport=BlockingPlainTransport(), api_version="2017-04"
        ) as client:
            with pytest.raises(HttpResponseError, match=r"MaxMessageSizeInKilobytes .* none before api-version 2021"):
                client.create_queue("q", max_message_size_in_kilobytes=1024)
            topic = client.create_topic("t")
            return topic.max_message_size_in_kilobytes, client.get_topic_runtime_properties("t").sql_filter_count

    assert await asyncio.to_thread(administer) == (None, None)


async def test_counts_are_in_the_answer_to_a_get_only(namespace: Namespace):
    administration = Administration(namespace, clock=ManualClock())
    request = Request(
        method="PUT",
        origin="http://localhost",
        raw_path="/flights",
        query={"api-version": "2021-05"},
        update=False,
        body=(
            b'<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml"><QueueDescription xmlns='
            b'"http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"/></content></entry>'
        ),
    )
    for method, counted in (("PUT", False), ("GET", True)):
        answered = administration.handle(replace(request, method=method)).document
        assert (b"CountDetails" in answered) is counted
        assert b"<MessageCount>0</MessageCount>" in answered
