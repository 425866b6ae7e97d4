"""The ARM interface as bytes on the wire."""

from __future__ import annotations

import asyncio
import io
import re
import ssl
from collections.abc import AsyncIterator

import pytest
from aiohttp import ClientConnectionError, ClientSession

from servicebus_emulator import Emulator
from servicebus_emulator.engine.model.descriptions import QueueDescription
from servicebus_emulator.faults import Fault, FaultKind, Operation
from tests.emulator.support.arm_client import PREFIX, SCOPE, bearer_token
from tests.emulator.support.tracking import tracked_pattern

VERSION = "api-version=2026-01-01"
QUEUE = f"{PREFIX}/queues/q"
TOKEN = {"Authorization": f"Bearer {bearer_token()}"}


def plain(emulator: Emulator) -> str:
    """Return the base URL over plain HTTP."""
    return emulator.arm_url.replace("https", "http")


@pytest.fixture
async def http(emulator: Emulator) -> AsyncIterator[ClientSession]:
    emulator["contoso"].namespace.create_queue(QueueDescription("q"))
    async with ClientSession(plain(emulator), headers=TOKEN) as session:
        yield session


async def refused(
    http: ClientSession, path: str, *, method: str = "GET", body: bytes | io.BytesIO = b""
) -> tuple[int, str, str]:
    async with http.request(method, path, data=body) as response:
        error = (await response.json())["error"]
        text = re.fullmatch(rf"(.*) {tracked_pattern()} CorrelationId: [0-9a-f-]{{36}}", error["message"])
        assert text is not None
        return response.status, error["code"], text[1]


@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Bearer ", "Bearer x", "SharedAccessSignature sr=x", "Basic dTpw"]
)
async def test_requests_without_a_bearer_token_are_refused(emulator: Emulator, header: str | None):
    headers = {} if header is None else {"Authorization": header}
    async with (
        ClientSession(plain(emulator), headers=headers) as http,
        http.get(f"{QUEUE}?{VERSION}") as response,
    ):
        assert response.status == 401
        assert response.headers["WWW-Authenticate"].startswith("Bearer")
        assert (await response.json())["error"]["code"] in {"AuthenticationFailed", "InvalidAuthenticationToken"}


async def test_a_token_for_another_audience_is_refused_and_not_repeated(emulator: Emulator):
    token = bearer_token("https://servicebus.azure.net/.default")
    async with ClientSession(plain(emulator), headers={"Authorization": f"Bearer {token}"}) as http:
        status, code, message = await refused(http, f"{QUEUE}?{VERSION}")
    assert (status, code) == (401, "InvalidAuthenticationToken")
    assert "https://management.azure.com" in message
    assert token not in message


async def test_an_open_emulator_needs_no_token():
    async with (
        Emulator(["contoso"], open=True) as emulator,
        ClientSession(plain(emulator)) as http,
        http.get(f"{PREFIX}/queues?{VERSION}") as response,
    ):
        assert response.status == 200


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        (QUEUE, 400, "MissingApiVersionParameter"),
        (f"{QUEUE}?api-version=2015-08-01", 400, "InvalidApiVersionParameter"),
        (f"/?{VERSION}", 404, "InvalidResourceType"),
        (f"/subscriptions?{VERSION}", 404, "InvalidResourceType"),
        (f"/subscriptions/{SCOPE.subscription}?{VERSION}", 404, "InvalidResourceType"),
        (f"/subscriptions/x/providers/Microsoft.EventHub/namespaces?{VERSION}", 404, "InvalidResourceType"),
        (f"/providers/Microsoft.ServiceBus/namespaces?{VERSION}", 404, "NotFound"),
        (f"{PREFIX}/queues/q/messages?{VERSION}", 404, "NotFound"),
        (f"{PREFIX}/queues/q/rules/r?{VERSION}", 404, "NotFound"),
        (f"{PREFIX}/queues/?{VERSION}&$top=0", 400, "BadRequest"),
        (f"{PREFIX}/queues?{VERSION}&$skip=-1", 400, "BadRequest"),
        (f"{PREFIX}/disasterRecoveryConfigs/alias?{VERSION}", 404, "NotFound"),
        (f"{PREFIX}/networkRuleSets/other?{VERSION}", 404, "NotFound"),
        (f"/%00/%ff?{VERSION}", 404, "InvalidResourceType"),
    ],
)
async def test_an_unknown_path_is_refused_with_the_reason(http: ClientSession, path: str, status: int, code: str):
    assert (await refused(http, path))[:2] == (status, code)


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PATCH", QUEUE, "GET, PUT, DELETE"),
        ("PUT", f"{PREFIX}/queues", "GET"),
        ("POST", PREFIX, "GET, PUT, PATCH, DELETE"),
        ("DELETE", f"{PREFIX}/networkRuleSets/default", "GET, PUT"),
        ("DELETE", "/providers/Microsoft.ServiceBus/operations", "GET"),
    ],
)
async def test_an_unknown_method_is_refused(http: ClientSession, method: str, path: str, allowed: str):
    status, code, message = await refused(http, f"{path}?{VERSION}", method=method)
    assert (status, code) == (405, "MethodNotAllowed")
    assert message == f"method is '{method}'; allowed: {allowed}"


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (b"", "the body is not JSON"),
        (b"\xff\xfe", "the body is not JSON"),
        (b"[" * 100_000, "the body is not JSON"),
        (b'{"properties": {"maxDeliveryCount": NaN}}', "NaN is not JSON"),
        (b"[]", "the body is []; allowed: a JSON object"),
        (b'{"properties": []}', "properties is []; allowed: an object"),
        (b'{"property": {}}', "property is {}; allowed: only properties"),
        (
            b'{"properties": {"maxDeliveryCount": 1e3}}',
            "properties.maxDeliveryCount is 1000.0; allowed: a whole number",
        ),
        (b'{"properties": {"userMetadata": ' + b"[" * 200 + b"]" * 200 + b"}}", "properties.userMetadata is [[[["),
        (b'{"properties": {"lockDuration": "' + b"x" * 500 + b'"}}', "xxx...; allowed: an ISO"),
    ],
)
async def test_an_invalid_body_is_refused_with_the_reason(http: ClientSession, body: bytes, named: str):
    status, _, message = await refused(http, f"{QUEUE}?{VERSION}", method="PUT", body=body)
    assert status == 400
    assert named in message


async def test_a_body_beyond_a_megabyte_is_refused(http: ClientSession):
    answer = await refused(http, f"{QUEUE}?{VERSION}", method="PUT", body=io.BytesIO(bytes(1024 * 1024 + 1)))
    assert answer[:2] == (413, "RequestEntityTooLarge")


async def test_names_of_types_and_members_are_case_insensitive(http: ClientSession):
    path = QUEUE.upper().replace("/CONTOSO", "/contoso")
    async with http.put(
        f"{path}?{VERSION}", data=b'{"Properties": {"MAXDELIVERYCOUNT": 7, "status": "active"}}'
    ) as put:
        shown = await put.json()
    assert shown["properties"]["maxDeliveryCount"] == 7
    assert shown["type"] == "Microsoft.ServiceBus/namespaces/queues"


async def test_the_link_to_the_next_page_has_the_clients_address(http: ClientSession, emulator: Emulator):
    emulator["contoso"].namespace.create_queue(QueueDescription("r"))
    async with http.get(f"{PREFIX}/queues?{VERSION}&$top=1") as response:
        first = await response.json()
    assert first["nextLink"] == f"{plain(emulator)}{PREFIX}/queues?{VERSION}&$skip=1&$top=1"
    async with http.get(first["nextLink"]) as response:
        second = await response.json()
    assert [each["name"] for each in second["value"]] == ["r"]
    assert "nextLink" not in second


async def test_a_fault_of_administration_strikes_its_namespace(http: ClientSession, emulator: Emulator):
    busy = Fault(kind=FaultKind.SERVER_BUSY, on=(Operation.ADMINISTER,), entity="q", count=1)
    emulator["contoso"].set_fault(busy)
    other = f"{PREFIX.replace('contoso', 'fabrikam')}/queues?{VERSION}"
    async with http.get(other) as response:
        assert response.status == 200
    async with http.get(f"{PREFIX}/queues?{VERSION}") as response:
        assert response.status == 200
    assert await refused(http, f"{QUEUE}?{VERSION}") == (503, "InternalError", "a fault was set: server-busy")
    async with http.get(f"{QUEUE}?{VERSION}") as response:
        assert response.status == 200


async def test_a_fault_breaks_the_connection(http: ClientSession, emulator: Emulator):
    emulator["contoso"].set_fault(Fault(kind=FaultKind.RESET, on=(Operation.ADMINISTER,)))
    with pytest.raises(ClientConnectionError):
        await http.put(f"{QUEUE}?{VERSION}", data=b"{}")


async def test_a_frozen_request_does_not_keep_the_process_from_stopping():
    async with Emulator(["contoso"]) as emulator, ClientSession(plain(emulator), headers=TOKEN) as http:
        emulator["contoso"].set_fault(Fault(kind=FaultKind.FREEZE, on=(Operation.ADMINISTER,)))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await http.get(f"{QUEUE}?{VERSION}")


async def test_one_port_takes_http_and_https(emulator: Emulator):
    trusting = ssl.create_default_context(cafile=str(emulator.ca_file))
    for url in (emulator.arm_url, plain(emulator)):
        async with (
            ClientSession(url, headers=TOKEN) as http,
            http.get(f"{PREFIX}/queues?{VERSION}", ssl=trusting) as response,
        ):
            assert response.status == 200
            assert response.url.scheme == url.partition(":")[0]
