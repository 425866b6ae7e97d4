"""Cleanup deletes backlog queues on request only, and none that holds a message (SPEC section 3)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import ServiceBusMessage

from servicebus_emulator.engine.descriptions import QueueDescription
from servicebus_pair.core.administration import ServiceBusAdministration
from servicebus_pair.core.backlog import backlog_queue, cleanup_targets
from servicebus_pair.core.cleaner import Cleaner
from tests.core.breakable import Breakable, breakable_pair, endpoint, numbered

QUEUES = tuple(backlog_queue("contoso", index) for index in range(3))
EXTRA = backlog_queue("contoso", 7)


@pytest.fixture
async def tidy() -> AsyncIterator[Breakable]:
    """A pair whose secondary also has an extra backlog queue, and queues that are none."""
    async with breakable_pair() as made:
        for path in (EXTRA, "orders", "contoso/x-servicebus-transfer/notes", "fabrikam/x-servicebus-transfer/9"):
            made.secondary.namespace.create_queue(QueueDescription(path))
        yield made


def test_section_3_only_backlog_queues_of_this_pair_are_ever_deleted() -> None:
    actual = [
        *QUEUES,
        EXTRA.upper(),
        "orders",
        "fabrikam/x-servicebus-transfer/9",
        "contoso/x-servicebus-transfer/notes",
    ]
    assert cleanup_targets("contoso", 3, actual, everything=False) == (EXTRA.upper(),)
    assert sorted(cleanup_targets("contoso", 3, actual, everything=True)) == sorted([EXTRA.upper(), *QUEUES])


async def test_section_3_extra_queues_are_deleted_when_asked_for_and_all_others_stay(tidy: Breakable) -> None:
    assert await tidy.pair.plan_cleanup() == (EXTRA,)
    report = await tidy.pair.cleanup()
    assert (report.deleted, report.kept, report.failed) == ((EXTRA,), {}, {})
    assert (await tidy.pair.provision()).found == QUEUES
    assert (await tidy.pair.cleanup()).deleted == ()


async def test_only_the_queues_that_were_named_are_deleted(tidy: Breakable) -> None:
    named = [EXTRA.upper(), QUEUES[1], "orders"]
    assert await tidy.pair.plan_cleanup(only=named) == (EXTRA,)
    assert await tidy.pair.plan_cleanup(everything=True, only=[QUEUES[1]]) == (QUEUES[1],)
    assert (await tidy.pair.cleanup(everything=True, only=named)).deleted == (QUEUES[1], EXTRA)
    assert (await tidy.pair.provision()).found == (QUEUES[0], QUEUES[2])


@pytest.mark.parametrize("kind", ["active", "scheduled", "dead-lettered", "deferred"])
async def test_section_3_a_queue_that_holds_anything_is_kept_unless_forced(tidy: Breakable, kind: str) -> None:
    shared = tidy.pair._open()
    message = ServiceBusMessage("x")
    if kind == "scheduled":
        message.scheduled_enqueue_time_utc = datetime(2030, 1, 1, tzinfo=UTC)
    await shared.secondary.send_link(EXTRA).send_one(message, timeout=5)
    if kind in ("dead-lettered", "deferred"):
        link = shared.secondary.receive_link(EXTRA)
        [held] = await link.receive(most=1, wait=2, timeout=5)
        if kind == "deferred":
            await link._handler.defer_message(held)
        else:
            await link.dead_letter(held, reason="test", description="", timeout=5)
        await link.close()
    report = await tidy.pair.cleanup()
    assert (report.deleted, report.kept) == ((), {EXTRA: 1})
    assert (await tidy.pair.cleanup(force=True)).deleted == (EXTRA,)


class LateArrival(ServiceBusAdministration):
    """Administration during which a sender is faster than the closing of the queue."""

    send: Callable[[], Awaitable[object]]

    async def allow_sending(self, path: str, *, allowed: bool) -> None:
        if not allowed:
            await self.send()
        await super().allow_sending(path, allowed=allowed)


async def test_section_3_what_arrives_between_counting_and_closing_is_kept_and_the_queue_goes_on(
    tidy: Breakable,
) -> None:
    async with tidy.pair.sender("flights") as sender, LateArrival(endpoint(tidy.secondary)) as administration:
        tidy.pair.fail_over("flights", reason="test", hold=timedelta(minutes=1))
        [queue] = (await sender.send(numbered(1))).backlog_queues
        await tidy.pair.syphon([queue]).drain()
        administration.send = lambda: sender.send(numbered(1, start=1))
        report = await Cleaner(administration, namespace="contoso", count=0).clean(everything=True, force=False)
        assert list(report.kept) == [queue]
        assert EXTRA in report.deleted
        assert set(await tidy.ids_in([queue])) >= {"m1"}
        # Open again: it takes what comes.
        assert (await sender.send(numbered(1, start=2))).backlog_queues == (queue,)
