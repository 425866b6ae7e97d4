"""Cleanup of backlog queues, which never deletes a message unless forced (SPEC section 3)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import ServiceBusMessage

from servicebus_emulator import Emulator
from servicebus_emulator.engine.model.descriptions import EntityStatus, QueueDescription
from servicebus_pair.core.model.errors import ServerBusyError, ServiceError, TimedOutError
from servicebus_pair.core.protocol.backlog_queues import backlog_queue, cleanup_targets, session_queue_paths
from servicebus_pair.core.provision.provisioning import Cleaner
from servicebus_pair.core.sdk.administration.arm import ArmAdministration
from servicebus_pair.core.sdk.administration.data_plane import ServiceBusAdministration
from servicebus_pair.core.sdk.messages import to_amqp_message
from servicebus_pair.core.sdk.namespace_client import NamespaceClient
from tests.core.sdk.administration.test_arm import arm_of, through_arm
from tests.core.support.local_pair import LocalPair, endpoint, numbered, open_quick_pair

QUEUES = tuple(backlog_queue("contoso", index) for index in range(3))
EXTRA = backlog_queue("contoso", 7)
OTHER_EXTRA = backlog_queue("contoso", 8)


@pytest.fixture
async def tidy() -> AsyncIterator[LocalPair]:
    """A pair whose secondary also has an extra backlog queue, and queues that are none."""
    async with open_quick_pair() as made:
        for path in (EXTRA, "orders", "contoso/x-servicebus-transfer/notes", "fabrikam/x-servicebus-transfer/9"):
            made.secondary.namespace.create_queue(QueueDescription(path))
        yield made


def test_targets_are_only_backlog_queues_of_this_pair() -> None:
    actual = [
        *QUEUES,
        EXTRA.upper(),
        "orders",
        "fabrikam/x-servicebus-transfer/9",
        "contoso/x-servicebus-transfer/notes",
    ]
    assert cleanup_targets("contoso", 3, actual, everything=False) == (EXTRA.upper(),)
    assert sorted(cleanup_targets("contoso", 3, actual, everything=True)) == sorted([EXTRA.upper(), *QUEUES])


async def test_cleanup_deletes_extra_queues_only(tidy: LocalPair) -> None:
    assert await tidy.pair.plan_cleanup() == (EXTRA,)
    report = await tidy.pair.cleanup()
    assert (report.deleted, report.kept, report.failed) == ((EXTRA,), {}, {})
    assert (await tidy.pair.provision()).found == QUEUES
    assert (await tidy.pair.cleanup()).deleted == ()


async def test_only_named_queues_are_deleted(tidy: LocalPair) -> None:
    named = [EXTRA.upper(), QUEUES[1], "orders"]
    assert await tidy.pair.plan_cleanup(only=named) == (EXTRA,)
    assert await tidy.pair.plan_cleanup(everything=True, only=[QUEUES[1]]) == (QUEUES[1],)
    assert (await tidy.pair.cleanup(everything=True, only=named)).deleted == (QUEUES[1], EXTRA)
    assert (await tidy.pair.provision()).found == (QUEUES[0], QUEUES[2])


async def test_section_3_session_queues_are_extra_without_session_order_and_kept_while_they_hold_messages() -> None:
    empty, used = session_queue_paths("contoso", 2)
    async with open_quick_pair() as made:
        for path in (empty, used):
            made.secondary.namespace.create_queue(QueueDescription(path, requires_session=True))
        message = to_amqp_message(ServiceBusMessage("x", session_id="flights"))
        await made.pair._open().secondary.send_link(used).send_ping(message, timeout=5)
        assert await made.pair.plan_cleanup() == (empty, used)
        report = await made.pair.cleanup()
        assert (report.deleted, report.kept) == ((empty,), {used: 1})
        assert (await made.pair.cleanup(force=True)).deleted == (used,)


async def test_section_3_session_queues_in_use_are_no_target() -> None:
    async with open_quick_pair(ordering="session") as made:
        sessions = session_queue_paths("contoso", 3)
        assert await made.pair.plan_cleanup() == ()
        assert set(await made.pair.plan_cleanup(everything=True)) == {*QUEUES, *sessions}
        assert set((await made.pair.cleanup(everything=True)).deleted) == {*QUEUES, *sessions}


@pytest.mark.parametrize("kind", ["scheduled", "dead-lettered", "deferred", "locked"])
async def test_non_empty_queue_is_kept_unless_forced(tidy: LocalPair, kind: str) -> None:
    shared = tidy.pair._open()
    message = ServiceBusMessage("x")
    if kind == "scheduled":
        message.scheduled_enqueue_time_utc = datetime(2030, 1, 1, tzinfo=UTC)
    await shared.secondary.send_link(EXTRA).send_ping(to_amqp_message(message), timeout=5)
    if kind in ("dead-lettered", "deferred", "locked"):
        link = shared.secondary.receive_link(EXTRA)
        [held] = await link.receive(max_messages=1, max_wait_time=2, timeout=5)
        if kind == "deferred":
            await link._handler.defer_message(held.sdk_message)
        elif kind == "dead-lettered":
            await link.dead_letter(held, reason="test", description="", timeout=5)
        if kind != "locked":
            await link.close()
    report = await tidy.pair.cleanup()
    assert (report.deleted, report.kept) == ((), {EXTRA: 1})
    assert (await tidy.pair.cleanup(force=True)).deleted == (EXTRA,)


class LateArrival(ServiceBusAdministration):
    """Administration that sends a message right before it disables sending."""

    path: str
    send: Callable[[], Awaitable[object]]

    async def set_sending(self, path: str, *, enabled: bool) -> None:
        if not enabled and path == self.path:
            await self.send()
        await super().set_sending(path, enabled=enabled)


async def test_message_arriving_before_the_queue_is_closed_is_kept(
    tidy: LocalPair,
) -> None:
    async with tidy.pair.sender("flights") as sender, LateArrival(endpoint(tidy.secondary)) as administration:
        await tidy.pair.fail_over("flights", reason="test", hold=timedelta(minutes=1))
        [queue] = (await sender.send(numbered(1))).backlog_queues
        await tidy.pair.syphon([queue]).drain()
        administration.path, administration.send = queue, lambda: sender.send(numbered(1, start=1))
        report = await Cleaner(administration, namespace="contoso", count=0).clean(everything=True, force=False)
        assert list(report.kept) == [queue]
        assert EXTRA in report.deleted
        assert set(await tidy.backlog_ids(queue)) >= {"m1"}
        assert (await sender.send(numbered(1, start=2))).backlog_queues == (queue,)


async def test_transfer_dead_letters_count_as_messages(tidy: LocalPair) -> None:
    tidy.secondary.namespace.create_queue(QueueDescription(OTHER_EXTRA, forward_to="orders"))
    await tidy.pair._open().secondary.send_link("orders").open(timeout=5)
    tidy.secondary.namespace.update(QueueDescription("orders", status=EntityStatus.SEND_DISABLED))
    link = tidy.pair._open().secondary.send_link(OTHER_EXTRA)
    await link.send_ping(to_amqp_message(ServiceBusMessage("x")), timeout=5)
    report = await tidy.pair.cleanup()
    assert (report.deleted, report.kept) == ((EXTRA,), {OTHER_EXTRA: 1})


class FailsWhenClosed(ServiceBusAdministration):
    """Administration that fails at one step once a queue is closed."""

    at: str
    stuck: asyncio.Event | None = None
    shut: bool = False

    async def set_sending(self, path: str, *, enabled: bool) -> None:
        if enabled and self.shut:
            raise ServerBusyError(f"update {path}: HTTP 503")
        await super().set_sending(path, enabled=enabled)
        self.closed = not enabled

    async def message_count(self, path: str) -> int:
        await self._fail_at("held")
        return await super().message_count(path)

    async def delete_queue(self, path: str) -> None:
        await self._fail_at("delete")
        await super().delete_queue(path)
        await self._fail_at("deleted")

    async def _fail_at(self, step: str) -> None:
        if self.at == step and getattr(self, "closed", False):
            if self.stuck is not None:
                self.stuck.set()
                await asyncio.Event().wait()
            raise TimedOutError(f"{step}: no answer in 30 s")


@pytest.mark.parametrize("at", ["held", "delete"])
async def test_queue_that_cannot_be_deleted_accepts_messages_again(tidy: LocalPair, at: str) -> None:
    async with FailsWhenClosed(endpoint(tidy.secondary)) as administration:
        administration.at = at
        report = await Cleaner(administration, namespace="contoso", count=3).clean(everything=False, force=False)
    assert (report.deleted, report.kept) == ((), {})
    assert "no answer" in report.failed[EXTRA]
    await tidy.pair._open().secondary.send_link(EXTRA).send_ping(to_amqp_message(ServiceBusMessage("x")), timeout=5)


async def test_queue_that_was_deleted_although_nothing_confirmed_it_counts_as_deleted(tidy: LocalPair) -> None:
    async with FailsWhenClosed(endpoint(tidy.secondary)) as administration:
        administration.at = "deleted"
        report = await Cleaner(administration, namespace="contoso", count=3).clean(everything=False, force=False)
    assert (report.deleted, report.kept, report.failed) == ((EXTRA,), {}, {})


async def test_queue_that_stays_closed_is_reported_as_failure_and_drift(
    tidy: LocalPair,
) -> None:
    async with FailsWhenClosed(endpoint(tidy.secondary)) as administration:
        administration.at, administration.shut = "delete", True
        report = await Cleaner(administration, namespace="contoso", count=0).clean(everything=True, force=False)
    assert "sending stays disabled" in report.failed[QUEUES[0]]
    found = await tidy.pair.provision()
    assert {(each.queue, each.field, each.actual) for each in found.drifted} == {
        (queue, "status", "SendDisabled") for queue in QUEUES
    }
    assert set((await tidy.pair.cleanup(everything=True)).deleted) == {*QUEUES, EXTRA}


async def test_cancelled_cleanup_leaves_no_queue_closed(tidy: LocalPair) -> None:
    async with FailsWhenClosed(endpoint(tidy.secondary)) as administration:
        administration.at, administration.stuck = "delete", asyncio.Event()
        cleaner = Cleaner(administration, namespace="contoso", count=3)
        cleaning = asyncio.create_task(cleaner.clean(everything=False, force=False))
        await asyncio.wait_for(administration.stuck.wait(), 5)
        cleaning.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cleaning
    await tidy.pair._open().secondary.send_link(EXTRA).send_ping(to_amqp_message(ServiceBusMessage("x")), timeout=5)


class SendsBeforeDelete:
    """Sends over an open link right before the deletion."""

    send: Callable[[], Awaitable[object]]
    refused = 0

    async def delete_queue(self, path: str) -> None:
        with pytest.raises(ServiceError, match="SendDisabled"):
            await self.send()
        self.refused += 1
        await super().delete_queue(path)  # type: ignore[misc]  # of an Administration


class SendsBeforeDeleteOfDataPlane(SendsBeforeDelete, ServiceBusAdministration):
    """Through the data plane."""


class SendsBeforeDeleteOfArm(SendsBeforeDelete, ArmAdministration):
    """Through Azure Resource Manager."""


@pytest.mark.parametrize("way", ["data plane", "arm"])
async def test_message_sent_before_the_deletion_is_refused_and_not_lost(way: str) -> None:
    async with Emulator(["contoso", "contoso-dr"]) as emulator:
        secondary = emulator["contoso-dr"]
        secondary.namespace.create_queue(QueueDescription(EXTRA))
        client = NamespaceClient(endpoint(secondary))
        link = client.send_link(EXTRA)
        await link.open(timeout=5)
        managing = (
            arm_of(through_arm(emulator), SendsBeforeDeleteOfArm)
            if way == "arm"
            else SendsBeforeDeleteOfDataPlane(endpoint(secondary))
        )
        async with managing as administration:
            assert isinstance(administration, SendsBeforeDelete)
            administration.send = lambda: link.send_ping(to_amqp_message(ServiceBusMessage("x")), timeout=5)
            report = await Cleaner(administration, namespace="contoso", count=3).clean(everything=False, force=False)
        await client.close()
    assert (report.deleted, administration.refused) == ((EXTRA,), 1)
