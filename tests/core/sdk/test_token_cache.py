"""Identities build their credential; the token cache decides when to request a token."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import fields
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from azure.core.credentials import AccessTokenInfo
from azure.core.exceptions import ClientAuthenticationError
from azure.identity import aio

from servicebus_pair.core.model.errors import ConfigurationError
from servicebus_pair.core.model.options import Secret
from servicebus_pair.core.sdk.credentials import ClientSecret, DefaultIdentity, Identity, ManagedIdentity
from servicebus_pair.core.sdk.http.guarded_transport import BoundedTransport
from servicebus_pair.core.sdk.token_cache import TokenCache

PRINCIPAL = ClientSecret(tenant_id="t", client_id="c", client_secret=Secret("s"))


@pytest.mark.parametrize(
    ("identity", "built"),
    [
        (DefaultIdentity(client_id="c", tenant_id="t"), aio.DefaultAzureCredential),
        (ManagedIdentity(client_id="c"), aio.ManagedIdentityCredential),
        (PRINCIPAL, aio.ClientSecretCredential),
        (ClientSecret(tenant_id="t", client_id="c", client_secret=Secret("s"), authority="https://own"), None),
    ],
    ids=["default", "managed", "secret", "secret at a private authority"],
)
async def test_each_identity_builds_the_credential_of_its_kind(identity: Identity, built: type | None) -> None:
    async with identity.credential() as credential:
        assert isinstance(credential, aio.ClientSecretCredential if built is None else built)


@pytest.mark.parametrize(
    ("authority", "private"),
    [
        (None, False),
        ("login.microsoftonline.us", False),
        ("https://login.chinacloudapi.cn/", False),
        ("https://own", True),
    ],
)
async def test_only_a_private_authority_is_not_looked_up_in_the_public_cloud(
    authority: str | None, private: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: list[Any] = []
    monkeypatch.setattr(aio, "ClientSecretCredential", lambda *_, **given: settings.append(given))
    ClientSecret(
        tenant_id="t", client_id="c", client_secret=Secret("s"), authority=authority, ca_file="ca"
    ).credential()
    assert isinstance(settings[0].pop("transport"), BoundedTransport)
    expected = {"disable_instance_discovery": private}
    assert settings == [expected if authority is None else {**expected, "authority": authority}]


def test_a_default_identity_passes_on_what_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    settings: list[Any] = []
    monkeypatch.setattr(aio, "DefaultAzureCredential", lambda **given: settings.append(given))
    DefaultIdentity().credential()
    DefaultIdentity(client_id="c", tenant_id="t").credential()
    tenant = {"workload_identity_tenant_id": "t", "additionally_allowed_tenants": ["t"]}
    DefaultIdentity(authority="login.example").credential()
    assert isinstance(settings[2].pop("transport"), BoundedTransport)
    assert settings == [{}, {"managed_identity_client_id": "c", **tenant}, {"authority": "login.example"}]


class FakeTokenService:
    """Issues tokens that are valid for an hour, through a cache with a manual clock, and counts requests."""

    def __init__(self) -> None:
        self.time = 1000.0
        self.requests = 0
        self.unavailable = False
        self.refresh_on: int | None = None
        self.cache = TokenCache(now=lambda: self.time)

    async def request(self) -> AccessTokenInfo:
        self.requests += 1
        await asyncio.sleep(0)
        if self.unavailable:
            raise ClientAuthenticationError("unavailable")
        return AccessTokenInfo(f"token {self.requests}", int(self.time) + 3600, refresh_on=self.refresh_on)

    async def get(self, *, force_refresh: bool = False) -> str:
        return (await self.cache.get("key", self.request, force_refresh=force_refresh)).token


async def test_a_token_is_refreshed_after_half_of_its_lifetime() -> None:
    service = FakeTokenService()
    assert await service.get() == "token 1"
    service.time += 1799
    assert await service.get() == "token 1"
    service.time += 1
    assert await service.get() == "token 2"


@pytest.mark.parametrize(("later", "token"), [(1799.5, "token 1"), (1799.75, "token 2")])
async def test_half_of_a_lifetime_may_be_a_part_of_a_second(later: float, token: str) -> None:
    service = FakeTokenService()
    service.time = 1000.5  # so that it expires in 3599.5 s
    await service.get()
    service.time += later
    assert await service.get() == token


async def test_a_token_is_refreshed_at_its_refresh_on_time() -> None:
    service = FakeTokenService()
    service.refresh_on = 1100
    await service.get()
    service.time = 1099
    assert await service.get() == "token 1"
    service.time = 1100
    assert await service.get() == "token 2"


async def test_concurrent_callers_share_one_token_request() -> None:
    service = FakeTokenService()
    assert set(await asyncio.gather(*(service.get() for _ in range(20)))) == {"token 1"}
    assert service.requests == 1


async def test_a_forced_refresh_ignores_the_cached_token() -> None:
    service = FakeTokenService()
    await service.get()
    assert await service.get(force_refresh=True) == "token 2"
    assert await service.get() == "token 2"


async def test_a_valid_token_is_used_when_its_refresh_fails(caplog: pytest.LogCaptureFixture) -> None:
    service = FakeTokenService()
    await service.get()
    service.unavailable = True
    service.time += 1900
    assert await service.get() == "token 1"
    assert "token refresh failed with ClientAuthenticationError; the old token is valid for 1700 s" in caplog.text
    for seconds, requests in ((29.5, 2), (0.5, 3), (1660, 4)):
        service.time += seconds
        assert (await service.get(), service.requests) == ("token 1", requests)
    service.time += 30
    with pytest.raises(ClientAuthenticationError):
        await service.get()


@pytest.mark.parametrize(("remaining", "used"), [(10, True), (9.5, False), (0, False), (-1, False)])
async def test_a_token_is_used_until_ten_seconds_before_it_expires(remaining: float, used: bool) -> None:
    service = FakeTokenService()
    await service.get()
    service.unavailable = True
    service.time = 4600 - remaining
    if used:
        assert await service.get() == "token 1"
    else:
        with pytest.raises(ClientAuthenticationError):
            await service.get()


def test_tokens_are_shared_by_event_loops() -> None:
    service = FakeTokenService()
    assert [asyncio.run(service.get()) for _ in range(2)] == ["token 1"] * 2


def test_an_identity_is_made_by_names_holds_secrets_in_their_place_and_has_a_credential() -> None:
    kinds: tuple[Any, ...] = (Identity, DefaultIdentity, ManagedIdentity, ClientSecret)
    assert [(kind, each.name) for kind in kinds for each in fields(kind) if not each.kw_only] == []
    with pytest.raises(ConfigurationError, match="client_id holds a"):
        ClientSecret(tenant_id="t", client_id=f"eyJ{'a' * 40}.eyJ{'b' * 40}.{'c' * 40}", client_secret=Secret("s"))
    with pytest.raises(TypeError, match="abstract"):
        Identity()  # type: ignore[abstract]


def test_equal_identities_share_their_tokens() -> None:
    again = ClientSecret(tenant_id="t", client_id="c", client_secret=Secret("s"))
    assert (hash(again), again) == (hash(PRINCIPAL), PRINCIPAL)
    assert ClientSecret(tenant_id="t", client_id="c", client_secret=Secret("other")) != PRINCIPAL


class FakeIdentity(Identity):
    """An identity that records its token requests."""

    requests: ClassVar[list[Any]] = []

    @asynccontextmanager
    async def credential(self) -> AsyncIterator[Any]:
        async def get_token_info(*scopes: str, options: Any) -> AccessTokenInfo:
            self.requests.append((scopes, options))
            return AccessTokenInfo(f"token {len(self.requests)}", int(time.time()) + 3600)

        yield SimpleNamespace(get_token_info=get_token_info)


async def test_tokens_are_cached_by_scope_and_options_and_requested_anew_for_claims() -> None:
    identity, requests = FakeIdentity(), FakeIdentity.requests
    options: list[dict[str, Any]] = [
        {},
        {"tenant_id": "t"},
        {"enable_cae": True},
        {"enable_cae": False, "tenant_id": None},
    ]
    tokens = [(await identity.get_token("scope", **each)).token for each in options]
    assert tokens == ["token 1", "token 2", "token 3", "token 1"]
    assert requests == [(("scope",), each) for each in options[:3]]
    assert (await identity.get_token("other")).token == "token 4"
    assert (await identity.get_token("scope", claims="c")).token == "token 5"
    assert requests[-1] == (("scope",), {"claims": "c"})
    assert (await identity.get_token("scope")).token == "token 5"
