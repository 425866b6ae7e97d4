"""Microsoft Entra ID instead of keys: real tokens, over real HTTP and real AMQP."""

from __future__ import annotations

import pickle
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from servicebus_emulator import Emulator
from servicebus_pair.core import Endpoint, NamespacePair, PairSettings, read_pair
from servicebus_pair.core.errors import AuthenticationError, ProvisionError, SendError, UnreachableError
from servicebus_pair.core.management import administration_of
from tests.core.breakable import numbered
from tests.core.entra import SENDER, entra, settings_of
from tests.core.peeking import peek_all


@pytest.fixture
async def emulator() -> AsyncIterator[Emulator]:
    async with entra() as started:
        yield started


def pair_of(settings: PairSettings) -> NamespacePair:
    return NamespacePair(settings.primary, settings.secondary, settings.options)


@pytest.mark.parametrize("by_arm", [False, True], ids=["data plane", "resource manager"])
async def test_a_client_secret_provisions_sends_diverts_drains_and_cleans_up(emulator: Emulator, by_arm: bool) -> None:
    settings = read_pair(settings_of(emulator, by_arm=by_arm))
    # As to a Spark executor: a pickle carries who it is, and no token.
    async with pair_of(pickle.loads(pickle.dumps(settings))) as pair:  # noqa: S301  our own pickle
        assert len((await pair.provision()).created) == 2
        async with pair.sender("flights") as sender:
            assert (await sender.send(numbered(2))).primary == 2
            pair.fail_over("flights", reason="test")
            assert (await sender.send(numbered(2, start=2))).diverted == 2
        assert await pair.ping("flights")
        assert (await pair.syphon().drain()).moved == {"flights": 2}
        assert len((await pair.cleanup(everything=True)).deleted) == 2
    arrived = await peek_all(emulator["contoso"].connection_string, "flights")
    assert sorted(str(message.message_id) for message in arrived) == ["m0", "m1", "m2", "m3"]


async def test_the_whole_way_is_taken_under_tls_to_an_endpoint_of_ones_own(emulator: Emulator) -> None:
    settings = settings_of(emulator)
    for side, name in (("primary", "contoso"), ("secondary", "contoso-dr")):
        hosted = emulator[name]
        settings |= {
            f"{side}_host": f"{name}.servicebus.windows.net",
            f"{side}_endpoint_address": f"sb://{hosted.host}:{hosted.amqp_port}",
            f"{side}_emulator": False,
        }
    async with pair_of(read_pair(settings)) as pair:
        await pair.provision()
        async with pair.sender("flights") as sender:
            assert (await sender.send(numbered(1))).primary == 1
            pair.fail_over("flights", reason="test")
            assert (await sender.send(numbered(1, start=1))).diverted == 1


async def test_a_wrong_key_is_no_outage_at_an_endpoint_of_ones_own_either(emulator: Emulator) -> None:
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
        # What was refused is told once: an error that is its own cause has no end.
        assert refused.value.cause.__cause__ is not refused.value.cause


async def test_a_wrong_secret_is_refused_at_once_and_not_shown(
    emulator: Emulator, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = settings_of(emulator, primary_client_secret="c4nary-wrong", secondary_client_secret="c4nary-wrong")
    async with pair_of(read_pair(wrong)) as pair:
        async with pair.sender("flights") as sender:
            with pytest.raises(SendError) as refused:
                await sender.send(numbered(1), timeout=10)
        assert isinstance(refused.value.cause, AuthenticationError)
        with pytest.raises(ProvisionError, match="AADSTS7000215") as provisioned:
            await pair.provision()
    assert "c4nary" not in f"{refused.value} {provisioned.value} {caplog.text} {pair.primary!r}"


async def test_a_role_that_only_sends_may_not_provision(emulator: Emulator) -> None:
    settings = read_pair(settings_of(emulator, client=SENDER))
    async with pair_of(settings) as pair:
        async with pair.sender("flights") as sender:
            assert (await sender.send(numbered(1))).primary == 1
        with pytest.raises(ProvisionError, match="the Manage right is needed"):
            await pair.provision()


async def test_a_token_service_that_is_down_is_an_outage(emulator: Emulator) -> None:
    given = settings_of(emulator, primary_authority="https://127.0.0.1:1", primary_client_id="another")
    settings = read_pair(given)
    async with pair_of(replace(settings, secondary=read_pair(settings_of(emulator)).secondary)) as pair:
        await pair.provision()
        async with pair.sender("flights") as sender:
            assert (await sender.send(numbered(1), timeout=20)).diverted == 1
    with pytest.raises(UnreachableError):
        async with administration_of(settings.primary) as administration:
            await administration.queues()
