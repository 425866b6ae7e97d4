"""A missing entity is distinguished from a refused token by a lookup (SPEC sections 4 and 6)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from servicebus_emulator import Emulator, Fault, FaultKind
from servicebus_emulator.arm.addresses import Scope
from servicebus_emulator.engine.model.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from servicebus_pair.core import Endpoint, HealthState, NamespacePair
from servicebus_pair.core.model.errors import (
    AuthenticationError,
    EntityNotFoundError,
    RefusedError,
    SendError,
    ServerBusyError,
    ServiceError,
)
from servicebus_pair.core.model.events import Pinged
from servicebus_pair.core.model.usage_meter import Meter
from servicebus_pair.core.sdk.entity_lookup import EntityLookup
from servicebus_pair.core.sdk.namespace_client import NamespaceClient
from tests.core.sdk.administration.test_arm import arm_of, through_arm
from tests.core.support.local_pair import (
    BACKLOG,
    QUICK_OPTIONS,
    LocalPair,
    endpoint,
    messages,
    numbered,
    open_local_pair,
)

TOKEN_NOT_FOUND = Fault(kind=FaultKind.AUTH_FAILURE, status=404)


async def test_section_6_a_deleted_destination_is_dead_lettered_although_its_token_is_refused() -> None:
    async with open_local_pair("flights") as both:
        await both.put_into_backlog("flights", messages(0))
        assert (await both.pair.syphon().drain()).moved == {"flights": 1}
        await both.put_into_backlog("gone", messages(1, 2))
        await both.put_into_backlog("flights", messages(3))
        both.primary.set_fault(TOKEN_NOT_FOUND)
        report = await both.pair.syphon().drain()
        assert (report.moved, report.dead_lettered) == ({"flights": 1}, {"EntityNotFound": 2})
        assert await both.backlog_ids(BACKLOG, dead_letter=True) == ["m1", "m2"]


async def test_section_4_a_send_to_a_missing_entity_is_not_an_outage(local_pair: LocalPair) -> None:
    async with local_pair.pair.sender("flights") as sender:
        await sender.send(numbered(1))
    local_pair.primary.set_fault(TOKEN_NOT_FOUND)
    async with local_pair.pair.sender("gone") as sender:
        with pytest.raises(SendError) as caught:
            await sender.send(numbered(2))
    assert isinstance(caught.value.cause, EntityNotFoundError)
    assert len(caught.value.unsent) == 2
    assert local_pair.pair.health("gone").state is HealthState.HEALTHY


async def test_section_4_arm_is_used_for_the_lookup_without_data_plane_rights() -> None:
    """A credential that may only send, and one for Resource Manager."""
    async with Emulator(["contoso", "contoso-dr"]) as emulator:
        primary = emulator["contoso"]
        primary.namespace.create_queue(QueueDescription("flights"))
        primary.set_fault(TOKEN_NOT_FOUND)
        unmanaged = replace(through_arm(emulator, "contoso"), administration="127.0.0.1:9")
        # An attempt ends with the interval, and the lookup with the attempt.
        options = replace(QUICK_OPTIONS, failover_interval=timedelta(seconds=20))
        async with NamespacePair(unmanaged, endpoint(emulator["contoso-dr"]), options) as pair:
            for entity, error in (("gone", EntityNotFoundError), ("flights", AuthenticationError)):
                async with pair.sender(entity) as sender:
                    with pytest.raises(SendError) as caught:
                        await sender.send(numbered(1))
                assert type(caught.value.cause) is error
                assert "cannot look up" not in str(caught.value)


async def test_section_4_arm_finds_queues_and_topics_and_rejects_a_wrong_namespace() -> None:
    async with Emulator(["contoso"]) as emulator:
        emulator["contoso"].namespace.create_queue(QueueDescription("flights/today"))
        emulator["contoso"].namespace.create_topic(TopicDescription("gates"))
        emulator["contoso"].namespace.create_subscription(SubscriptionDescription("gates", "all"))
        known = through_arm(emulator, "contoso")
        async with arm_of(known) as right, arm_of(replace(known, namespace="fabrikam")) as wrong:
            for path in ("flights/today", "gates", "gates/Subscriptions/all"):
                assert await right.entity_exists(path), path
            for path in ("gone", "gates/Subscriptions/gone", "gone/Subscriptions/all"):
                assert not await right.entity_exists(path), path
            with pytest.raises(
                RefusedError, match=f"namespace fabrikam is not in resource group '{Scope().resource_group}'"
            ):
                await wrong.entity_exists("flights/today")


@pytest.mark.simulated
@pytest.mark.parametrize("token_refused", [True, False], ids=["its token is refused", "its link is refused"])
async def test_section_5_an_entity_deleted_while_failed_over_fails_back(
    local_pair: LocalPair, token_refused: bool
) -> None:
    async with local_pair.pair.sender("flights") as sender:
        local_pair.primary.set_fault(Fault(kind=FaultKind.INTERNAL_ERROR))
        assert (await sender.send(numbered(1))).diverted == 1
        local_pair.primary.namespace.delete_queue("flights")
        local_pair.primary.clear_faults()
        if token_refused:
            local_pair.primary.set_fault(TOKEN_NOT_FOUND)
        await asyncio.wait_for(local_pair.recorder.recovered.wait(), 10)
        assert local_pair.pair.health("flights").reason == "the primary answered a ping that the entity does not exist"
        with pytest.raises(SendError) as caught:
            await sender.send(numbered(2, start=1))
    assert isinstance(caught.value.cause, EntityNotFoundError)
    assert len(caught.value.unsent) == 2
    assert [(ping.succeeded, ping.error) for ping in local_pair.recorder.of(Pinged)][-1] == (
        False,
        "EntityNotFoundError",
    )


async def test_section_5_a_refused_token_for_an_existing_entity_keeps_it_failed_over(local_pair: LocalPair) -> None:
    async with local_pair.pair.sender("flights") as sender:
        await sender.send(numbered(1))
    await local_pair.pair.fail_over("flights", reason="test")
    local_pair.primary.set_fault(Fault(kind=FaultKind.RESET, count=1))
    local_pair.primary.set_fault(TOKEN_NOT_FOUND)
    assert not await local_pair.pair.ping("flights")
    assert not await local_pair.pair.ping("flights")
    assert local_pair.pair.health("flights").failed_over
    assert "AuthenticationSuspectError" in {ping.error for ping in local_pair.recorder.of(Pinged)}


@pytest.mark.parametrize("sub_queue", ["", "/$DeadLetterQueue", "/$Transfer/$DeadLetterQueue"])
@pytest.mark.parametrize(
    ("entity", "error"),
    [
        ("flights", AuthenticationError),
        ("gone", EntityNotFoundError),
        ("gates/Subscriptions/all", AuthenticationError),
        ("gates/Subscriptions/gone", EntityNotFoundError),
    ],
)
async def test_section_4_a_sub_queue_is_missing_only_if_its_entity_is(
    entity: str, error: type[ServiceError], sub_queue: str, local_pair: LocalPair
) -> None:
    namespace = local_pair.primary.namespace
    namespace.create_topic(TopicDescription("gates"))
    namespace.create_subscription(SubscriptionDescription("gates", "all"))
    local_pair.primary.set_fault(TOKEN_NOT_FOUND)
    client = NamespaceClient(endpoint(local_pair.primary))
    try:
        with pytest.raises(ServiceError) as caught:
            await client.receive_link(f"{entity}{sub_queue}").peek(max_messages=1, timeout=5)
    finally:
        await client.close()
    assert type(caught.value) is error
    assert ("gone does not exist on contoso" in str(caught.value)) is entity.endswith("gone")


@pytest.mark.simulated
async def test_section_4_a_lookup_is_reused_for_30_seconds_unless_the_entity_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers: list[bool | Exception] = [True, ServerBusyError("busy"), True, False, False]
    timeouts: list[float] = []

    async def exists(_: object, path: str, *, timeout: float) -> bool:
        timeouts.append(timeout)
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return path != "" and answer

    monkeypatch.setattr(EntityLookup, "_exists", exists)
    text = "Endpoint=sb://contoso.example/;SharedAccessKeyName=n;SharedAccessKey=k"
    lookup = EntityLookup(Endpoint.from_connection_string(text), meter=Meter())
    refused, seen = AuthenticationError("refused"), list[tuple[type, bool]]()
    for pause, timeout in ((0, 9), (29, 9), (1.1, 1), (29, 9), (1.1, 9), (30.1, 9), (0, 9)):
        await asyncio.sleep(pause)
        error = await lookup.explain_auth_failure(refused, "Flights", timeout=timeout)
        seen.append((type(error), error is refused))
        lookup_failed = seen[-1] == (AuthenticationError, False)
        assert ("cannot look up whether Flights exists (ServerBusyError)" in str(error)) is lookup_failed
        assert "FLIGHTS".casefold() in lookup._cache
    same, failed, missing = (
        (AuthenticationError, True),
        (AuthenticationError, False),
        (EntityNotFoundError, False),
    )
    assert seen == [same, same, failed, failed, same, missing, missing]
    assert timeouts == [2, 1, 2, 2, 2]
