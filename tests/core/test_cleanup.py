"""Cleanup deletes backlog queues on request only, and none that holds a message (SPEC section 3)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import ServiceBusMessage

from servicebus_emulator import Emulator
from servicebus_emulator.engine.descriptions import EntityStatus, QueueDescription
from servicebus_pair.core.administration import ServiceBusAdministration
from servicebus_pair.core.arm_administration import ArmAdministration
from servicebus_pair.core.backlog import backlog_queue, cleanup_targets
from servicebus_pair.core.cleaner import Cleaner
from servicebus_pair.core.clients import NamespaceClient
from servicebus_pair.core.errors import ServerBusyError, ServiceError, TimedOutError
from tests.core.breakable import Breakable, breakable_pair, endpoint, numbered
from tests.core.test_arm_administration import arm_of, through_arm

QUEUES = tuple(backlog_queue("contoso", index) for index in range(3))
EXTRA = backlog_queue("contoso", 7)
OTHER_EXTRA = backlog_queue("contoso", 8)


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


@pytest.mark.parametrize("kind", ["active", "scheduled", "dead-lettered", "deferred", "locked"])
async def test_section_3_a_queue_that_holds_anything_is_kept_unless_forced(tidy: Breakable, kind: str) -> None:
    shared = tidy.pair._open()
    message = ServiceBusMessage("x")
    if kind == "scheduled":
        message.scheduled_enqueue_time_utc = datetime(2030, 1, 1, tzinfo=UTC)
    await shared.secondary.send_link(EXTRA).send_one(message, timeout=5)
    if kind in ("dead-lettered", "deferred", "locked"):
        link = shared.secondary.receive_link(EXTRA)
        [held] = await link.receive(most=1, wait=2, timeout=5)
        if kind == "deferred":
            await link._handler.defer_message(held)
        elif kind == "dead-lettered":
            await link.dead_letter(held, reason="test", description="", timeout=5)
        if kind != "locked":
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


async def test_section_3_what_could_not_be_passed_on_is_held_too(tidy: Breakable) -> None:
    tidy.secondary.namespace.create_queue(QueueDescription(OTHER_EXTRA, forward_to="orders"))
    await tidy.pair._open().secondary.send_link("orders").open(timeout=5)
    tidy.secondary.namespace.update_queue(QueueDescription("orders", status=EntityStatus.SEND_DISABLED))
    await tidy.pair._open().secondary.send_link(OTHER_EXTRA).send_one(ServiceBusMessage("x"), timeout=5)
    report = await tidy.pair.cleanup()
    assert (report.deleted, report.kept) == ((EXTRA,), {OTHER_EXTRA: 1})


class FailsWhenClosed(ServiceBusAdministration):
    """Administration that fails once a queue is closed, at the step of choice."""

    at: str
    stuck: asyncio.Event | None = None
    shut: bool = False

    async def allow_sending(self, path: str, *, allowed: bool) -> None:
        if allowed and self.shut:
            raise ServerBusyError(f"update {path}: HTTP 503")
        await super().allow_sending(path, allowed=allowed)
        self.closed = not allowed

    async def held(self, path: str) -> int:
        await self._fail_at("held")
        return await super().held(path)

    async def delete_queue(self, path: str) -> None:
        await self._fail_at("delete")
        await super().delete_queue(path)

    async def _fail_at(self, step: str) -> None:
        if self.at == step and getattr(self, "closed", False):
            if self.stuck is not None:
                self.stuck.set()
                await asyncio.Event().wait()
            raise TimedOutError(f"{step}: no answer in 30 s")


@pytest.mark.parametrize("at", ["held", "delete"])
async def test_section_3_a_queue_that_was_closed_and_could_not_be_deleted_is_opened_again(
    tidy: Breakable, at: str
) -> None:
    async with FailsWhenClosed(endpoint(tidy.secondary)) as administration:
        administration.at = at
        report = await Cleaner(administration, namespace="contoso", count=3).clean(everything=False, force=False)
    assert (report.deleted, report.kept) == ((), {})
    assert "no answer" in report.failed[EXTRA]
    await tidy.pair._open().secondary.send_link(EXTRA).send_one(ServiceBusMessage("x"), timeout=5)


async def test_section_3_a_queue_that_stays_closed_is_named_and_reported_as_drift_until_it_is_cleaned_up(
    tidy: Breakable,
) -> None:
    async with FailsWhenClosed(endpoint(tidy.secondary)) as administration:
        administration.at, administration.shut = "delete", True
        report = await Cleaner(administration, namespace="contoso", count=0).clean(everything=True, force=False)
    assert "it stays closed to senders" in report.failed[QUEUES[0]]
    found = await tidy.pair.provision()
    assert {(each.queue, each.field, each.actual) for each in found.drifted} == {
        (queue, "status", "SendDisabled") for queue in QUEUES
    }
    assert set((await tidy.pair.cleanup(everything=True)).deleted) == {*QUEUES, EXTRA}


async def test_section_3_a_cleanup_that_is_cancelled_leaves_no_queue_closed(tidy: Breakable) -> None:
    async with FailsWhenClosed(endpoint(tidy.secondary)) as administration:
        administration.at, administration.stuck = "delete", asyncio.Event()
        cleaner = Cleaner(administration, namespace="contoso", count=3)
        cleaning = asyncio.create_task(cleaner.clean(everything=False, force=False))
        await asyncio.wait_for(administration.stuck.wait(), 5)
        cleaning.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cleaning
    await tidy.pair._open().secondary.send_link(EXTRA).send_one(ServiceBusMessage("x"), timeout=5)


class LastMoment:
    """Right before the deletion a sender, whose link was open all the time, tries once more."""

    send: Callable[[], Awaitable[object]]
    refused = 0

    async def delete_queue(self, path: str) -> None:
        with pytest.raises(ServiceError, match="SendDisabled"):
            await self.send()
        self.refused += 1
        await super().delete_queue(path)  # type: ignore[misc]  # of an Administration


class LastMomentOfDataPlane(LastMoment, ServiceBusAdministration):
    """Through the data plane."""


class LastMomentOfArm(LastMoment, ArmAdministration):
    """Through Azure Resource Manager."""


@pytest.mark.parametrize("way", ["data plane", "arm"])
async def test_section_3_what_is_sent_between_the_last_count_and_the_deletion_is_refused_and_not_lost(way: str) -> None:
    async with Emulator(["contoso", "contoso-dr"]) as emulator:
        secondary = emulator["contoso-dr"]
        secondary.namespace.create_queue(QueueDescription(EXTRA))
        client = NamespaceClient(endpoint(secondary))
        link = client.send_link(EXTRA)
        await link.open(timeout=5)
        managing = (
            arm_of(through_arm(emulator), LastMomentOfArm)
            if way == "arm"
            else LastMomentOfDataPlane(endpoint(secondary))
        )
        async with managing as administration:
            assert isinstance(administration, LastMoment)
            administration.send = lambda: link.send_one(ServiceBusMessage("x"), timeout=5)
            report = await Cleaner(administration, namespace="contoso", count=3).clean(everything=False, force=False)
        await client.close()
    assert (report.deleted, administration.refused) == ((EXTRA,), 1)
