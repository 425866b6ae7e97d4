"""Bearer tokens: the token endpoint for unmodified azure-identity, and the use of its tokens."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import ClientSession
from azure.core.exceptions import ClientAuthenticationError
from azure.identity.aio import ClientSecretCredential
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from azure.servicebus.exceptions import ServiceBusAuthorizationError

from servicebus_emulator import Emulator, HostedNamespace
from servicebus_emulator.engine.model.descriptions import QueueDescription
from servicebus_emulator.security.bearer import (
    DEVELOPMENT_CLIENT,
    SERVICE_BUS,
    Client,
    Role,
)
from tests.emulator.support.sdk_client import bodies

SENDER = Client(id="sender", secret="s3nd", role=Role.SENDER)
CLIENTS = (DEVELOPMENT_CLIENT, SENDER)
TENANT = "contoso.example"


@pytest.fixture
async def contoso() -> AsyncIterator[HostedNamespace]:
    async with Emulator(["contoso"], clients=CLIENTS) as emulator:
        emulator["contoso"].namespace.create_queue(QueueDescription("flights"))
        yield emulator["contoso"]


def credential(
    hosted: HostedNamespace, *, client: Client = DEVELOPMENT_CLIENT, secret: str | None = None
) -> ClientSecretCredential:
    """Return a credential that requests tokens from a namespace, over TLS as azure-identity requires."""
    return ClientSecretCredential(
        TENANT,
        client.id,
        client.secret if secret is None else secret,
        authority=f"https://{hosted.host}:{hosted.admin_port}",
        disable_instance_discovery=True,
        connection_verify=str(hosted.ca_file),
    )


def client_of(hosted: HostedNamespace, shown: Any) -> ServiceBusClient:
    return ServiceBusClient(f"{hosted.host}:{hosted.amqp_port}", shown, retry_total=0, use_tls=False)


async def test_unmodified_azure_identity_opens_messages_and_administration(contoso: HostedNamespace):
    async with credential(contoso) as shown:
        host = f"{contoso.host}:{contoso.admin_port}"
        async with ServiceBusAdministrationClient(host, shown, connection_verify=str(contoso.ca_file)) as admin:
            await admin.create_queue("made")
        async with (
            client_of(contoso, shown) as client,
            client.get_queue_sender("made") as sender,
            client.get_queue_receiver("made", max_wait_time=3) as receiver,
        ):
            await sender.send_messages(ServiceBusMessage("x"))
            assert bodies(await receiver.receive_messages()) == ["x"]


async def test_a_client_with_the_sender_role_can_only_send(contoso: HostedNamespace):
    async with credential(contoso, client=SENDER) as shown:
        async with client_of(contoso, shown) as client:
            async with client.get_queue_sender("flights") as sender:
                await sender.send_messages(ServiceBusMessage("x"))
            with pytest.raises(ServiceBusAuthorizationError, match="client 'sender', role Sender has Send"):
                await client.get_queue_receiver("flights").receive_messages()
        host = f"{contoso.host}:{contoso.admin_port}"
        async with ServiceBusAdministrationClient(host, shown, connection_verify=str(contoso.ca_file)) as admin:
            with pytest.raises(ClientAuthenticationError, match="'Manage' claim"):
                await admin.create_queue("made")


async def test_each_namespace_has_the_token_endpoint_on_its_administration_port(contoso: HostedNamespace):
    base = f"http://{contoso.host}:{contoso.admin_port}"
    form = {
        "grant_type": "client_credentials",
        "client_id": DEVELOPMENT_CLIENT.id,
        "client_secret": DEVELOPMENT_CLIENT.secret,
        "scope": f"{SERVICE_BUS}/.default",
    }
    async with ClientSession(base) as http:
        async with http.get(f"/{TENANT}/v2.0/.well-known/openid-configuration") as response:
            found = await response.json()
        assert found["token_endpoint"] == f"{base}/{TENANT}/oauth2/v2.0/token"
        async with http.post(found["token_endpoint"], data=form) as response:
            issued = await response.json()
            assert (response.status, issued["token_type"], issued["expires_in"]) == (200, "Bearer", 3600)
        headers = {"Authorization": f"Bearer {issued['access_token']}"}
        async with http.get("/flights?api-version=2021-05", headers=headers) as response:
            assert response.status == 200
        query = {"authorization_endpoint": f"{base}/{TENANT}/oauth2/v2.0/authorize"}
        async with http.get("/common/discovery/instance", params=query) as response:
            where = (await response.json())["tenant_discovery_endpoint"]
        assert where == f"{base}/{TENANT}/v2.0/.well-known/openid-configuration"


@pytest.mark.parametrize(
    ("change", "status", "error"),
    [
        ({"client_secret": "wrong"}, 401, "invalid_client"),
        ({"client_id": "unknown"}, 401, "invalid_client"),
        ({"client_id": "unknown", "client_secret": ""}, 401, "invalid_client"),
        ({"grant_type": "password"}, 400, "unsupported_grant_type"),
        ({"scope": "https://vault.azure.net/.default"}, 400, "invalid_scope"),
        ({"scope": SERVICE_BUS}, 400, "invalid_scope"),
    ],
)
async def test_invalid_token_requests_are_refused(
    contoso: HostedNamespace, change: dict[str, str], status: int, error: str
):
    form = {
        "grant_type": "client_credentials",
        "client_id": DEVELOPMENT_CLIENT.id,
        "client_secret": DEVELOPMENT_CLIENT.secret,
        "scope": f"{SERVICE_BUS}/.default",
    }
    url = f"http://{contoso.host}:{contoso.admin_port}/{TENANT}/oauth2/v2.0/token"
    async with ClientSession() as http:
        async with http.post(url, data={**form, **change}) as response:
            answer = await response.json()
            assert (response.status, answer["error"]) == (status, error)
            assert "AADSTS" in answer["error_description"]
        headers = {"Content-Type": "application/x-www-form-urlencoded; charset=none"}
        async with http.post(url, data=b"a=b", headers=headers) as response:
            assert (response.status, (await response.json())["error"]) == (400, "invalid_request")
        async with http.post(url, json=form) as response:
            assert (response.status, (await response.json())["error"]) == (400, "invalid_request")
