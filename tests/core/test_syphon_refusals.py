"""What no waiting mends is one error at once: a missing right, a backlog that is not provisioned (SPEC section 6)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from servicebus_emulator import Fault, FaultKind, HostedNamespace, Operation
from servicebus_emulator.engine.descriptions import AccessRight, QueueDescription
from servicebus_pair.core import Endpoint, NamespacePair, PairOptions
from servicebus_pair.core.errors import AuthorizationError, EntityNotFoundError, ServiceError
from servicebus_pair.core.syphon import Syphon
from tests.core.hosted import BACKLOG, Hosted, endpoint, hosted, messages
from tests.core.syphoning import Watch

pytestmark = pytest.mark.simulated

# Four tries and their rests of 1, 2, 4 and 8 seconds do not fit in.
AT_ONCE = 5.0
THREE = PairOptions(backlog_queue_count=3)


def limited(namespace: HostedNamespace, *rights: AccessRight) -> Endpoint:
    """The namespace as a key knows it that has no other rights."""
    rule = namespace.namespace.access_rules.put("limited", rights=list(rights))
    return Endpoint.from_connection_string(
        f"Endpoint=sb://{namespace.host}:{namespace.amqp_port};SharedAccessKeyName=limited;"
        f"SharedAccessKey={rule.primary_key};UseDevelopmentEmulator=true;",
        namespace=namespace.name,
        administration=f"{namespace.host}:{namespace.admin_port}",
    )


@asynccontextmanager
async def known_as(
    both: Hosted, *, primary: Endpoint | None = None, secondary: Endpoint | None = None
) -> AsyncIterator[NamespacePair]:
    """A pair of its own, of which one side is known by another key."""
    first = endpoint(both.primary) if primary is None else primary
    second = endpoint(both.secondary) if secondary is None else secondary
    async with NamespacePair(first, second, both.pair.options) as pair:
        yield pair


async def refusal(doing: str, syphon: Syphon) -> ServiceError:
    """The error of a drain, a continuous syphon or a dry run, which comes before anything is tried again."""
    with pytest.raises(ServiceError) as caught:
        async with asyncio.timeout(AT_ONCE):
            await getattr(syphon, doing)()
    assert not caught.value.retriable
    return caught.value


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("doing", ["drain", "run", "survey"])
async def test_section_6_a_key_that_may_not_listen_to_the_backlog_is_told_at_once(doing: str, *, named: bool) -> None:
    async with hosted("flights", options=THREE) as both:
        await both.put_into_backlog("flights", messages(1))
        async with known_as(both, secondary=limited(both.secondary, AccessRight.SEND)) as pair:
            syphon = pair.syphon([BACKLOG], entities=["flights"]) if named else pair.syphon()
            error = await refusal(doing, syphon)
        assert isinstance(error, AuthorizationError)
        assert " on contoso-dr: " in str(error)
        queue = BACKLOG if named else BACKLOG.removesuffix("0")
        assert f"the right Listen on {queue}" in str(error)
        assert "is needed: give it to the credential of this namespace" in str(error)
        assert await both.ids_in_backlog() == ["m1"]


@pytest.mark.parametrize("doing", ["drain", "run"])
async def test_section_6_a_key_that_may_not_send_to_the_primary_is_told_at_once(doing: str) -> None:
    async with hosted("flights") as both:
        await both.put_into_backlog("flights", messages(1, 2))
        async with known_as(both, primary=limited(both.primary, AccessRight.LISTEN)) as pair:
            error = await refusal(doing, pair.syphon(entities=["flights"]))
        assert isinstance(error, AuthorizationError)
        assert "open a link to flights on contoso: " in str(error)
        assert "the right Send on flights is needed" in str(error)
        assert (await both.pair.syphon().drain()).moved == {"flights": 2}, "nothing is locked any more"


@pytest.mark.parametrize("doing", ["drain", "run", "survey"])
async def test_section_6_a_backlog_that_is_not_provisioned_is_told_at_once(doing: str) -> None:
    async with hosted("flights") as both:
        both.secondary.namespace.delete_queue(BACKLOG)
        error = await refusal(doing, both.pair.syphon())
    assert isinstance(error, EntityNotFoundError)
    assert f"the backlog queue {BACKLOG} does not exist: create the backlog with provision" in str(error)
    assert " on contoso-dr" in str(error)


async def test_section_6_what_may_be_moved_is_moved_and_the_report_names_what_was_refused() -> None:
    async with hosted("flights", options=THREE) as both:
        await both.put_into_backlog("flights", messages(1, 2))
        gone = BACKLOG.replace("/0", "/2")
        both.secondary.namespace.delete_queue(gone)
        async with asyncio.timeout(AT_ONCE):
            report = await both.pair.syphon().drain()
        assert report.moved == {"flights": 2}
        assert not report.empty
        assert list(report.failures) == [gone]
        assert isinstance(await refusal("drain", both.pair.syphon()), EntityNotFoundError)


async def test_section_6_a_right_given_meanwhile_serves_the_next_drain_of_the_same_syphon() -> None:
    async with hosted("flights") as both:
        await both.put_into_backlog("flights", messages(1))
        async with known_as(both, primary=limited(both.primary, AccessRight.LISTEN)) as pair:
            syphon = pair.syphon()
            for _ in range(2):
                await refusal("drain", syphon)
            both.primary.namespace.access_rules.put("limited", rights=[AccessRight.SEND])
            assert (await syphon.drain()).moved == {"flights": 1}


async def test_section_6_a_continuous_syphon_waits_for_rights_and_queues_that_had_been_there() -> None:
    async with hosted("flights") as both:
        watch, syphon = Watch(), both.pair.syphon()
        await both.put_into_backlog("flights", messages(1))
        running = asyncio.create_task(syphon.run(progress=watch))
        await watch.until(lambda report: report.moved_total == 1)

        both.primary.set_fault(Fault(kind=FaultKind.UNAUTHORIZED, on=(Operation.SEND,)))
        await both.put_into_backlog("flights", messages(2))
        await watch.until(lambda report: "the right Send" in report.failures.get("flights", ""))
        both.primary.clear_faults()
        await watch.until(lambda report: report.moved_total == 2)

        both.secondary.namespace.delete_queue(BACKLOG)
        await watch.until(lambda report: "does not exist" in report.failures.get(BACKLOG, ""))
        both.secondary.namespace.create_queue(QueueDescription(BACKLOG, max_delivery_count=2**31 - 1))
        async with known_as(both) as sending:
            await replace(both, pair=sending).put_into_backlog("flights", messages(3))
        await watch.until(lambda report: report.moved_total == 3)
        syphon.stop()
        await running


async def test_section_6_the_syphon_of_an_open_pair_waits_until_its_backlog_is_provisioned() -> None:
    async with hosted("flights") as both:
        both.secondary.namespace.delete_queue(BACKLOG)
        options = PairOptions(backlog_queue_count=1, enable_syphon=True)
        async with NamespacePair(endpoint(both.primary), endpoint(both.secondary), options) as pair:
            while not pair.meter.read().empty_receives:  # noqa: ASYNC110 - a meter tells nobody
                await asyncio.sleep(0.05)
            assert (await pair.provision()).created == (BACKLOG,)
            await both.put_into_backlog("flights", messages(1))
            async with asyncio.timeout(20):
                while both.secondary.namespace.counts(BACKLOG).active:  # noqa: ASYNC110 - a namespace tells nobody
                    await asyncio.sleep(0.05)
        assert await both.ids("flights") == ["m1"]
