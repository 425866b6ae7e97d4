"""Whatever ends a send, its caller gets the account of every message (SPEC section 4)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from servicebus_emulator import Fault, FaultKind, Operation
from servicebus_emulator.engine.model.descriptions import QueueDescription
from servicebus_emulator.engine.model.timespan import TimeSpan
from servicebus_pair.core import PairOptions
from servicebus_pair.core.model.errors import SendError, SendTimeoutError, find_send_error
from servicebus_pair.core.model.interfaces import InMemoryHealthStore
from tests.core.support.local_pair import LocalPair, numbered, open_local_pair, open_quick_pair
from tests.core.support.spooling import stop

pytestmark = pytest.mark.simulated

TOMORROW = datetime.now(UTC) + timedelta(days=1)
BIG = 100_000


class RaisingRows(Collection[ServiceBusMessage]):
    """A collection whose iterator raises in the middle, and again whenever it is asked."""

    def __init__(self, *, good: int) -> None:
        self._good = good

    def __len__(self) -> int:
        return self._good + 1

    def __contains__(self, item: object) -> bool:
        return False

    def __iter__(self) -> Iterator[ServiceBusMessage]:
        return self

    def __next__(self) -> ServiceBusMessage:
        if self._good == 0:
            raise RuntimeError("the file ended early")
        self._good -= 1
        return ServiceBusMessage(b"x" * BIG, message_id=f"m{self._good}")


def ids(messages: tuple[ServiceBusMessage, ...]) -> list[str]:
    return [str(message.message_id) for message in messages]


async def test_section_4_an_input_that_keeps_raising_ends_in_the_account(local_pair: LocalPair) -> None:
    async with local_pair.pair.sender("flights") as sender:
        with pytest.raises(SendError, match="the file ended early") as caught:
            await sender.send(RaisingRows(good=4))
    assert caught.value.result.primary_ids == ("m3", "m2")
    assert ids(caught.value.unsent) == ["m1", "m0"]


async def test_section_4_a_cancelled_schedule_keeps_the_numbers_of_what_was_scheduled(local_pair: LocalPair) -> None:
    messages = [ServiceBusMessage(b"x" * BIG, message_id=f"m{n}") for n in range(4)]
    async with local_pair.pair.sender("flights") as sender:
        await sender.schedule(numbered(1, start=9), TOMORROW)
        # The first batch is answered; the second one is not.
        local_pair.primary.set_fault(
            Fault(kind=FaultKind.LATE_DISPOSITION, on=(Operation.MANAGE,), entity="flights", delay=0.2, count=1)
        )
        scheduling = asyncio.create_task(sender.schedule(messages, TOMORROW))
        await asyncio.sleep(0.1)
        local_pair.primary.set_fault(Fault(kind=FaultKind.NO_DISPOSITION, on=(Operation.MANAGE,), entity="flights"))
        await asyncio.sleep(0.4)
        scheduling.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await scheduling
        account = find_send_error(caught.value)
        assert account is not None
        assert account.result.primary_ids == ("m0", "m1")
        assert len(account.sequence_numbers) == 2
        local_pair.primary.clear_faults()
        await sender.cancel_scheduled(account.sequence_numbers)


async def test_section_4_a_send_repeated_after_an_unconfirmed_store_says_that_two_copies_may_exist() -> None:
    async with (
        open_quick_pair(failover_interval=timedelta(seconds=30), attempt_timeout=timedelta(seconds=1)) as local_pair,
        local_pair.pair.sender("flights") as sender,
    ):
        await sender.send(numbered(1))
        local_pair.primary.set_fault(Fault(kind=FaultKind.NO_DISPOSITION, entity="flights", count=1))
        result = await sender.send(numbered(2, start=1))
        assert (result.primary_ids, result.duplicates_possible_ids) == (("m1", "m2"), ("m1", "m2"))
        assert await local_pair.primary_ids() == ["m0", "m1", "m2", "m1", "m2"]
        assert (await sender.send(numbered(1, start=3))).duplicates_possible_ids == ()


@pytest.mark.parametrize(
    ("window", "copies", "spooled"), [(None, 2, False), ("PT10M", 1, False), ("PT20S", 2, False), ("PT20S", 2, True)]
)
async def test_section_1_duplicate_detection_drops_the_second_copy_within_its_window(
    window: str | None, copies: int, spooled: bool, tmp_path: Path
) -> None:
    async with open_quick_pair(spool=str(tmp_path) if spooled else None) as local_pair:
        local_pair.primary.namespace.create_queue(
            QueueDescription(
                "once",
                requires_duplicate_detection=window is not None,
                duplicate_detection_history_time_window=TimeSpan.parse(window or "PT10M"),
            )
        )
        async with local_pair.pair.sender("once") as sender:
            await sender.send(numbered(1))
            local_pair.primary.set_fault(Fault(kind=FaultKind.NO_DISPOSITION, entity="once"))
            if spooled:
                stop(local_pair.secondary)
            result = await sender.send(numbered(1, start=1), timeout=5 if spooled else None)
            assert (result.spooled, result.diverted) == (int(spooled), int(not spooled))
            assert result.duplicates_possible_ids == ("m1",)
        await asyncio.sleep(60)  # the outage
        local_pair.primary.clear_faults()
        local_pair.secondary.clear_faults()
        await local_pair.pair.syphon().drain()
        assert await local_pair.primary_ids("once") == ["m0", *["m1"] * copies]


async def test_section_1_without_session_order_later_messages_may_arrive_before_those_in_the_backlog(
    local_pair: LocalPair,
) -> None:
    async with local_pair.pair.sender("flights") as sender:
        await local_pair.pair.fail_over("flights", reason="test")
        assert (await sender.send(numbered(2))).diverted == 2
        assert await local_pair.pair.ping("flights")
        assert (await sender.send(numbered(1, start=2))).primary == 1
    assert (await local_pair.pair.syphon().drain()).moved == {"flights": 2}
    assert await local_pair.primary_ids() == ["m2", "m0", "m1"]


@pytest.mark.parametrize("failed_over", [False, True])
async def test_section_4_a_refused_mixture_of_sessions_loses_no_message(failed_over: bool) -> None:
    """Sessions alternate and fill batches to the brim, so that every part is packed anew."""
    async with open_quick_pair() as local_pair:
        local_pair.primary.namespace.create_queue(QueueDescription("partitioned", enable_partitioning=True))
        sent = [
            ServiceBusMessage(
                b"x" * (20_000 + 997 * (number % 7)), message_id=f"m{number}", session_id="s" * (1 + number % 5)
            )
            for number in range(60)
        ]
        async with local_pair.pair.sender("partitioned") as sender:
            if failed_over:
                await local_pair.pair.fail_over("partitioned", reason="test")
            result = await sender.send(sent)
        stored = await (local_pair.backlog_ids() if failed_over else local_pair.primary_ids("partitioned"))
        assert sorted(stored) == sorted(result.message_ids) == sorted(f"m{n}" for n in range(60))


@pytest.mark.parametrize("timeout", [None, 300.0])
async def test_section_4_a_send_over_a_slow_line_ends_while_others_keep_the_entity_healthy(
    timeout: float | None,
) -> None:
    """A message that takes longer than an attempt, beside small ones whose successes end every suspicion."""
    loop = asyncio.get_running_loop()
    async with open_quick_pair(
        failover_interval=timedelta(seconds=20), attempt_timeout=timedelta(seconds=10)
    ) as local_pair:
        async with local_pair.pair.sender("flights") as large, local_pair.pair.sender("flights") as small:
            await large.send(numbered(1, start=900))
            local_pair.primary.set_fault(Fault(kind=FaultKind.BANDWIDTH, bytes_per_second=20_000))
            done = asyncio.Event()

            async def traffic() -> int:
                sent = 0
                while not done.is_set():
                    sent += (await small.send(numbered(1, start=sent))).sent
                    await asyncio.sleep(0.5)
                return sent

            others = [asyncio.create_task(traffic()) for _ in range(2)]
            began = loop.time()
            result = await large.send(ServiceBusMessage(b"x" * 250_000, message_id="large"), timeout=timeout)
            assert loop.time() - began < 75
            done.set()
            local_pair.primary.clear_faults()
            assert all(await asyncio.gather(*others))
        assert (result.diverted_ids, result.duplicates_possible_ids) == (("large",), ("large",))


async def test_section_4_a_send_without_a_deadline_ends_although_the_service_stays_busy(local_pair: LocalPair) -> None:
    local_pair.primary.set_fault(Fault(kind=FaultKind.SERVER_BUSY, entity="flights"))
    async with local_pair.pair.sender("flights") as sender:
        async with asyncio.timeout(60):
            result = await sender.send(numbered(2))
        assert result.diverted == 2
        assert not local_pair.pair.health("flights").failed_over


async def test_section_4_a_stream_that_waits_does_not_outlast_the_timeout_of_its_send(local_pair: LocalPair) -> None:
    async def rows() -> AsyncIterator[ServiceBusMessage]:
        for message in numbered(3):
            yield message
        await asyncio.sleep(100)

    loop = asyncio.get_running_loop()
    async with local_pair.pair.sender("flights") as sender:
        began = loop.time()
        with pytest.raises(SendTimeoutError) as caught:
            await sender.send(rows(), timeout=1.5)
        assert loop.time() - began == pytest.approx(1.5, abs=0.5)
    assert ids(caught.value.unsent) == ["m0", "m1", "m2"]


async def test_section_4_a_stream_that_raises_a_timeout_of_its_own_is_not_out_of_time(local_pair: LocalPair) -> None:
    async def rows() -> AsyncIterator[ServiceBusMessage]:
        yield numbered(1)[0]
        raise TimeoutError("the source is late")

    async with local_pair.pair.sender("flights") as sender:
        with pytest.raises(SendError, match="the source is late") as caught:
            await sender.send(rows(), timeout=60)
    assert not isinstance(caught.value, SendTimeoutError)


@pytest.mark.parametrize("ordering", ["none", "session"])
async def test_section_4_sends_that_wait_for_the_link_of_a_silent_entity_are_all_diverted(ordering: str) -> None:
    options = PairOptions(
        backlog_queue_count=2,
        failover_interval=timedelta(seconds=2),
        attempt_timeout=timedelta(seconds=2),
        health_refresh=timedelta(seconds=1),
        ping_primary_interval=timedelta(seconds=60),
        ordering=ordering,
    )
    async with (
        open_local_pair("flights", options=options, store=InMemoryHealthStore()) as both,
        both.pair.sender("flights") as sender,
    ):
        await sender.send(ServiceBusMessage("x", message_id="first", session_id="s"))
        both.primary.set_fault(Fault(kind=FaultKind.NO_DISPOSITION, entity="flights"))
        sends = [
            sender.send(ServiceBusMessage("x", message_id=f"m{number}", session_id=f"s{number}")) for number in range(8)
        ]
        results = await asyncio.gather(*sends)
    assert [result.diverted for result in results] == [1] * 8


async def test_section_4_a_message_whose_copy_would_be_rejected_is_refused_and_the_others_are_diverted(
    local_pair: LocalPair,
) -> None:
    """With the properties that travel for the session and the path, its properties exceed 64 KB."""
    large: dict[str | bytes, Any] = dict.fromkeys("abcd", "x" * 16365)
    nearly = ServiceBusMessage("x", message_id="large", session_id="s" * 20, application_properties=dict(large))
    async with local_pair.pair.sender("flights") as sender:
        assert (await sender.send(nearly)).primary == 1
        await local_pair.pair.fail_over("flights", reason="test")
        again = ServiceBusMessage("x", message_id="large", session_id="s" * 20, application_properties=dict(large))
        with pytest.raises(SendError, match="as a copy for the backlog") as caught:
            await sender.send([*numbered(2), again, *numbered(2, start=2)])
    assert ids(caught.value.refused) == ["large"]
    assert caught.value.result.diverted_ids == ("m0", "m1", "m2", "m3")


def given_messages(*numbers: int) -> list[Any]:
    """Messages of both types that applications use, alternately."""
    plain = numbered(1 + max(numbers))
    return [plain[number] if number % 2 else plain[number].raw_amqp_message for number in numbers]


async def stream(items: list[Any]) -> AsyncIterator[Any]:
    for item in items:
        yield item


@pytest.mark.parametrize("form", [list, iter, stream])
@pytest.mark.parametrize("failed_over", [False, True])
async def test_section_4_what_was_not_sent_comes_back_as_the_very_objects_that_were_given(
    form: Any, failed_over: bool
) -> None:
    async with open_quick_pair() as local_pair, local_pair.pair.sender("flights") as sender:
        if failed_over:
            await local_pair.pair.fail_over("flights", reason="test", hold=timedelta(hours=1))
        for namespace in (local_pair.primary, local_pair.secondary):
            namespace.set_fault(Fault(kind=FaultKind.NO_DISPOSITION))
        sent = given_messages(0, 1, 2)
        with pytest.raises(SendError) as caught:
            await sender.send(form(sent), timeout=3)
        assert all(one is other for one, other in zip(caught.value.unsent, sent, strict=True))
        assert all(one is other for one, other in zip(caught.value.in_doubt, sent, strict=True))
        with pytest.raises(SendError) as caught:
            await sender.schedule(sent, TOMORROW, timeout=3)
        assert all(one is other for one, other in zip(caught.value.unsent, sent, strict=True))


@pytest.mark.parametrize("form", [list, iter, stream])
async def test_section_4_an_item_that_is_no_message_is_unsent_as_well(local_pair: LocalPair, form: Any) -> None:
    wrong = object()
    sent = [*given_messages(0, 1), wrong, *given_messages(2, 3)]
    source = form(sent)
    async with local_pair.pair.sender("flights") as sender:
        with pytest.raises(SendError, match="a message is object: allowed are ServiceBusMessage") as caught:
            await sender.send(source)
    taken = sent if form is list else sent[:3]
    assert (caught.value.result.sent, len(caught.value.unsent)) == (0, len(taken))
    assert all(one is other for one, other in zip(caught.value.unsent, taken, strict=True))
