"""When neither namespace takes a message, it is kept in the spool and goes home from there (SPEC section 10)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from servicebus_emulator import Fault, FaultKind, Operation
from servicebus_emulator.engine.model.descriptions import QueueDescription
from servicebus_pair.core import PairOptions
from servicebus_pair.core.model.errors import NoBacklogQueueError, SendError, SendTimeoutError, SpoolFullError
from servicebus_pair.core.model.events import MessagesAccepted, MessagesUnspooled, Route
from servicebus_pair.core.model.interfaces import SystemClock
from servicebus_pair.core.pair import check_spool
from servicebus_pair.core.protocol.amqp_message import (
    SCHEDULED_TIME,
    AmqpMessage,
    BodyType,
    Properties,
    new_message,
)
from servicebus_pair.core.sdk.message_batch import EncodedBatch
from servicebus_pair.core.sdk.send_link import SendLink
from servicebus_pair.core.spool.folder_storage import FolderStorage
from servicebus_pair.core.spool.spool import Spool
from tests.core.support.local_pair import QUICK_OPTIONS, numbered, open_local_pair
from tests.core.support.queues import peek_all
from tests.core.support.spooling import spooling_pair, stop
from tests.core.support.stopwatch import Stopwatch

pytestmark = pytest.mark.simulated


async def test_section_10_what_neither_namespace_takes_is_spooled_and_comes_home_in_order(tmp_path: Path) -> None:
    async with spooling_pair(tmp_path) as made, made.pair.sender("flights") as sender:
        stop(made.primary, made.secondary)
        result = await sender.send(numbered(5))
        assert (result.spooled, result.sent, result.spooled_ids) == (5, 5, tuple(f"m{n}" for n in range(5)))
        again = await sender.send(numbered(5, start=5))
        assert again.spooled == 5
        [entity] = (await made.pair.spooled()).items()
        assert (entity[0], entity[1].messages) == ("flights", 10)
        made.primary.clear_faults()
        made.secondary.clear_faults()
        await made.recorder.recovered.wait()
        report = await made.pair.empty_spool()
        assert (report.moved_total, report.left, report.results["flights"].primary) == (10, 0, 10)
        assert await made.primary_ids() == [f"m{n}" for n in range(10)]
        assert await made.pair.spooled() == {}
        name = (tmp_path / "name").read_text().strip()
        accepted = [(each.route, len(each.messages), each.spool) for each in made.recorder.of(MessagesAccepted)]
        assert accepted == [(Route.SPOOLED, 5, name), (Route.SPOOLED, 5, name)]
        unspooled = [(each.route, len(each.messages), each.spool) for each in made.recorder.of(MessagesUnspooled)]
        assert unspooled == [(Route.PRIMARY, 5, name), (Route.PRIMARY, 5, name)]


async def test_section_10_while_only_the_secondary_answers_the_spool_goes_to_the_backlog(tmp_path: Path) -> None:
    async with spooling_pair(tmp_path) as made, made.pair.sender("flights") as sender:
        stop(made.primary, made.secondary)
        await sender.send(numbered(5))
        made.secondary.clear_faults()
        report = await made.pair.empty_spool()
        assert (report.results["flights"].diverted, report.left) == (5, 0)
        assert sorted(await made.backlog_ids()) == [f"m{n}" for n in range(5)]


async def test_section_10_a_spool_that_could_not_be_used_is_reported_before_it_is_needed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "file"
    folder.write_text("mine")
    async with spooling_pair(folder) as made:
        for number in range(2):
            async with made.pair.sender("flights") as sender:
                assert (await sender.send(numbered(1, start=number))).primary == 1
    [warned] = [each.getMessage() for each in caplog.records if "is not a folder" in each.getMessage()]
    assert warned.startswith("spool on ")
    check = await check_spool(PairOptions(spool=str(folder)))
    assert str(check) == f"no ({folder} is not a folder)"
    assert str(await check_spool(PairOptions(spool=str(tmp_path)))) == "yes"
    assert await check_spool(PairOptions()) is None


# A copy for the backlog has more properties than its message: these are the most that the primary takes.
_MOST_PROPERTIES: dict[str | bytes, Any] = {f"p{n}": "x" * 32_740 for n in range(2)}


@pytest.mark.parametrize("rejects", [True, False], ids=["it rejects everything", "the copy is too large"])
async def test_section_10_what_the_backlog_refuses_stays_in_the_spool_for_the_primary(
    rejects: bool, tmp_path: Path
) -> None:
    options = {"failover_interval": timedelta(minutes=1)}
    async with spooling_pair(tmp_path, **options) as made, made.pair.sender("flights") as sender:
        stop(made.primary, made.secondary)
        sent = ServiceBusMessage(
            "x",
            message_id="m0",
            time_to_live=timedelta(hours=1),
            application_properties={} if rejects else _MOST_PROPERTIES,
        )
        assert (await sender.send([sent, *numbered(1, start=1)], timeout=2)).spooled == 2
        await made.pair.fail_over("flights", reason="test")
        made.secondary.clear_faults()
        if rejects:
            made.secondary.set_fault(Fault(kind=FaultKind.INTERNAL_ERROR, on=(Operation.SEND,)))
        report = await made.pair.empty_spool()
        assert (report.moved_total, report.set_aside, report.left) == (0, {}, 2)
        made.primary.clear_faults()
        await made.recorder.recovered.wait()
        assert (await made.pair.empty_spool()).moved_total == 2
        assert await made.primary_ids() == ["m0", "m1"]


_NEVER: dict[str, AmqpMessage] = {
    "too large": new_message(b"x" * 300_000, session_id="a"),
    "too large, as only the service knows": new_message(b"x" * 300_000, session_id="a"),
    "without the session that its entity requires": new_message("x"),
    "a property too large": new_message("x", session_id="a", application_properties={"p": "x" * 40_000}),
    "a time to live of zero": new_message("x", session_id="a", time_to_live=timedelta(0)),
    "a value that has no encoding": AmqpMessage(2**70, BodyType.VALUE, properties=Properties(group_id="a")),
    "a body that is none": AmqpMessage([1], properties=Properties(group_id="a")),
    "a partition key that is none": new_message("x", session_id="a", partition_key={"a": 1}),  # type: ignore[arg-type]
    "a schedule that is none": AmqpMessage([b""], properties=Properties(group_id="a"), annotations={SCHEDULED_TIME: 1}),
}


@pytest.mark.real_time
@pytest.mark.parametrize("never", _NEVER)
async def test_section_10_what_can_never_be_delivered_is_set_aside_and_holds_up_nothing(
    tmp_path: Path, never: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "only the service" in never:
        monkeypatch.setattr(SendLink, "new_batch", lambda _: EncodedBatch(262_144, max_message_bytes=1 << 20))
    async with spooling_pair(tmp_path) as made:
        made.primary.namespace.create_queue(QueueDescription("flights2", requires_session=True))
        spool = Spool(FolderStorage(str(tmp_path)), clock=SystemClock(), max_bytes=1 << 30)
        good = [new_message("x", session_id="a", message_id=f"m{number}") for number in range(4)]
        await spool.write("flights2", [good[0], _NEVER[never], good[1]])
        await spool.write("flights2", good[2:])
        report = await made.pair.empty_spool()
        assert (report.moved_total, report.set_aside, report.left) == (4, {"flights2": 1}, 0)
        assert (report.failures, await made.pair.spooled()) == ({}, {})
        sent = [each.message_id for event in made.recorder.of(MessagesUnspooled) for each in event.messages]
        assert sent == [f"m{number}" for number in range(4)]
        [reason] = (tmp_path / "set-aside").rglob("*.reason")
        assert reason.read_text().strip()
        if never == "too large":
            assert "takes 300" in reason.read_text()


async def test_section_10_what_the_entity_is_known_not_to_take_is_not_spooled(tmp_path: Path) -> None:
    async with spooling_pair(tmp_path) as made, made.pair.sender("flights") as sender:
        await sender.send(numbered(1))
        stop(made.primary, made.secondary)
        large = ServiceBusMessage(b"x" * 300_000, message_id="large")
        assert (await sender.send(numbered(1, start=1))).spooled == 1
        with pytest.raises(SendError, match="'large' takes 300") as caught:
            await sender.send([*numbered(1, start=2), large, *numbered(1, start=3)])
        assert (caught.value.result.spooled, caught.value.refused) == (2, (large,))
        with pytest.raises(SendError, match="'large' takes 300"):
            await sender.send(large)
        assert (await made.pair.spooled())["flights"].messages == 3


async def test_section_10_a_dead_secondary_costs_no_wait_for_each_send(tmp_path: Path) -> None:
    async with spooling_pair(tmp_path) as made, made.pair.sender("flights") as sender:
        for namespace in (made.primary, made.secondary):
            namespace.set_fault(Fault(kind=FaultKind.FREEZE))
        await sender.send(numbered(1))
        async with Stopwatch() as stopwatch:
            for number in range(1, 50):
                assert (await sender.send(numbered(1, start=number))).spooled == 1
        assert stopwatch.seconds < 1


async def test_section_10_the_backlog_is_used_again_once_it_answers(tmp_path: Path) -> None:
    async with spooling_pair(tmp_path) as made, made.pair.sender("flights") as sender:
        stop(made.primary, made.secondary)
        assert (await sender.send(numbered(1))).spooled == 1
        made.secondary.clear_faults()
        async with asyncio.timeout(30):
            number = 1
            while (await sender.send(numbered(1, start=number))).diverted == 0:
                number += 1
                await asyncio.sleep(0.2)
        assert (await made.pair.spooled())["flights"].messages == number


@pytest.mark.parametrize("full", [True, False], ids=["full", "cannot be written"])
async def test_section_10_without_room_the_send_raises_as_before_with_its_messages(full: bool, tmp_path: Path) -> None:
    limit = {"spool_max_bytes": 1} if full else {}
    if not full:
        (tmp_path / "messages").write_text("in the way")
    async with spooling_pair(tmp_path, **limit) as made, made.pair.sender("flights") as sender:
        stop(made.primary, made.secondary)
        sent = numbered(3)
        with pytest.raises(
            NoBacklogQueueError, match=r"neither namespace takes messages for flights .*spool"
        ) as caught:
            await sender.send(sent)
        assert len(caught.value.unsent) == 3
        assert len(caught.value.in_doubt) >= (0 if full else 3)
        assert isinstance(caught.value.__cause__, Exception)
        if full:
            assert isinstance(caught.value.__cause__.__cause__, SpoolFullError)


async def test_section_10_the_callers_time_limit_ends_in_the_spool(tmp_path: Path) -> None:
    async with spooling_pair(tmp_path, failover_interval=timedelta(minutes=1)) as made:
        made.primary.set_fault(Fault(kind=FaultKind.FREEZE))
        async with made.pair.sender("flights") as sender, Stopwatch() as stopwatch:
            result = await sender.send(numbered(3), timeout=2)
        assert result.spooled == 3
        assert stopwatch.seconds < 3


async def test_section_10_without_a_spool_the_callers_time_limit_raises() -> None:
    options = replace(QUICK_OPTIONS, failover_interval=timedelta(minutes=1))
    async with open_local_pair("flights", options=options) as made, made.pair.sender("flights") as sender:
        made.primary.set_fault(Fault(kind=FaultKind.FREEZE))
        with pytest.raises(SendTimeoutError):
            await sender.send(numbered(3), timeout=2)
        assert (await made.pair.spooled(), (await made.pair.empty_spool()).left) == ({}, 0)


async def test_section_10_a_large_send_is_accounted_by_route(tmp_path: Path) -> None:
    async with spooling_pair(tmp_path) as made, made.pair.sender("flights") as sender:
        big = [ServiceBusMessage(b"x" * 60_000, message_id=f"m{number}") for number in range(40)]
        await sender.send(numbered(1, start=100))
        stop(made.primary, made.secondary)
        result = await sender.send(big)
        assert (result.spooled, result.sent) == (40, 40)
        assert (await made.pair.spooled())["flights"].messages == 40


async def test_section_10_a_spooled_message_keeps_its_schedule_and_properties(tmp_path: Path) -> None:
    at = datetime(2040, 1, 1, tzinfo=UTC)
    async with spooling_pair(tmp_path) as made, made.pair.sender("flights") as sender:
        stop(made.primary, made.secondary)
        message = ServiceBusMessage("x", message_id="m1", subject="UA", application_properties={"gate": 7})
        result = await sender.schedule(message, at)
        assert result.sent.spooled == 1
        assert result.sequence_numbers == ()
        made.primary.clear_faults()
        await made.recorder.recovered.wait()
        await made.pair.empty_spool()
        [found] = await peek_all(made.primary.connection_string, "flights")
        assert (found.scheduled_enqueue_time_utc, found.subject) == (at, "UA")
        assert found.application_properties == {b"gate": 7}
