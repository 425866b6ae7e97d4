"""Missing rights and backlog queues are reported at once, without retries (SPEC section 6)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from servicebus_emulator import HostedNamespace
from servicebus_emulator.engine.model.descriptions import AccessRight
from servicebus_pair.core import Endpoint, NamespacePair, PairOptions
from servicebus_pair.core.model.errors import AuthorizationError, EntityNotFoundError, ServiceError
from servicebus_pair.core.syphon.drain import Syphon
from tests.core.support.local_pair import BACKLOG, LocalPair, endpoint, messages, open_local_pair

pytestmark = pytest.mark.simulated

# Too short for retries with delays of 1, 2, 4 and 8 seconds.
AT_ONCE = 5.0
THREE = PairOptions(backlog_queue_count=3)


def limited(namespace: HostedNamespace, *rights: AccessRight) -> Endpoint:
    """The namespace with a key that has only some rights."""
    rule = namespace.namespace.access_policies.put("limited", rights=list(rights))
    return Endpoint.from_connection_string(
        f"Endpoint=sb://{namespace.host}:{namespace.amqp_port};SharedAccessKeyName=limited;"
        f"SharedAccessKey={rule.primary_key};UseDevelopmentEmulator=true;",
        namespace=namespace.name,
        administration=f"{namespace.host}:{namespace.admin_port}",
    )


@asynccontextmanager
async def known_as(
    local_pair: LocalPair, *, primary: Endpoint | None = None, secondary: Endpoint | None = None
) -> AsyncIterator[NamespacePair]:
    """A second pair that uses another key for one namespace."""
    first = endpoint(local_pair.primary) if primary is None else primary
    second = endpoint(local_pair.secondary) if secondary is None else secondary
    async with NamespacePair(first, second, local_pair.pair.options) as pair:
        yield pair


async def refusal(doing: str, syphon: Syphon) -> ServiceError:
    """The error of a drain, a continuous syphon or a survey, raised before any retry."""
    with pytest.raises(ServiceError) as caught:
        async with asyncio.timeout(AT_ONCE):
            await getattr(syphon, doing)()
    assert not caught.value.retriable
    return caught.value


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("doing", ["drain", "run", "survey"])
async def test_section_6_a_missing_listen_right_is_reported_at_once(doing: str, *, named: bool) -> None:
    async with open_local_pair("flights", options=THREE) as local_pair:
        await local_pair.put_into_backlog("flights", messages(1))
        async with known_as(local_pair, secondary=limited(local_pair.secondary, AccessRight.SEND)) as pair:
            syphon = pair.syphon([BACKLOG], entities=["flights"]) if named else pair.syphon()
            error = await refusal(doing, syphon)
        assert isinstance(error, AuthorizationError)
        assert " on contoso-dr: " in str(error)
        queue = BACKLOG if named else BACKLOG.removesuffix("0")
        assert f"the right Listen on {queue}" in str(error)
        assert "is needed: give it to the credential of this namespace" in str(error)
        assert await local_pair.backlog_ids() == ["m1"]


@pytest.mark.parametrize("doing", ["drain", "run"])
async def test_section_6_a_missing_send_right_is_reported_at_once(doing: str) -> None:
    async with open_local_pair("flights") as local_pair:
        await local_pair.put_into_backlog("flights", messages(1, 2))
        async with known_as(local_pair, primary=limited(local_pair.primary, AccessRight.LISTEN)) as pair:
            error = await refusal(doing, pair.syphon(entities=["flights"]))
        assert isinstance(error, AuthorizationError)
        assert "open a link to flights on contoso: " in str(error)
        assert "the right Send on flights is needed" in str(error)
        assert (await local_pair.pair.syphon().drain()).moved == {"flights": 2}, "nothing is locked any more"


@pytest.mark.parametrize("doing", ["drain", "run", "survey"])
async def test_section_6_a_missing_backlog_queue_is_reported_at_once(doing: str) -> None:
    async with open_local_pair("flights") as local_pair:
        local_pair.secondary.namespace.delete_queue(BACKLOG)
        error = await refusal(doing, local_pair.pair.syphon())
    assert isinstance(error, EntityNotFoundError)
    assert f"the backlog queue {BACKLOG} does not exist: create the backlog with provision" in str(error)
    assert " on contoso-dr" in str(error)


async def test_section_6_the_syphon_of_an_open_pair_waits_until_its_backlog_is_provisioned() -> None:
    async with open_local_pair("flights") as local_pair:
        local_pair.secondary.namespace.delete_queue(BACKLOG)
        options = PairOptions(backlog_queue_count=1, enable_syphon=True)
        async with NamespacePair(endpoint(local_pair.primary), endpoint(local_pair.secondary), options) as pair:
            while not pair.meter.read().empty_receives:  # noqa: ASYNC110 - a meter has no event
                await asyncio.sleep(0.05)
            assert (await pair.provision()).created == (BACKLOG,)
            await local_pair.put_into_backlog("flights", messages(1))
            async with asyncio.timeout(20):
                while local_pair.secondary.namespace.counts(BACKLOG).active:  # noqa: ASYNC110 - a namespace has no event
                    await asyncio.sleep(0.05)
        assert await local_pair.primary_ids("flights") == ["m1"]
