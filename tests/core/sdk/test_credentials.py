"""Microsoft Entra ID identities authenticate with tokens of the emulated token service."""

from __future__ import annotations

import pickle
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from aiohttp import web

from servicebus_emulator import Emulator
from servicebus_emulator.engine.model.clock import SystemClock
from servicebus_emulator.security.bearer import TokenIssuer
from servicebus_pair.core import Endpoint, NamespacePair, PairSettings, read_pair_settings
from servicebus_pair.core.model.errors import AuthenticationError, ProvisionError, SendError, UnreachableError
from servicebus_pair.core.sdk.administration import administration_for
from tests.core.support.entra import OWNER, SENDER, open_entra_namespaces, pair_settings
from tests.core.support.local_pair import numbered
from tests.core.support.queues import peek_all

HEADER = "c4nary-header"
# Two issuers with the same clients issue the same tokens.
ISSUER = TokenIssuer([OWNER, SENDER], clock=SystemClock())
CLIENT_SECRET_FIELDS = ("tenant_id", "client_id", "client_secret", "authority")


@pytest.fixture
async def emulator() -> AsyncIterator[Emulator]:
    async with open_entra_namespaces() as started:
        yield started


def pair_of(settings: PairSettings) -> NamespacePair:
    return NamespacePair(settings.primary, settings.secondary, settings.options)


@pytest.mark.parametrize("through_arm", [False, True], ids=["data plane", "resource manager"])
async def test_a_client_secret_provisions_sends_diverts_drains_and_cleans_up(
    emulator: Emulator, through_arm: bool
) -> None:
    settings = read_pair_settings(pair_settings(emulator, through_arm=through_arm))
    # Pickled, as for a Spark executor: the pickle holds the identity, not a token.
    async with pair_of(pickle.loads(pickle.dumps(settings))) as pair:  # noqa: S301  our own pickle
        assert len((await pair.provision()).created) == 2
        async with pair.sender("flights") as sender:
            assert (await sender.send(numbered(2))).primary == 2
            await pair.fail_over("flights", reason="test")
            assert (await sender.send(numbered(2, start=2))).diverted == 2
        assert await pair.ping("flights")
        assert (await pair.syphon().drain()).moved == {"flights": 2}
        assert len((await pair.cleanup(everything=True)).deleted) == 2
    arrived = await peek_all(emulator["contoso"].connection_string, "flights")
    assert sorted(str(message.message_id) for message in arrived) == ["m0", "m1", "m2", "m3"]


async def test_a_custom_endpoint_is_used_over_tls(emulator: Emulator) -> None:
    settings = pair_settings(emulator)
    for side, name in (("primary", "contoso"), ("secondary", "contoso-dr")):
        hosted = emulator[name]
        settings |= {
            f"{side}_host": f"{name}.servicebus.windows.net",
            f"{side}_endpoint_address": f"sb://{hosted.host}:{hosted.amqp_port}",
            f"{side}_emulator": False,
        }
    async with pair_of(read_pair_settings(settings)) as pair:
        await pair.provision()
        async with pair.sender("flights") as sender:
            assert (await sender.send(numbered(1))).primary == 1
            await pair.fail_over("flights", reason="test")
            assert (await sender.send(numbered(1, start=1))).diverted == 1


async def test_a_wrong_key_at_a_custom_endpoint_is_not_an_outage(emulator: Emulator) -> None:
    primary, secondary = (
        Endpoint.from_connection_string(
            hosted.tls_connection_string.replace("SharedAccessKey=", "SharedAccessKey=wrong"),
            namespace=hosted.name,
            administration=f"{hosted.host}:{hosted.admin_port}",
            ca_file=str(hosted.ca_file),
            endpoint_address=hosted.endpoint_address,
        )
        for hosted in (emulator["contoso"], emulator["contoso-dr"])
    )
    async with NamespacePair(primary, secondary) as pair, pair.sender("flights") as sender:
        with pytest.raises(SendError) as refused:
            await sender.send(numbered(1), timeout=10)
        assert isinstance(refused.value.cause, AuthenticationError)
        # The refusal is reported once: an error must not be its own cause.
        assert refused.value.cause.__cause__ is not refused.value.cause


async def test_a_wrong_secret_raises_without_disclosing_it(
    emulator: Emulator, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = pair_settings(emulator, primary_client_secret="c4nary-wrong", secondary_client_secret="c4nary-wrong")
    async with pair_of(read_pair_settings(wrong)) as pair:
        async with pair.sender("flights") as sender:
            with pytest.raises(SendError) as refused:
                await sender.send(numbered(1), timeout=10)
        assert isinstance(refused.value.cause, AuthenticationError)
        with pytest.raises(ProvisionError, match="AADSTS7000215") as provisioned:
            await pair.provision()
    assert "c4nary" not in f"{refused.value} {provisioned.value} {caplog.text} {pair.primary!r}"


async def test_a_sender_role_cannot_provision(emulator: Emulator) -> None:
    settings = read_pair_settings(pair_settings(emulator, client=SENDER))
    async with pair_of(settings) as pair:
        async with pair.sender("flights") as sender:
            assert (await sender.send(numbered(1))).primary == 1
        with pytest.raises(ProvisionError, match="the Manage right is required"):
            await pair.provision()


async def test_an_unreachable_token_service_is_an_outage(emulator: Emulator) -> None:
    unreachable = pair_settings(emulator, primary_authority="https://127.0.0.1:1", primary_client_id="another")
    settings = read_pair_settings(unreachable)
    async with pair_of(replace(settings, secondary=read_pair_settings(pair_settings(emulator)).secondary)) as pair:
        await pair.provision()
        async with pair.sender("flights") as sender:
            assert (await sender.send(numbered(1), timeout=20)).diverted == 1
    with pytest.raises(UnreachableError):
        async with administration_for(settings.primary) as administration:
            await administration.list_queues()


class MachineTokenEndpoint:
    """The token endpoint of a machine, as on App Service; records its requests."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str | None]] = []
        self.client = ""

    async def token(self, request: web.Request) -> web.Response:
        assert request.headers["X-IDENTITY-HEADER"] == HEADER
        resource = request.query["resource"]
        self.requests.append((resource, request.query.get("client_id")))
        scope = f"{resource}/.default"
        issued = ISSUER.issue(OWNER.id, OWNER.secret, scope=scope, tenant="t", issuer="https://here")
        return web.json_response({"access_token": issued.text, "expires_on": "4102444800", "resource": resource})


@pytest.fixture
async def machine(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[MachineTokenEndpoint]:
    made = MachineTokenEndpoint()
    app = web.Application()
    app.router.add_get("/token", made.token)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    [(host, port)] = runner.addresses
    made.client = f"app {port}"
    monkeypatch.setenv("IDENTITY_ENDPOINT", f"http://{host}:{port}/token")
    monkeypatch.setenv("IDENTITY_HEADER", HEADER)
    yield made
    await runner.cleanup()


@pytest.mark.parametrize("authentication", ["managed_identity", "default"])
async def test_a_managed_identity_sends_diverts_and_manages_through_arm(
    emulator: Emulator, machine: MachineTokenEndpoint, authentication: str
) -> None:
    settings = pair_settings(emulator, through_arm=True)
    for side in ("primary", "secondary"):
        for name in CLIENT_SECRET_FIELDS:
            del settings[f"{side}_{name}"]
        settings |= {f"{side}_authentication": authentication, f"{side}_client_id": machine.client}
    async with pair_of(read_pair_settings(settings)) as pair:
        assert len((await pair.provision()).created) == 2
        async with pair.sender("flights") as sender:
            assert (await sender.send(numbered(1))).primary == 1
            await pair.fail_over("flights", reason="test")
            assert (await sender.send(numbered(1, start=1))).diverted == 1
    # One token for messages and one for management, for all links and calls.
    resources = ["https://management.azure.com", "https://servicebus.azure.net/"]
    assert sorted(machine.requests) == [(resource, machine.client) for resource in resources]
