"""Prometheus metrics on the administration port, computed on request."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from aiohttp import ClientSession
from azure.servicebus import ServiceBusMessage, ServiceBusReceiveMode, ServiceBusSubQueue
from azure.servicebus.exceptions import MessageLockLostError, ServiceBusError
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from servicebus_emulator import Emulator, Fault, FaultKind, HostedNamespace, metrics
from servicebus_emulator.engine.model.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from tests.emulator.support.sdk_client import SdkClient, connect_sdk

PREFIX = "servicebus_emulator_"


@pytest.fixture
async def hosted(tmp_path: Path) -> AsyncIterator[HostedNamespace]:
    async with Emulator(["contoso"], data=tmp_path) as emulator:
        emulator["contoso"].namespace.create_queue(QueueDescription("flights"))
        yield emulator["contoso"]


@pytest.fixture
async def sdk(hosted: HostedNamespace) -> AsyncIterator[SdkClient]:
    async with connect_sdk(hosted) as opened:
        yield opened


class Scraped:
    """The metrics of one request."""

    def __init__(self, text: str) -> None:
        self.samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]

    def __call__(self, name: str, **labels: str) -> float:
        found = [
            sample.value
            for sample in self.samples
            if sample.name == PREFIX + name and labels.items() <= dict(sample.labels).items()
        ]
        (value,) = found
        return float(value)

    def labels(self, name: str, label: str) -> set[str]:
        return {sample.labels[label] for sample in self.samples if sample.name == PREFIX + name}


async def scrape(hosted: HostedNamespace) -> Scraped:
    async with ClientSession(f"http://{hosted.host}:{hosted.admin_port}") as http, http.get("/metrics") as response:
        assert response.status == 200
        assert response.content_type == "text/plain"
        return Scraped(await response.text())


async def test_messages_are_counted_by_entity_state_and_outcome(hosted: HostedNamespace, sdk: SdkClient):
    async with sdk.queue("flights") as (sender, receiver):
        await sender.send_messages([ServiceBusMessage(str(number)) for number in range(6)])
        await sender.schedule_messages(ServiceBusMessage("later"), datetime.now(tz=UTC) + timedelta(hours=1))
        messages = await receiver.receive_messages(6)
        assert len(messages) == 6
        complete, abandon, defer, dead, *_ = messages
        await receiver.complete_message(complete)
        await receiver.defer_message(defer)
        await receiver.dead_letter_message(dead, reason="no")
        await receiver.abandon_message(abandon)
        found = await scrape(hosted)
    assert found("messages_accepted_total", entity="flights", namespace="contoso") == 7
    # The abandoned message may be out again.
    assert found("messages_delivered_total", entity="flights") in {6, 7}
    for outcome in ("completed", "abandoned", "deferred", "rejected"):
        assert found("messages_settled_total", entity="flights", outcome=outcome) == 1
    assert found("messages_dead_lettered_total", entity="flights") == 1
    assert [found("messages", state=state) for state in ("active", "scheduled", "dead_lettered")] == [4, 1, 1]
    assert found("entity_size_bytes", entity="flights") > 0


async def test_deleted_and_expired_messages_are_counted_separately(hosted: HostedNamespace, sdk: SdkClient):
    options = {"sub_queue": ServiceBusSubQueue.DEAD_LETTER, "receive_mode": ServiceBusReceiveMode.RECEIVE_AND_DELETE}
    hosted.namespace.create_queue(QueueDescription("brief", dead_lettering_on_message_expiration=True))
    async with sdk.queue("brief", **options) as (sender, dead):
        await sender.send_messages(ServiceBusMessage("x", time_to_live=timedelta(minutes=1)))
        hosted.shift_time(timedelta(minutes=2))
        assert len(await dead.receive_messages(1)) == 1
    found = await scrape(hosted)
    assert found("messages_expired_total", entity="brief") == 1
    assert found("messages_dead_lettered_total", entity="brief") == 1
    assert found("messages_settled_total", entity="brief", outcome="deleted") == 1
    assert found("messages", entity="brief", state="dead_lettered") == 0


async def test_lost_locks_duplicates_refusals_and_faults_are_counted(hosted: HostedNamespace, sdk: SdkClient):
    hosted.namespace.create_queue(QueueDescription("once", requires_duplicate_detection=True))
    async with sdk.queue("once") as (sender, receiver):
        for _ in range(2):
            await sender.send_messages(ServiceBusMessage("x", message_id="m"))
        (message,) = await receiver.receive_messages(1)
        hosted.shift_time(timedelta(minutes=2))
        with pytest.raises(MessageLockLostError):
            await receiver.complete_message(message)
        hosted.set_fault(Fault(kind=FaultKind.SERVER_BUSY, count=1))
        with pytest.raises(ServiceBusError):
            await sender.send_messages(ServiceBusMessage("x"))
        hosted.clear_faults()
        found = await scrape(hosted)
    assert found("messages_accepted_total", entity="once") == 2
    assert found("messages_duplicate_total", entity="once") == 1
    assert found("locks_lost_total", entity="once") == 1
    assert found("refusals_total", condition="com.microsoft:message-lock-lost") == 1
    assert found("faults_struck_total", kind="server-busy") == 1


async def test_connections_links_and_the_journal_are_reported(hosted: HostedNamespace, sdk: SdkClient):
    before = await scrape(hosted)
    async with sdk.queue("flights") as (sender, _):
        await sender.send_messages(ServiceBusMessage("x"))
        found = await scrape(hosted)
    assert (before("connections"), before("links")) == (0, 0)
    assert (found("connections"), found("links")) == (2, 2)
    again = await scrape(hosted)
    assert (again("connections"), again("connections_opened_total")) == (0, 2)
    assert found("journal_commits_total") > before("journal_commits_total") > 0
    assert 0 < found("journal_commit_seconds_total") < 60
    assert found("build_info") == 1


async def test_subscriptions_have_their_own_series_and_topics_count_accepted_messages(
    hosted: HostedNamespace, sdk: SdkClient
):
    hosted.namespace.create_topic(TopicDescription("news"))
    for name in ("a", "b"):
        hosted.namespace.create_subscription(SubscriptionDescription("news", name))
    sender = sdk.client.get_topic_sender("news")
    async with sdk.opened(sender):
        await sender.send_messages(ServiceBusMessage("x"))
    found = await scrape(hosted)
    assert found("messages_accepted_total", entity="news") == 1
    assert [found("messages", entity=f"news/Subscriptions/{name}", state="active") for name in ("a", "b")] == [1, 1]
    assert found("entity_size_bytes", entity="news") == 0
    assert found.labels("messages_accepted_total", "entity") == {"flights", "news"}
    assert found.labels("messages_delivered_total", "entity") == {
        "flights",
        "news/Subscriptions/a",
        "news/Subscriptions/b",
    }


async def test_openmetrics_is_used_on_request(hosted: HostedNamespace):
    hosted.set_fault(Fault(kind=FaultKind.SERVER_BUSY))
    headers = {"Accept": "application/openmetrics-text; version=1.0.0"}
    async with (
        ClientSession(f"http://{hosted.host}:{hosted.admin_port}") as http,
        http.get("/metrics", headers=headers) as response,
    ):
        assert response.content_type == "application/openmetrics-text"
        families = list(openmetrics(await response.text()))
    assert PREFIX + "messages_accepted" in {family.name for family in families}


async def test_entities_above_the_limit_share_one_series(hosted: HostedNamespace, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(metrics, "MAX_ENTITY_SERIES", 3)
    for number in range(5):
        hosted.namespace.create_queue(QueueDescription(f"q{number}"))
    found = await scrape(hosted)
    assert found.labels("messages", "entity") == {"flights", "q0", "q1", "(other)"}


async def test_a_queue_may_be_named_metrics_and_each_namespace_has_its_own_registry():
    async with Emulator(["contoso", "contoso-dr"], open=True) as emulator:
        emulator["contoso"].namespace.create_queue(QueueDescription("metrics"))
        both = [await scrape(hosted) for hosted in emulator.namespaces]
        assert [found.labels("connections", "namespace") for found in both] == [{"contoso"}, {"contoso-dr"}]
        address = f"http://127.0.0.1:{emulator['contoso'].admin_port}/metrics?api-version=2021-05"
        async with ClientSession() as http, http.get(address) as response:
            assert "<QueueDescription" in await response.text()
