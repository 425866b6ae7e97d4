"""Access to the administration API and the other routes of its port."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Mapping
from typing import Any

import pytest
from aiohttp import ClientSession, web
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from azure.servicebus.management import AuthorizationRule

from servicebus_emulator import HostedNamespace
from servicebus_emulator.admin.access_control import require_manage
from servicebus_emulator.engine.model.descriptions import AccessRight, QueueDescription
from servicebus_emulator.engine.namespace.namespace import Namespace
from tests.emulator.support.authorizers import authorizer_for, signed_headers
from tests.emulator.support.plain_http import PlainTransport

VERSION = "api-version=2021-05"


@pytest.mark.parametrize(
    ("headers", "why"),
    [
        ({}, "MissingToken: The authorization header was not found"),
        ({"Authorization": "Basic dXNlcjpwYXNz"}, "MalformedToken: The authorization header is unreadable"),
        ({"Authorization": "SharedAccessSignature sr=a&sig=b&se=c"}, "MalformedToken: The token has skn missing"),
        (
            {"Authorization": "SharedAccessSignature sr=a&sig=b&se=c&skn=d"},
            "has an expiry se that is not a time",
        ),
        ({"Authorization": "SharedAccessSignature sr=a&sr=a&sig=b&se=1&skn=d"}, "a field given twice"),
        (
            {"Authorization": "Bearer a.b.c"},
            "The token has an invalid signature. It was not issued here",
        ),
        (signed_headers(key="canary"), "InvalidSignature: The token has an invalid signature. No key of rule 'Root"),
        (
            signed_headers(rule="canary"),
            "The token has an invalid signature. Its resource has no rule of that name",
        ),
        (signed_headers(lifetime=-1), "ExpiredToken: The token is expired. Expiration time: '20"),
        (
            signed_headers(resource="https://contoso/other"),
            "InvalidAudience: The authorization header contains a token with a wrong",
        ),
    ],
)
async def test_a_missing_or_invalid_token_is_answered_with_401_and_the_reason(
    http: ClientSession, headers: Mapping[str, str], why: str
):
    async with http.get(f"/flights?{VERSION}", headers=headers) as response:
        error = ET.fromstring(await response.text())  # noqa: S314 - our own server's answer
        assert (response.status, error.findtext("Code")) == (401, "401")
        detail = error.findtext("Detail", "")
        assert detail.startswith("SubCode=40100. ")
        assert why in detail
        assert "canary" not in detail


@pytest.mark.parametrize(
    "resource",
    [
        "https://contoso.servicebus.windows.net",
        "https://contoso.servicebus.windows.net/flights",
        "sb://ANOTHER:5672/FLIGHTS/",
        "localhost/flights",
        "http://127.0.0.1:1/",
    ],
)
async def test_scheme_host_port_and_case_of_the_signed_resource_are_ignored(http: ClientSession, resource: str):
    async with http.get(f"/flights?{VERSION}", headers=signed_headers(resource=resource)) as response:
        assert response.status == 200


async def test_a_rule_of_a_queue_manages_that_queue_and_nothing_else(hosted: HostedNamespace, http: ClientSession):
    rule = hosted.namespace.access_policies.put("app", rights=[AccessRight.MANAGE], path="flights")
    headers = signed_headers(resource="https://contoso/flights", rule="app", key=rule.primary_key)
    async with http.get(f"/flights?{VERSION}", headers=headers) as response:
        assert response.status == 200
    for path in ("/other", "/flights/delayed", "/$Resources/queues", "/"):
        async with http.get(f"{path}?{VERSION}", headers=headers) as response:
            assert response.status == 401


async def test_the_host_of_a_request_does_not_widen_a_token(hosted: HostedNamespace, http: ClientSession):
    hosted.namespace.create_queue(QueueDescription("other"))
    headers = {**signed_headers(resource="https://contoso/flights"), "Host": "x://y/flights"}
    async with http.get(f"/other?{VERSION}", headers=headers) as response:
        assert response.status in (400, 401)


async def test_rules_set_by_the_official_client_are_enforced(hosted: HostedNamespace, http: ClientSession):
    text = hosted.admin_connection_string
    async with ServiceBusAdministrationClient.from_connection_string(text, transport=PlainTransport()) as client:
        given = AuthorizationRule(
            type="SharedAccessAuthorizationRule",
            claim_type="SharedAccessKey",
            claim_value="None",
            key_name="app",
            rights=["Manage", "Send", "Listen"],
        )
        created: Any = await client.create_queue("made", authorization_rules=[given])
        [made] = created.authorization_rules
        first = made.primary_key
        assert (made.key_name, len(made.primary_key), len(made.secondary_key)) == ("app", 44, 44)
        for key in (made.primary_key, made.secondary_key):
            headers = signed_headers(resource="https://contoso/made", rule="app", key=key)
            async with http.get(f"/made?{VERSION}", headers=headers) as response:
                assert response.status == 200
        made.primary_key = "replaced"
        await client.update_queue(created)
        updated: Any = await client.get_queue("made")
        [kept] = updated.authorization_rules
        assert (kept.primary_key, kept.secondary_key) == ("replaced", made.secondary_key)
        assert kept.created_at_utc == made.created_at_utc
    headers = signed_headers(resource="https://contoso/made", rule="app", key=first)
    async with http.get(f"/made?{VERSION}", headers=headers) as response:
        assert response.status == 401


async def test_health_and_faults_need_no_token_on_this_machine(http: ClientSession):
    for path in ("/health", "/$faults"):
        async with http.get(path) as response:
            assert response.status == 200


@pytest.mark.parametrize(
    ("remote", "headers", "status"),
    [
        ("127.0.0.1", {"Host": "localhost:5300"}, 200),
        ("::1", {"Host": "localhost:5300"}, 200),
        ("::ffff:127.0.0.1", {"Host": "localhost:5300"}, 200),
        ("127.0.0.1", {"Host": "contoso.servicebus.windows.net"}, 200),
        ("127.0.0.1", {"Host": "evil.example"}, 401),
        ("192.0.2.7", {}, 401),
        ("192.0.2.7", signed_headers(), 200),
        ("192.0.2.7", signed_headers(key="canary"), 401),
        (None, {}, 401),
    ],
)
async def test_remote_clients_need_the_manage_right_for_faults(
    remote: str | None, headers: Mapping[str, str], status: int
):
    async def answer(_: web.Request) -> web.Response:
        return web.Response()

    class From:
        """A request with the attributes that are checked."""

    From.remote, From.headers = remote, headers  # type: ignore[attr-defined]
    handler = require_manage(answer, authorizer=authorizer_for(Namespace("contoso")))
    assert (await handler(From())).status == status  # type: ignore[arg-type]
