"""Calls, counts, errors and durations of the data-plane administration client (SPEC section 3)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    ResourceExistsError,
    ResourceNotFoundError,
)
from azure.servicebus.management import EntityStatus

from servicebus_pair.core import Endpoint
from servicebus_pair.core.model import errors
from servicebus_pair.core.model.usage_meter import Meter
from servicebus_pair.core.protocol.backlog_queues import BACKLOG_QUEUE, MAX_TIME_SPAN
from servicebus_pair.core.sdk.administration import administration_for
from servicebus_pair.core.sdk.administration.data_plane import (
    QueueDepth,
    SdkAdministration,
    ServiceBusAdministration,
    classify_http,
)
from servicebus_pair.core.sdk.http import guarded_transport

KEY = "SharedAccessKeyName=n;SharedAccessKey=k"
LOCAL = f"Endpoint=sb://127.0.0.1:5672;{KEY};UseDevelopmentEmulator=true"
UNLIMITED = timedelta(days=10_675_199, hours=2, minutes=48, seconds=5, microseconds=477_581)
COUNTS = ("active", "scheduled", "dead_letter", "transfer", "transfer_dead_letter")


def endpoint(text: str = LOCAL) -> Endpoint:
    return Endpoint.from_connection_string(text, namespace="contoso", administration="127.0.0.1:5300")


def managing(**calls: Any) -> ServiceBusAdministration:
    """An administration over a client with only these calls."""
    administration = ServiceBusAdministration(endpoint())
    administration._client = SimpleNamespace(**calls)  # type: ignore[assignment]
    return administration


def answering(answer: Any) -> Any:
    async def call(*_: Any, **__: Any) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    return call


def queue(name: str, **more: Any) -> Any:
    missing = dict.fromkeys(("size_in_bytes", "total_message_count", *(f"{count}_message_count" for count in COUNTS)))
    return SimpleNamespace(name=name, **{**missing, **more})


def http_error(status: int | None) -> HttpResponseError:
    error = HttpResponseError("no")
    error.status_code = status
    return error


@pytest.mark.parametrize(
    ("failure", "kind", "text"),
    [
        (http_error(401), errors.AuthenticationError, r"HTTP 401 \(the Manage right is needed\): no"),
        (http_error(403), errors.AuthorizationError, r"HTTP 403 \(the Manage right is needed\): no"),
        (http_error(429), errors.ServerBusyError, "HTTP 429: no"),
        (http_error(503), errors.ServerBusyError, "HTTP 503: no"),
        (http_error(500), errors.ServiceFaultError, "HttpResponseError"),
        (ResourceExistsError("409"), errors.EntityExistsError, "create q: it exists"),
        (ResourceNotFoundError("404"), errors.EntityNotFoundError, "404"),
        (TimeoutError(), errors.TimedOutError, "TimeoutError"),
        (ClientAuthenticationError("no token"), errors.AuthenticationError, "no token"),
    ],
    ids=str,
)
def test_section_3_a_failed_call_is_classified_by_its_status(failure: Exception, kind: type, text: str) -> None:
    error = classify_http(failure, "create q")
    assert type(error) is kind
    with pytest.raises(kind, match=f"^create q: .*{text}|^{text}"):
        raise error


@pytest.mark.simulated
async def test_section_3_every_call_is_counted_and_ends_within_30_seconds() -> None:
    meter, started = Meter(), asyncio.get_running_loop().time()
    administration = SdkAdministration(meter=meter, where="contoso")
    with pytest.raises(errors.TimedOutError):
        await administration._call("read q", asyncio.sleep(60))
    assert asyncio.get_running_loop().time() - started == pytest.approx(30, abs=0.1)
    assert await administration._call("read q", asyncio.sleep(0, 5)) == 5
    assert meter.read().management_calls == 2


@pytest.mark.parametrize("name", COUNTS)
async def test_section_3_messages_of_every_kind_are_counted_and_deferred_ones_in_the_total(name: str) -> None:
    for total, count in ((None, 3), (2, 3), (5, 5)):
        found = queue("q", **{f"{name}_message_count": 3, "total_message_count": total})
        assert await managing(get_queue_runtime_properties=answering(found)).message_count("q") == count


@pytest.mark.parametrize("name", ["total", *COUNTS])
@pytest.mark.parametrize("lie", [-1, 2**53 + 1, 2**70])
async def test_an_impossible_count_is_an_error_of_the_service(name: str, lie: int) -> None:
    async def listed() -> AsyncIterator[Any]:
        yield found

    # One that makes up for it: a queue is deleted only if it is empty.
    found = queue("q", **{"size_in_bytes": lie, "active_message_count": 1, f"{name}_message_count": lie})
    managed = managing(get_queue_runtime_properties=answering(found), list_queues_runtime_properties=listed)
    for call in (managed.message_count("q"), managed.queue_depths("q")):
        with pytest.raises(errors.ServiceFaultError, match=r"a count below 0 or above 2\^53"):
            await call


async def test_a_queue_whose_messages_are_not_counted_is_not_known_to_be_empty() -> None:
    managed = managing(get_queue_runtime_properties=answering(queue("q")))
    with pytest.raises(errors.ServiceFaultError, match="does not say how many messages the queue holds"):
        await managed.message_count("q")


@pytest.mark.parametrize("failure", [ValueError("\nx"), TypeError("\nx")])
async def test_an_answer_that_cannot_be_read_is_an_error_of_the_service(failure: Exception) -> None:
    async def read_answer() -> None:
        left = guarded_transport._left.get()
        assert left is not None
        left[0] -= 1
        raise failure

    with pytest.raises(errors.ServiceFaultError, match=r"^read q on contoso: the answer cannot be read: x$"):
        await managing()._call("read q", read_answer())
    with pytest.raises(errors.InvalidMessageError):
        await managing(get_queue=answering(failure)).entity_exists("q")


async def test_section_3_depths_are_those_of_queues_with_the_prefix_in_any_case() -> None:
    async def listed() -> AsyncIterator[Any]:
        yield queue("Contoso/1", active_message_count=1, scheduled_message_count=2, dead_letter_message_count=3)
        yield queue("contoso/2", size_in_bytes=4)
        yield queue("fabrikam/1")
        yield queue("orders/1")

    found = await managing(list_queues_runtime_properties=listed).queue_depths("CONTOSO/", "orders")
    depths = [
        QueueDepth("Contoso/1", 1, 2, 3, 0),
        QueueDepth("contoso/2", 0, 0, 0, 4),
        QueueDepth("orders/1", 0, 0, 0, 0),
    ]
    assert found == depths


async def test_section_3_settings_are_listed_with_unlimited_durations_as_the_service_writes_them() -> None:
    async def listed() -> AsyncIterator[Any]:
        yield SimpleNamespace(
            name="q",
            max_size_in_megabytes=5120,
            max_delivery_count=2_147_483_647,
            default_message_time_to_live=UNLIMITED,
            auto_delete_on_idle=MAX_TIME_SPAN,
            lock_duration=timedelta(minutes=1),
            dead_lettering_on_message_expiration=True,
            enable_batched_operations=True,
            requires_session=False,
            status=EntityStatus.ACTIVE,
        )
        yield SimpleNamespace(
            name="odd",
            max_size_in_megabytes=None,
            max_delivery_count=None,
            default_message_time_to_live=timedelta(days=10_675_198),
            auto_delete_on_idle=timedelta(hours=1),
            lock_duration="PT5S",
            dead_lettering_on_message_expiration=None,
            enable_batched_operations=False,
            requires_session=True,
            status="Odd",
        )

    found = await managing(list_queues=listed).list_queues()
    assert found["q"] == BACKLOG_QUEUE
    odd = found["odd"]
    assert (odd.max_size_in_megabytes, odd.max_delivery_count, odd.default_message_time_to_live) == (0, 0, "P10675198D")
    assert (odd.auto_delete_on_idle, odd.lock_duration, odd.status) == ("PT1H", "PT5S", "Odd")
    assert (odd.dead_lettering_on_message_expiration, odd.enable_batched_operations) == (False, False)
    assert odd.requires_session


@pytest.mark.parametrize("durations", [{}, {"default_message_time_to_live": "P1D", "auto_delete_on_idle": "P1000D"}])
async def test_section_3_a_queue_is_created_without_unlimited_durations(durations: dict[str, Any]) -> None:
    created: list[Any] = []

    async def create(path: str, **settings: Any) -> None:
        created.append((path, settings))

    await managing(create_queue=create).create_queue("q", replace(BACKLOG_QUEUE, **durations))
    assert created == [
        (
            "q",
            {
                "max_size_in_megabytes": 5120,
                "max_delivery_count": 2_147_483_647,
                "lock_duration": "PT1M",
                "dead_lettering_on_message_expiration": True,
                "enable_batched_operations": True,
                "requires_session": False,
                **durations,
            },
        )
    ]


@pytest.mark.parametrize(
    ("enabled", "status", "idle"),
    [
        (True, EntityStatus.ACTIVE, timedelta(hours=1)),
        (False, EntityStatus.SEND_DISABLED, timedelta(days=1000)),
    ],
)
async def test_section_3_the_status_is_changed_and_unlimited_durations_are_left_out(
    enabled: bool, status: EntityStatus, idle: timedelta
) -> None:
    found = SimpleNamespace(status="", default_message_time_to_live=UNLIMITED, auto_delete_on_idle=idle)
    updated: list[Any] = []

    async def update(changed: Any) -> None:
        updated.append(changed)

    await managing(get_queue=answering(found), update_queue=update).set_sending("q", enabled=enabled)
    assert updated == [found]
    assert (found.status, found.default_message_time_to_live, found.auto_delete_on_idle) == (status, None, idle)


@pytest.mark.parametrize(
    ("of_queue", "of_topic", "exists"),
    [("q", "t", True), (ResourceNotFoundError(), "t", True), (ResourceNotFoundError(), ResourceNotFoundError(), False)],
)
async def test_section_4_an_entity_is_a_queue_or_a_topic(of_queue: Any, of_topic: Any, exists: bool) -> None:
    administration = managing(get_queue=answering(of_queue), get_topic=answering(of_topic))
    assert await administration.entity_exists("q") is exists


@pytest.mark.parametrize("path", ["gates/Subscriptions/all", "gates/subscriptions/all"])
async def test_section_4_a_subscription_is_looked_up_in_its_topic(path: str) -> None:
    asked: list[tuple[str, str]] = []

    async def get_subscription(topic: str, name: str) -> None:
        asked.append((topic, name))

    assert await managing(get_subscription=get_subscription).entity_exists(path)
    assert asked == [("gates", "all")]
    assert not await managing(get_subscription=answering(ResourceNotFoundError())).entity_exists(path)


async def test_section_4_a_failed_lookup_is_raised() -> None:
    with pytest.raises(errors.AuthorizationError, match="read queue q on contoso"):
        await managing(get_queue=answering(http_error(403)), get_topic=None).entity_exists("q")


async def test_the_administration_may_be_at_another_address_than_the_namespace() -> None:
    async with administration_for(endpoint(LOCAL.replace("KeyName=n", "KeyName=127.0.0.1:5672"))) as administration:
        client: Any = administration._client  # type: ignore[attr-defined]
        assert (client.fully_qualified_namespace, client._credential.policy) == ("127.0.0.1:5300", "127.0.0.1:5672")


async def test_the_emulator_is_called_over_http_and_other_namespaces_over_https() -> None:
    local = ServiceBusAdministration(replace(endpoint(), ca_file="ca.pem"))
    remote = replace(endpoint(LOCAL.replace("=true", "=false")), ca_file="ca.pem")
    assert local._client._pipeline._transport._plain
    assert local._client._pipeline._transport._ca_file is None
    async with administration_for(remote) as administration:
        assert isinstance(administration, ServiceBusAdministration)
        assert not administration._client._pipeline._transport._plain
        assert administration._client._pipeline._transport._ca_file == "ca.pem"
    assert local._client._config.retry_policy.total_retries == 0
    await local._client.close()
