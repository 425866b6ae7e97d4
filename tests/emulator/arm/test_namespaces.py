"""The unmodified azure-mgmt-servicebus manages namespaces."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from ssl import create_default_context
from typing import Any

import pytest
from aiohttp import ClientSession
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError
from azure.identity.aio import ClientSecretCredential
from azure.mgmt.servicebus.aio import ServiceBusManagementClient
from azure.mgmt.servicebus.models import (
    ArmDisasterRecovery,
    ArmDisasterRecoveryProperties,
    CheckNameAvailability,
    NetworkRuleSet,
    NetworkRuleSetProperties,
    NWRuleSetIpRules,
    SBNamespace,
    SBNamespaceProperties,
    SBNamespaceUpdateParameters,
    SBQueue,
    SBSku,
)
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

from servicebus_emulator import Emulator
from servicebus_emulator.arm.addresses import Scope
from servicebus_emulator.engine.namespace.tiers import Tier
from servicebus_emulator.engine.runtime.journal import JournalError
from servicebus_emulator.security.bearer import DEVELOPMENT_CLIENT, Client, Role
from servicebus_emulator.testing.process import EmulatorProcess
from tests.emulator.support.arm_client import GROUP, SCOPE, bearer_token, manage, managed

ROOT = "RootManageSharedAccessKey"


TOKEN = {"Authorization": f"Bearer {bearer_token()}"}


async def make(arm: ServiceBusManagementClient, name: str, **members: Any) -> SBNamespace:
    poller = await arm.namespaces.begin_create_or_update(GROUP, name, SBNamespace(location="westeurope", **members))
    return await asyncio.wait_for(poller.result(), timeout=5)


async def names(arm: ServiceBusManagementClient) -> list[str | None]:
    return [each.name async for each in arm.namespaces.list()]


async def test_one_endpoint_serves_all_namespaces_of_the_process(arm: ServiceBusManagementClient, emulator: Emulator):
    assert await names(arm) == ["contoso", "fabrikam"]
    assert [each.name async for each in arm.namespaces.list_by_resource_group(GROUP.upper())] == ["contoso", "fabrikam"]
    fabrikam = await arm.namespaces.get(GROUP, "Fabrikam")
    assert fabrikam.type == "Microsoft.ServiceBus/namespaces"
    assert fabrikam.properties.service_bus_endpoint == f"https://127.0.0.1:{emulator['fabrikam'].amqp_port}/"
    assert fabrikam.properties.provisioning_state == "Succeeded"


async def test_only_the_configured_subscription_and_resource_group_exist():
    scope = Scope(subscription="5f750a97-50d9-4e36-8081-c9ee4c0210d4", resource_group="airport")
    async with Emulator(["contoso"], arm_scope=scope) as emulator:
        async with manage(emulator.arm_url, ca_file=emulator.ca_file, subscription=scope.subscription) as arm:
            [contoso] = [each async for each in arm.namespaces.list_by_resource_group("airport")]
            assert (contoso.id or "").startswith(f"/subscriptions/{scope.subscription}/resourceGroups/airport/")
            with pytest.raises(
                ResourceNotFoundError, match=f"no resource group '{GROUP}'; allowed: airport"
            ) as refused:
                await arm.namespaces.get(GROUP, "contoso")
            assert refused.value.error.code == "ResourceGroupNotFound"
        async with managed(emulator) as arm:
            with pytest.raises(ResourceNotFoundError, match="SubscriptionNotFound"):
                await names(arm)


async def test_a_missing_namespace_is_not_found(arm: ServiceBusManagementClient):
    with pytest.raises(ResourceNotFoundError, match=r"namespace 'none' .* existing: contoso, fabrikam") as refused:
        await arm.namespaces.get(GROUP, "none")
    assert refused.value.error.code == "ResourceNotFound"


async def test_a_namespace_is_created_served_and_deleted(arm: ServiceBusManagementClient, emulator: Emulator):
    made = await make(arm, "third", sku=SBSku(name="Premium", tier="Premium", capacity=1), tags={"for": "test"})
    assert (made.name, made.location, made.tags) == ("third", "West Europe", {"for": "test"})
    assert await names(arm) == ["contoso", "fabrikam", "third"]
    await arm.queues.create_or_update(GROUP, "third", "q", SBQueue())
    keys = await arm.namespaces.list_keys(GROUP, "third", ROOT)
    client = ServiceBusClient.from_connection_string(keys.primary_connection_string)
    async with client, client.get_queue_sender("q") as sender:
        await sender.send_messages(ServiceBusMessage(b"LH400"))
    assert emulator["third"].namespace.counts("q").active == 1
    port = emulator["third"].amqp_port
    await (await arm.namespaces.begin_delete(GROUP, "third")).result()
    assert await names(arm) == ["contoso", "fabrikam"]
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)
    await (await arm.namespaces.begin_delete(GROUP, "third")).result()


async def test_creation_and_deletion_are_polled_as_at_the_service(emulator: Emulator):
    path = f"/subscriptions/{SCOPE.subscription}/resourceGroups/{GROUP}/providers/Microsoft.ServiceBus/namespaces/third"
    version = "api-version=2024-01-01"
    async with ClientSession(emulator.arm_url, headers=TOKEN) as http:
        ssl = create_default_context(cafile=str(emulator.ca_file))
        body = {"location": "southcentralus", "sku": {"name": "Premium"}}
        async with http.put(f"{path}?{version}", json=body, ssl=ssl) as response:
            made = await response.json()
        assert (response.status, made["sku"]["capacity"]) == (200, 1)
        assert made["location"] == "South Central US"
        assert (made["properties"]["provisioningState"], made["properties"]["status"]) == ("Created", "Activating")
        async with http.get(f"{path}?{version}", ssl=ssl) as response:
            shown = (await response.json())["properties"]
        assert (shown["provisioningState"], shown["status"]) == ("Succeeded", "Active")
        async with http.put(f"{path}?{version}", json=body, ssl=ssl) as response:
            assert response.status == 200
        async with http.delete(f"{path}?{version}", ssl=ssl) as response:
            assert response.status == 202
            results = response.headers["Location"]
        assert results == f"{emulator.arm_url}{path}/operationresults/third?{version}"
        async with http.get(results, ssl=ssl) as response:
            assert (response.status, await response.read()) == (200, b"")


async def test_what_is_in_a_namespace_has_its_location(arm: ServiceBusManagementClient):
    await make(arm, "third")
    queue = await arm.queues.create_or_update(GROUP, "third", "q", SBQueue())
    rule = await arm.namespaces.get_authorization_rule(GROUP, "third", ROOT)
    listed = [each async for each in arm.queues.list_by_namespace(GROUP, "third")]
    assert [each.location for each in (queue, rule, *listed)] == ["West Europe"] * 3


async def test_a_misplaced_property_is_ignored_as_in_azure(arm: ServiceBusManagementClient):
    body = {"location": "westeurope", "sku": {"name": "Standard"}, "disableLocalAuth": True}
    made = await (await arm.namespaces.begin_create_or_update(GROUP, "contoso", body)).result()
    assert (made.name, made.properties.disable_local_auth) == ("contoso", False)


async def test_concurrent_requests_create_a_namespace_once(arm: ServiceBusManagementClient):
    made = await asyncio.gather(*(make(arm, "third") for _ in range(5)))
    assert len({each.properties and each.properties.service_bus_endpoint for each in made}) == 1
    assert await names(arm) == ["contoso", "fabrikam", "third"]


@asynccontextmanager
async def managing_as(client: Client, emulator: Emulator) -> AsyncIterator[ServiceBusManagementClient]:
    trusted = str(emulator.ca_file)
    authority = f"https://127.0.0.1:{emulator['contoso'].admin_port}"
    credential = ClientSecretCredential(
        "tenant",
        client.id,
        client.secret,
        authority=authority,
        disable_instance_discovery=True,
        connection_verify=trusted,
    )
    management = ServiceBusManagementClient(
        credential, SCOPE.subscription, base_url=emulator.arm_url, connection_verify=trusted
    )
    async with credential, management:
        yield management


async def test_a_client_with_a_secret_gets_a_token_for_management(emulator: Emulator):
    async with managing_as(DEVELOPMENT_CLIENT, emulator) as client:
        assert await names(client) == ["contoso", "fabrikam"]


@pytest.mark.parametrize("role", [Role.SENDER, Role.RECEIVER])
async def test_a_client_with_a_role_for_data_reads_no_keys_and_changes_nothing(role: Role):
    limited = Client(id="limited", secret="l1m1ted-secret", role=role)
    async with Emulator(["contoso"], clients=[limited]) as emulator, managing_as(limited, emulator) as client:
        for refused in (
            lambda: client.namespaces.list_keys(GROUP, "contoso", "RootManageSharedAccessKey"),
            lambda: client.queues.create_or_update(GROUP, "contoso", "made", {}),  # type: ignore[arg-type]
            lambda: names(client),
        ):
            with pytest.raises(HttpResponseError, match="AuthorizationFailed") as error:
                await refused()
            assert error.value.status_code == 403


async def test_an_update_changes_only_the_given_properties(arm: ServiceBusManagementClient):
    await make(arm, "contoso", tags={"a": "1"}, properties=SBNamespaceProperties(minimum_tls_version="1.3"))
    await arm.namespaces.update(GROUP, "contoso", SBNamespaceUpdateParameters(tags={"b": "2"}))
    contoso = await arm.namespaces.get(GROUP, "contoso")
    assert contoso.tags == {"b": "2"}
    assert contoso.location == "West Europe"
    assert contoso.properties.minimum_tls_version == "1.3"
    await make(arm, "contoso")
    contoso = await arm.namespaces.get(GROUP, "contoso")
    assert contoso.tags == {}
    assert contoso.properties.minimum_tls_version == "1.2"


@pytest.mark.parametrize(
    ("members", "named"),
    [
        ({"sku": {"name": "Free"}}, 'sku.name is "Free"; allowed: Basic, Standard, Premium'),
        ({"sku": {"name": "Basic", "tier": "Premium"}}, 'sku.tier is "Premium"; allowed: Basic, as sku.name'),
        ({"tags": {"a": 1}}, "tags.a is 1; allowed: a string"),
        ({"properties": {"minimumTlsVersion": "2"}}, "properties.minimumTlsVersion .* allowed: 1.0, 1.1, 1.2, 1.3"),
        ({"properties": {"disableLocalAuth": 1}}, "properties.disableLocalAuth is 1; allowed: true, false"),
        ({"colour": "red"}, 'colour is "red"; allowed: only id, name'),
    ],
)
async def test_an_invalid_namespace_is_refused(arm: ServiceBusManagementClient, members: Any, named: str):
    document: Any = {"location": "x", **members}
    with pytest.raises(HttpResponseError, match=named) as refused:
        await arm.namespaces.begin_create_or_update(GROUP, "third", document)
    assert refused.value.status_code == 400
    assert await names(arm) == ["contoso", "fabrikam"]


async def test_a_namespace_needs_a_location_and_a_name(arm: ServiceBusManagementClient):
    nowhere: Any = {}
    with pytest.raises(HttpResponseError, match="LocationRequired"):
        await arm.namespaces.begin_create_or_update(GROUP, "third", nowhere)
    with pytest.raises(HttpResponseError, match="name is '3rd'; allowed: 1 to 50 letters"):
        await arm.namespaces.begin_create_or_update(GROUP, "3rd", SBNamespace(location="x"))


@pytest.mark.parametrize(
    ("name", "reason", "message"),
    [("third", "None", ""), ("CONTOSO", "NameInUse", "exists already"), ("a_b", "InvalidName", "1 to 50 letters")],
)
async def test_the_availability_of_a_name_is_checked(
    arm: ServiceBusManagementClient, name: str, reason: str, message: str
):
    answer = await arm.namespaces.check_name_availability(CheckNameAvailability(name=name))
    assert answer.name_available is (reason == "None")
    assert answer.reason == reason
    assert message in (answer.message or "")


async def test_network_rules_are_open_and_cannot_be_restricted(arm: ServiceBusManagementClient):
    open_rules = await arm.namespaces.get_network_rule_set(GROUP, "contoso")
    assert open_rules.properties.default_action == "Allow"
    await arm.namespaces.create_or_update_network_rule_set(GROUP, "contoso", open_rules)
    assert [each.name async for each in arm.namespaces.list_network_rule_sets(GROUP, "contoso")] == ["default"]
    for closed in (
        NetworkRuleSetProperties(default_action="Deny"),
        NetworkRuleSetProperties(ip_rules=[NWRuleSetIpRules(ip_mask="10.0.0.0/8")]),
    ):
        with pytest.raises(HttpResponseError, match="addresses are not checked"):
            await arm.namespaces.create_or_update_network_rule_set(GROUP, "contoso", NetworkRuleSet(properties=closed))


async def test_unsupported_resources_are_missing_and_cannot_be_created(arm: ServiceBusManagementClient):
    assert [each async for each in arm.private_endpoint_connections.list(GROUP, "contoso")] == []
    assert [each async for each in arm.disaster_recovery_configs.list(GROUP, "contoso")] == []
    alias = ArmDisasterRecovery(properties=ArmDisasterRecoveryProperties(partner_namespace="fabrikam"))
    with pytest.raises(HttpResponseError, match="disasterRecoveryConfigs are not supported") as refused:
        await arm.disaster_recovery_configs.create_or_update(GROUP, "contoso", "alias", alias)
    assert refused.value.status_code == 501


async def test_the_operations_are_listed(arm: ServiceBusManagementClient):
    listed = [each.name async for each in arm.operations.list()]
    assert "Microsoft.ServiceBus/namespaces/queues/write" in listed


async def test_a_created_namespace_is_served_again_after_kill_9(tmp_path: Path):
    with EmulatorProcess(["contoso"], data=tmp_path) as process:
        async with manage(process.arm_url, ca_file=process["contoso"].ca_file) as arm:
            await make(arm, "kept", tags={"a": "b"})
            await make(arm, "gone")
            await arm.queues.create_or_update(GROUP, "kept", "q", SBQueue())
            await (await arm.namespaces.begin_delete(GROUP, "gone")).result()
            process.kill()
            process.start()
            assert await names(arm) == ["contoso", "kept"]
            assert (await arm.namespaces.get(GROUP, "kept")).tags == {"a": "b"}
            assert [each.name async for each in arm.queues.list_by_namespace(GROUP, "kept")] == ["q"]
    files = {path.name: path.stat().st_mode & 0o077 for path in tmp_path.glob("*.*")}  # noqa: ASYNC240 - at its end
    assert files == {"contoso.sqlite": 0, "kept.sqlite": 0, "contoso.namespaces.json": 0}


async def test_a_recreated_namespace_is_empty(tmp_path: Path):
    async with Emulator(["contoso"], data=tmp_path) as emulator, managed(emulator) as arm:
        await arm.queues.create_or_update(GROUP, "contoso", "q", SBQueue())
        await (await arm.namespaces.begin_delete(GROUP, "contoso")).result()
        await make(arm, "contoso")
        assert [each async for each in arm.queues.list_by_namespace(GROUP, "contoso")] == []


async def test_a_namespace_that_cannot_be_served_is_refused_with_the_reason(tmp_path: Path):
    async with Emulator(["contoso"], data=tmp_path) as emulator, Emulator(["third"], data=tmp_path):
        await _refused_in_words(emulator)


async def _refused_in_words(emulator: Emulator) -> None:
    async with managed(emulator) as arm:
        with pytest.raises(HttpResponseError, match=r"'third' cannot be served: .*is another process using"):
            await make(arm, "third")
        assert await names(arm) == ["contoso"]


async def test_processes_that_share_a_folder_serve_their_own_namespaces(tmp_path: Path):
    async with Emulator(["contoso"], data=tmp_path) as contoso, Emulator(["fabrikam"], data=tmp_path) as fabrikam:
        async with managed(contoso) as arm, managed(fabrikam) as other:
            await make(arm, "third")
            await make(other, "fourth")
        await fabrikam.stop()
        await fabrikam.start()
        assert [each.name for each in fabrikam.namespaces] == ["fabrikam", "fourth"]


async def test_a_change_that_cannot_be_persisted_is_refused_and_ends_the_service(
    emulator: Emulator, arm: ServiceBusManagementClient, monkeypatch: pytest.MonkeyPatch
):
    def fail() -> None:
        raise JournalError("disk full")

    monkeypatch.setattr(emulator["contoso"].namespace._context.journal, "commit", fail)
    with pytest.raises(HttpResponseError, match="the change cannot be persisted: disk full") as refused:
        await arm.queues.create_or_update(GROUP, "contoso", "q", SBQueue())
    assert refused.value.status_code == 500
    with pytest.raises(JournalError, match="disk full"):
        await asyncio.wait_for(emulator.wait_for_failure(), timeout=1)


@pytest.mark.parametrize("content", ["", "[]", '{"version": 2, "namespaces": []}', '{"version": 1}'])
async def test_an_invalid_list_of_namespaces_is_refused(tmp_path: Path, content: str):
    (tmp_path / "contoso.namespaces.json").write_text(content)
    with pytest.raises(JournalError, match=r"namespaces.json"):
        await Emulator(["contoso"], data=tmp_path).start()


async def test_a_namespace_has_the_tier_of_its_sku(arm: ServiceBusManagementClient, emulator: Emulator):
    await make(arm, "third")
    assert emulator["third"].namespace.tier is None
    await make(arm, "third", sku=SBSku(name="Standard"))
    with pytest.raises(HttpResponseError, match=r"256 \.\. 256 in the Standard tier"):
        await arm.queues.create_or_update(GROUP, "third", "q", SBQueue(max_message_size_in_kilobytes=1024))
    await make(arm, "third", sku=SBSku(name="Premium", capacity=2))
    await arm.queues.create_or_update(GROUP, "third", "q", SBQueue(max_message_size_in_kilobytes=1024))
    # What is not said stays.
    assert (await make(arm, "third")).sku.capacity == 2
    assert emulator["third"].namespace.tier is Tier.PREMIUM


async def test_the_sku_is_that_of_the_configured_tier():
    async with Emulator(["contoso"], tier=Tier.PREMIUM) as emulator, managed(emulator) as arm:
        assert (await arm.namespaces.get(GROUP, "contoso")).sku.name == "Premium"
