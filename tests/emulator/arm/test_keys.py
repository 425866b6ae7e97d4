"""The unmodified azure-mgmt-servicebus manages authorization rules and keys."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError
from azure.mgmt.servicebus.aio import ServiceBusManagementClient
from azure.mgmt.servicebus.models import (
    RegenerateAccessKeyParameters,
    SBAuthorizationRule,
    SBAuthorizationRuleProperties,
)
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import ServiceBusAuthenticationError

from servicebus_emulator import Emulator, HostedNamespace
from servicebus_emulator.engine.model.descriptions import QueueDescription, TopicDescription
from tests.emulator.support.arm_client import GROUP, PREFIX

CONTOSO = (GROUP, "contoso")
ROOT = "RootManageSharedAccessKey"
# What is asked, by whose rules are meant.
PLACES = {"namespaces": CONTOSO, "queues": (*CONTOSO, "dir~q"), "topics": (*CONTOSO, "t")}


@pytest.fixture(autouse=True)
async def entities(contoso: HostedNamespace) -> None:
    contoso.namespace.create_queue(QueueDescription("dir/q"))
    contoso.namespace.create_topic(TopicDescription("t"))


def rule(*rights: str) -> SBAuthorizationRule:
    return SBAuthorizationRule(properties=SBAuthorizationRuleProperties(rights=list(rights)))


@pytest.mark.parametrize("kind", PLACES)
async def test_rules_are_created_returned_listed_and_deleted(arm: ServiceBusManagementClient, kind: str):
    operations, place = getattr(arm, kind), PLACES[kind]
    put = await operations.create_or_update_authorization_rule(*place, "clients", rule("Send", "listen"))
    way = "" if kind == "namespaces" else f"/{kind}/{place[2]}"
    assert put.id.casefold() == f"{PREFIX}{way}/authorizationRules/clients".casefold()
    assert put.properties.rights == ["Send", "Listen"]
    assert await operations.get_authorization_rule(*place, "Clients") == put
    listed = [each.name async for each in operations.list_authorization_rules(*place)]
    assert set(listed) - {ROOT} == {"clients"}
    await operations.delete_authorization_rule(*place, "clients")
    await operations.delete_authorization_rule(*place, "clients")
    with pytest.raises(ResourceNotFoundError, match="create it first"):
        await operations.get_authorization_rule(*place, "clients")


@pytest.mark.parametrize("kind", PLACES)
async def test_rights_are_returned_in_the_order_given(arm: ServiceBusManagementClient, kind: str):
    operations, place = getattr(arm, kind), PLACES[kind]
    for given in (["Send", "Listen"], ["Listen", "Send"], ["Send", "Listen", "Manage"]):
        await operations.create_or_update_authorization_rule(*place, "clients", rule(*given))
        kept = await operations.get_authorization_rule(*place, "clients")
        assert kept.properties.rights == given


@pytest.mark.parametrize("kind", PLACES)
async def test_keys_are_returned_kept_and_regenerated_separately(
    arm: ServiceBusManagementClient, emulator: Emulator, kind: str
):
    operations, place = getattr(arm, kind), PLACES[kind]
    await operations.create_or_update_authorization_rule(*place, "clients", rule("Send"))
    first = await operations.list_keys(*place, "clients")
    entity = {"namespaces": "", "queues": ";EntityPath=dir/q", "topics": ";EntityPath=t"}[kind]
    assert first.key_name == "clients"
    assert first.primary_connection_string == (
        f"Endpoint=sb://127.0.0.1:{emulator['contoso'].amqp_port};SharedAccessKeyName=clients;"
        f"SharedAccessKey={first.primary_key};UseDevelopmentEmulator=true{entity}"
    )
    assert first.primary_key != first.secondary_key
    await operations.create_or_update_authorization_rule(*place, "clients", rule("Listen"))
    assert await operations.list_keys(*place, "clients") == first
    second = await operations.regenerate_keys(*place, "clients", RegenerateAccessKeyParameters(key_type="SecondaryKey"))
    assert second.primary_key == first.primary_key
    assert second.secondary_key != first.secondary_key
    given = RegenerateAccessKeyParameters(key_type="PrimaryKey", key="b3duIGtleQ==")
    third = await operations.regenerate_keys(*place, "clients", given)
    assert (third.primary_key, third.secondary_key) == ("b3duIGtleQ==", second.secondary_key)


async def test_every_namespace_has_the_well_known_rule(arm: ServiceBusManagementClient):
    [root] = [each async for each in arm.namespaces.list_authorization_rules(*CONTOSO)]
    assert root.name == ROOT
    assert root.properties.rights == ["Listen", "Manage", "Send"]
    assert (await arm.namespaces.list_keys(*CONTOSO, ROOT)).primary_key == "SAS_KEY_VALUE"


async def test_keys_grant_the_rights_of_their_rule(arm: ServiceBusManagementClient, emulator: Emulator):
    await arm.queues.create_or_update_authorization_rule(*CONTOSO, "dir~q", "senders", rule("Send"))
    keys = await arm.queues.list_keys(*CONTOSO, "dir~q", "senders")
    client = ServiceBusClient.from_connection_string(keys.secondary_connection_string, retry_total=0)
    async with client, client.get_queue_sender("dir/q") as sender:
        await sender.send_messages(ServiceBusMessage(b"LH400"))
    assert emulator["contoso"].namespace.counts("dir/q").active == 1
    await arm.queues.regenerate_keys(
        *CONTOSO, "dir~q", "senders", RegenerateAccessKeyParameters(key_type="SecondaryKey")
    )
    client = ServiceBusClient.from_connection_string(keys.secondary_connection_string, retry_total=0)
    async with client:
        with pytest.raises(ServiceBusAuthenticationError):
            async with client.get_queue_sender("dir/q") as sender:
                await sender.send_messages(ServiceBusMessage(b"LH400"))


@pytest.mark.parametrize(
    ("properties", "named"),
    [
        ({}, "properties.rights is missing; allowed: at least one of Manage, Send, Listen"),
        ({"rights": []}, r"properties.rights is \[\]; allowed: at least one"),
        ({"rights": ["Manage"]}, "all of them where Manage is one"),
        ({"rights": ["Read"]}, r'properties.rights\[0\] is "Read"; allowed: Manage, Send, Listen'),
        ({"rights": "Send"}, 'properties.rights is "Send"; allowed: a list'),
    ],
)
async def test_invalid_rights_are_refused(arm: ServiceBusManagementClient, properties: Any, named: str):
    document: Any = {"properties": properties}
    with pytest.raises(HttpResponseError, match=named) as refused:
        await arm.queues.create_or_update_authorization_rule(*CONTOSO, "dir~q", "r", document)
    assert refused.value.status_code == 400


async def test_the_key_to_regenerate_is_required(arm: ServiceBusManagementClient):
    other: Any = {"keyType": "ThirdKey"}
    with pytest.raises(HttpResponseError, match='keyType is "ThirdKey"; allowed: PrimaryKey, SecondaryKey'):
        await arm.namespaces.regenerate_keys(*CONTOSO, ROOT, other)
    none: Any = {}
    with pytest.raises(HttpResponseError, match="keyType is missing; allowed: PrimaryKey, SecondaryKey"):
        await arm.namespaces.regenerate_keys(*CONTOSO, ROOT, none)


async def test_rules_of_a_missing_entity_are_refused(arm: ServiceBusManagementClient):
    with pytest.raises(ResourceNotFoundError, match="the messaging entity 'none'"):
        await arm.queues.create_or_update_authorization_rule(*CONTOSO, "none", "r", rule("Send"))


async def test_no_key_is_logged(arm: ServiceBusManagementClient, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG, logger="servicebus_emulator")
    await arm.queues.create_or_update_authorization_rule(*CONTOSO, "dir~q", "r", rule("Send"))
    keys = await arm.queues.list_keys(*CONTOSO, "dir~q", "r")
    assert keys.primary_key is not None
    assert not any(keys.primary_key in record.getMessage() for record in caplog.records if "azure" not in record.name)
