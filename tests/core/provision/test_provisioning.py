"""Provisioning of backlog queues, through the data plane and Resource Manager (SPEC section 3)."""

from __future__ import annotations

import asyncio
from dataclasses import fields, replace

import pytest

from servicebus_emulator import Emulator, Fault, FaultKind, Operation
from servicebus_emulator.engine.model.descriptions import EntityStatus, QueueDescription
from servicebus_emulator.engine.model.timespan import TimeSpan
from servicebus_pair.core import Endpoint, NamespacePair, PairOptions
from servicebus_pair.core.model.errors import ProvisionError
from servicebus_pair.core.protocol.backlog_queues import (
    BACKLOG_QUEUE,
    SESSION_QUEUE,
    BacklogPlan,
    QueueSettings,
    backlog_queue,
    session_queue_paths,
)
from servicebus_pair.core.provision.provisioning import Provisioner
from servicebus_pair.core.sdk.administration import administration_for
from servicebus_pair.core.sdk.administration.data_plane import Administration, ServiceBusAdministration
from tests.core.sdk.administration.test_arm import through_arm
from tests.core.support.local_pair import endpoint
from tests.core.support.manual_clock import ManualClock

QUEUES = tuple(backlog_queue("contoso", index) for index in range(3))
EXTRA = backlog_queue("contoso", 7)
SESSIONS = session_queue_paths("contoso", 3)
ODD = QueueDescription(
    QUEUES[0],
    max_size_in_megabytes=1024,
    max_delivery_count=10,
    default_message_time_to_live=TimeSpan.parse("P1D"),
    auto_delete_on_idle=TimeSpan.parse("PT1H"),
    lock_duration=TimeSpan.parse("PT30S"),
    dead_lettering_on_message_expiration=False,
    enable_batched_operations=False,
    status=EntityStatus.SEND_DISABLED,
)
NAMESPACES = ["contoso", "contoso-dr"]
WAYS = pytest.mark.parametrize("way", ["data plane", "arm"])


def managed(emulator: Emulator, way: str) -> Endpoint:
    return through_arm(emulator) if way == "arm" else endpoint(emulator["contoso-dr"])


def pair_over(emulator: Emulator, way: str, *, ordering: str = "none") -> NamespacePair:
    options = PairOptions(backlog_queue_count=3, ordering=ordering)
    return NamespacePair(endpoint(emulator["contoso"]), managed(emulator, way), options)


def provisioner(administration: Administration, *, clock: ManualClock | None = None) -> Provisioner:
    return Provisioner(administration, namespace="contoso", count=3, clock=ManualClock() if clock is None else clock)


@WAYS
async def test_provision_does_what_was_planned_and_nothing_else(way: str) -> None:
    async with Emulator(NAMESPACES) as emulator:
        engine = emulator["contoso-dr"].namespace
        for path in (QUEUES[1], EXTRA, "orders", "contoso/x-servicebus-transfer/07"):
            engine.create_queue(QueueDescription(path))
        before = {queue.path: queue for queue in engine.list_queues()}
        async with pair_over(emulator, way) as pair:
            plan = await pair.plan()
            assert {queue.path for queue in engine.list_queues()} == set(before), "a plan changes nothing"
            report = await pair.provision()
            again = await pair.plan()
        assert (plan.found, plan.create, plan.extra) == (QUEUES[1:2], (QUEUES[0], QUEUES[2]), (EXTRA,))
        assert (report.found, report.created, report.extra) == (plan.found, plan.create, plan.extra)
        assert report.drifted == plan.drifted
        assert again == BacklogPlan(QUEUES, (), plan.drifted, (EXTRA,))
        after = {queue.path: queue for queue in engine.list_queues()}
        assert {path: after[path] for path in before} == before
        assert set(after) - set(before) == set(plan.create)


@WAYS
async def test_drift_is_reported_per_field_and_not_corrected(way: str) -> None:
    async with Emulator(NAMESPACES) as emulator:
        emulator["contoso-dr"].namespace.create_queue(ODD)
        async with pair_over(emulator, way) as pair:
            report = await pair.provision()
        assert report.found == QUEUES[:1]
        compared = {field.name for field in fields(QueueSettings)} - {"requires_session"}
        assert {drift.field for drift in report.drifted} == compared
        assert {drift.queue for drift in report.drifted} == {QUEUES[0]}
        found = {drift.field: (drift.expected, drift.actual) for drift in report.drifted}
        assert found["max_delivery_count"] == ("2147483647", "10")
        assert found["default_message_time_to_live"] == (BACKLOG_QUEUE.default_message_time_to_live, "P1D")
        assert found["lock_duration"] == ("PT1M", "PT30S")
        assert found["status"] == ("Active", "SendDisabled")
        [kept] = [queue for queue in emulator["contoso-dr"].namespace.list_queues() if queue.path == QUEUES[0]]
        assert replace(kept, path=QUEUES[0]) == ODD


@WAYS
async def test_concurrent_runs_do_not_conflict(way: str) -> None:
    async with Emulator(NAMESPACES) as emulator:
        async with pair_over(emulator, way) as one, pair_over(emulator, way) as two, pair_over(emulator, way) as three:
            reports = await asyncio.gather(one.provision(), two.provision(), three.provision())
        for report in reports:
            assert sorted(report.found + report.created) == list(QUEUES)
            assert report.failed == {}
        async with administration_for(managed(emulator, way)) as administration:
            assert await administration.list_queues() == dict.fromkeys(QUEUES, BACKLOG_QUEUE)


async def test_queue_created_concurrently_counts_as_created() -> None:
    class Late(ServiceBusAdministration):
        """Another run creates all queues right after the listing."""

        async def list_queues(self) -> dict[str, QueueSettings]:
            seen = await super().list_queues()
            async with ServiceBusAdministration(endpoint(emulator["contoso-dr"])) as other:
                await provisioner(other).provision()
            return seen

    async with Emulator(NAMESPACES) as emulator, Late(endpoint(emulator["contoso-dr"])) as administration:
        first = await provisioner(administration).provision()
        assert (first.found, first.created, first.failed) == ((), QUEUES, {})


async def test_queue_is_reported_after_three_failed_attempts() -> None:
    async with Emulator(NAMESPACES) as emulator:
        shaken, broken = (
            emulator["contoso-dr"].set_fault(
                Fault(kind=FaultKind.INTERNAL_ERROR, on=(Operation.ADMINISTER,), entity=path, count=count)
            )
            for path, count in ((QUEUES[0], 2), (QUEUES[1], 99))
        )
        clock = ManualClock()
        async with ServiceBusAdministration(endpoint(emulator["contoso-dr"])) as administration:
            report = await provisioner(administration, clock=clock).provision()
        assert report.created == (QUEUES[0], QUEUES[2])
        assert list(report.failed) == [QUEUES[1]]
        assert QUEUES[1] in report.failed[QUEUES[1]]
        strikes = {armed.id: armed.strikes for armed in emulator["contoso-dr"].clear_faults()}
        assert (strikes[shaken.id], strikes[broken.id]) == (2, 3)
        assert clock.sleeps == [1, 2, 1, 2], "before each further attempt"


async def test_no_usable_queue_raises_with_every_failure() -> None:
    async with Emulator(NAMESPACES) as emulator:
        emulator["contoso-dr"].set_fault(
            Fault(kind=FaultKind.INTERNAL_ERROR, on=(Operation.ADMINISTER,), entity="contoso/*")
        )
        async with ServiceBusAdministration(endpoint(emulator["contoso-dr"])) as administration:
            with pytest.raises(ProvisionError, match="no usable backlog queue for namespace contoso") as caught:
                await provisioner(administration).provision()
        assert all(path in str(caught.value) for path in QUEUES)


async def test_authorization_error_is_not_retried() -> None:
    async with Emulator(NAMESPACES) as emulator:
        emulator["contoso-dr"].set_fault(
            Fault(kind=FaultKind.UNAUTHORIZED, on=(Operation.ADMINISTER,), entity="contoso/*")
        )
        clock = ManualClock()
        async with ServiceBusAdministration(endpoint(emulator["contoso-dr"])) as administration:
            with pytest.raises(ProvisionError, match=f"creating {QUEUES[0]} is not allowed"):
                await provisioner(administration, clock=clock).provision()
        assert clock.sleeps == []
        assert [armed.strikes for armed in emulator["contoso-dr"].clear_faults()] == [1]


async def test_wrong_key_is_not_retried_or_disclosed() -> None:
    async with Emulator(NAMESPACES) as emulator:
        right = emulator["contoso-dr"]
        text = right.connection_string.replace("SharedAccessKey=", "SharedAccessKey=c2VjcmV0")
        wrong = Endpoint.from_connection_string(
            text, namespace="contoso-dr", administration=f"{right.host}:{right.admin_port}"
        )
        async with NamespacePair(endpoint(emulator["contoso"]), wrong) as pair:
            with pytest.raises(ProvisionError, match="not allowed: the Manage right is required") as caught:
                await pair.provision()
        assert "c2VjcmV0" not in f"{caught.value!r} {caught.value.__cause__!r}"


@WAYS
async def test_section_6_session_order_provisions_queues_that_require_sessions_beside_the_others(way: str) -> None:
    async with Emulator(NAMESPACES) as emulator:
        emulator["contoso-dr"].namespace.create_queue(QueueDescription(SESSIONS[1], requires_session=True))
        async with pair_over(emulator, way, ordering="session") as pair:
            report = await pair.provision()
            again = await pair.provision()
        async with pair_over(emulator, way) as unordered:
            assert (await unordered.plan()).extra == SESSIONS
            assert (await unordered.provision()).found == QUEUES
        assert report.found == SESSIONS[1:2]
        assert report.created == (*QUEUES, SESSIONS[0], SESSIONS[2])
        assert {drift.queue for drift in report.drifted} == {SESSIONS[1]}
        assert (again.found, again.created, again.failed) == ((*QUEUES, *SESSIONS), (), {})
        async with administration_for(managed(emulator, way)) as administration:
            made = await administration.list_queues()
        expected = dict.fromkeys(QUEUES, BACKLOG_QUEUE) | dict.fromkeys(SESSIONS, SESSION_QUEUE)
        assert {path: made[path] for path in made if path != SESSIONS[1]} == {
            path: shape for path, shape in expected.items() if path != SESSIONS[1]
        }


@WAYS
async def test_section_6_a_session_queue_that_requires_none_must_be_deleted_and_made_again(
    way: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with Emulator(NAMESPACES) as emulator:
        emulator["contoso-dr"].namespace.create_queue(QueueDescription(SESSIONS[0]))
        async with pair_over(emulator, way, ordering="session") as pair:
            report = await pair.provision()
            assert (await pair.cleanup(everything=True, only=list(report.failed))).deleted == SESSIONS[:1]
            mended = await pair.provision()
        assert list(report.failed) == [SESSIONS[0]]
        assert "cannot be changed: drain the queue, delete it and provision again" in report.failed[SESSIONS[0]]
        assert f"backlog queue={SESSIONS[0]} cannot be used: RequiresSession is False" in caplog.text
        assert SESSIONS[0] not in (*report.found, *report.created)
        assert ("requires_session", "True", "False") in {
            (drift.field, drift.expected, drift.actual) for drift in report.drifted
        }
        assert (mended.created, mended.failed) == (SESSIONS[:1], {})


@pytest.mark.parametrize(
    ("wrong", "requires_session", "kind"),
    [(SESSIONS, False, "queue that requires sessions"), (QUEUES, True, "queue for")],
)
async def test_section_3_no_usable_queue_of_one_kind_is_an_error(
    wrong: tuple[str, ...], requires_session: bool, kind: str
) -> None:
    async with Emulator(NAMESPACES) as emulator:
        for path in wrong:
            emulator["contoso-dr"].namespace.create_queue(QueueDescription(path, requires_session=requires_session))
        async with pair_over(emulator, "data plane", ordering="session") as pair:
            with pytest.raises(ProvisionError, match=f"no usable backlog {kind}"):
                await pair.provision()
