"""Identities: what they build, and when they ask for a token."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from azure.core.credentials import AccessTokenInfo
from azure.core.exceptions import ClientAuthenticationError
from azure.identity import aio

from servicebus_pair.core.identity import ClientSecret, DefaultIdentity, Identity, ManagedIdentity
from servicebus_pair.core.options import Secret
from servicebus_pair.core.tokens import Tokens

PRINCIPAL = ClientSecret(tenant_id="t", client_id="c", client_secret=Secret("s"))


@pytest.mark.parametrize(
    ("identity", "built"),
    [
        (DefaultIdentity(client_id="c", tenant_id="t"), aio.DefaultAzureCredential),
        (ManagedIdentity(client_id="c"), aio.ManagedIdentityCredential),
        (PRINCIPAL, aio.ClientSecretCredential),
        (ClientSecret(tenant_id="t", client_id="c", client_secret=Secret("s"), authority="https://own"), None),
    ],
    ids=["default", "managed", "secret", "secret at an authority of one's own"],
)
async def test_each_identity_builds_the_credential_of_its_kind(identity: Identity, built: type | None) -> None:
    async with identity.credential() as credential:
        assert isinstance(credential, aio.ClientSecretCredential if built is None else built)


class Desk:
    """Gives tokens that live for an hour, counts who asks, and can be closed."""

    def __init__(self) -> None:
        self.time = 1000.0
        self.asked = 0
        self.closed = False
        self.refresh_on: int | None = None
        self.tokens = Tokens(now=lambda: self.time)

    async def give(self) -> AccessTokenInfo:
        self.asked += 1
        await asyncio.sleep(0)
        if self.closed:
            raise ClientAuthenticationError("closed")
        return AccessTokenInfo(f"token {self.asked}", int(self.time) + 3600, refresh_on=self.refresh_on)

    async def get(self, *, renew: bool = False, ask: Callable[[], Awaitable[AccessTokenInfo]] | None = None) -> str:
        return (await self.tokens.get("key", self.give if ask is None else ask, renew=renew)).token


async def test_a_token_is_kept_until_half_of_its_life_is_over() -> None:
    desk = Desk()
    assert await desk.get() == "token 1"
    desk.time += 1799
    assert await desk.get() == "token 1"
    desk.time += 2
    assert await desk.get() == "token 2"


async def test_the_service_may_say_when_a_token_should_be_renewed() -> None:
    desk = Desk()
    desk.refresh_on = 1100
    await desk.get()
    desk.time = 1101
    assert await desk.get() == "token 2"


async def test_however_many_want_a_token_one_asks() -> None:
    desk = Desk()
    assert set(await asyncio.gather(*(desk.get() for _ in range(20)))) == {"token 1"}
    assert desk.asked == 1


async def test_who_was_told_that_a_token_is_refused_gets_another_one() -> None:
    desk = Desk()
    await desk.get()
    assert await desk.get(renew=True) == "token 2"
    assert await desk.get() == "token 2"


async def test_an_old_token_is_given_while_it_is_good_and_none_can_be_had(caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk()
    await desk.get()
    desk.closed = True
    desk.time += 1900
    assert await desk.get() == "token 1"
    assert "a token is not renewed: ClientAuthenticationError; the old one lasts for 1700 s" in caplog.text
    assert await desk.get() == "token 1"
    assert desk.asked == 2  # the next attempt comes later
    desk.time += 1695
    with pytest.raises(ClientAuthenticationError):
        await desk.get()


def test_tokens_are_shared_by_event_loops() -> None:
    desk = Desk()
    assert [asyncio.run(desk.get()) for _ in range(2)] == ["token 1"] * 2


def test_an_identity_is_the_same_wherever_it_was_read() -> None:
    again = ClientSecret(tenant_id="t", client_id="c", client_secret=Secret("s"))
    assert (hash(again), again) == (hash(PRINCIPAL), PRINCIPAL)
    assert ClientSecret(tenant_id="t", client_id="c", client_secret=Secret("other")) != PRINCIPAL
