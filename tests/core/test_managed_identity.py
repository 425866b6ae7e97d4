"""A managed identity, and the default one that finds it: as on App Service, where the machine gives tokens."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from servicebus_emulator import Emulator
from servicebus_emulator.engine.clock import SystemClock
from servicebus_emulator.security.bearer import TokenIssuer
from servicebus_pair.core import NamespacePair, read_pair
from tests.core.breakable import numbered
from tests.core.entra import OWNER, SENDER, entra, settings_of

HEADER = "c4nary-header"
# Whoever knows the same clients issues the same tokens.
ISSUER = TokenIssuer([OWNER, SENDER], clock=SystemClock())
OF_A_SECRET = ("tenant_id", "client_id", "client_secret", "authority")


class Machine:
    """The token address of a machine, and what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str | None]] = []
        self.client = ""

    async def token(self, request: web.Request) -> web.Response:
        assert request.headers["X-IDENTITY-HEADER"] == HEADER
        resource = request.query["resource"]
        self.asked.append((resource, request.query.get("client_id")))
        scope = f"{resource}/.default"
        issued = ISSUER.issue(OWNER.id, OWNER.secret, scope=scope, tenant="t", issuer="https://here")
        return web.json_response({"access_token": issued.text, "expires_on": "4102444800", "resource": resource})


@pytest.fixture
async def machine(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Machine]:
    made = Machine()
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


@pytest.fixture
async def emulator() -> AsyncIterator[Emulator]:
    async with entra() as started:
        yield started


@pytest.mark.parametrize("authentication", ["managed_identity", "default"])
async def test_the_identity_of_the_machine_sends_diverts_and_manages_by_resource_manager(
    emulator: Emulator, machine: Machine, authentication: str
) -> None:
    given = settings_of(emulator, by_arm=True)
    for side in ("primary", "secondary"):
        for name in OF_A_SECRET:
            del given[f"{side}_{name}"]
        given |= {f"{side}_authentication": authentication, f"{side}_client_id": machine.client}
    settings = read_pair(given)
    async with NamespacePair(settings.primary, settings.secondary, settings.options) as pair:
        assert len((await pair.provision()).created) == 2
        async with pair.sender("flights") as sender:
            assert (await sender.send(numbered(1))).primary == 1
            pair.fail_over("flights", reason="test")
            assert (await sender.send(numbered(1, start=1))).diverted == 1
    # One token for messages and one for management, however many links and calls there were.
    asked = ["https://management.azure.com", "https://servicebus.azure.net/"]
    assert sorted(machine.asked) == [(resource, machine.client) for resource in asked]
