"""However a send ends, it reports the state of each message (SPEC section 4)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from servicebus_emulator import Fault, FaultKind
from servicebus_emulator.engine.model.descriptions import QueueDescription
from servicebus_pair.core.model.errors import (
    ObserverError,
    SendCancelledError,
    SendError,
    SendTimeoutError,
    find_send_error,
)
from servicebus_pair.core.model.events import Event, HealthChanged, MessagesAccepted
from servicebus_pair.core.protocol.amqp_message import AmqpMessage, body_digest
from servicebus_pair.core.sdk import message_batch
from tests.core.support.local_pair import FAILOVER_INTERVAL, FAILOVER_MARGIN, LocalPair, numbered, open_quick_pair

pytestmark = pytest.mark.simulated

BIG = 100_000
# Seconds; half a second is promised, but a loaded machine is slower.
LONG = timedelta(seconds=30)


def ids(messages: tuple[Any, ...]) -> list[str]:
    return [str(message.message_id) for message in messages]


def big(count: int) -> list[ServiceBusMessage]:
    """Messages so large that two fit one batch."""
    return [ServiceBusMessage(b"x" * BIG, message_id=f"m{n}") for n in range(count)]


class FullDisk:
    """An observer that fails on the second batch, like a ledger on a full disk."""

    def __init__(self) -> None:
        self.batches = 0

    def observe(self, event: Event) -> None:
        if isinstance(event, MessagesAccepted):
            self.batches += 1
            if self.batches == 2:
                raise OSError(28, "No space left on device")


class FailingHealthObserver:
    """An observer that fails on every health change."""

    def observe(self, event: Event) -> None:
        if isinstance(event, HealthChanged):
            raise RuntimeError("not again")  # noqa: TRY004 - no type is wrong here


async def test_section_4_a_timeout_reports_accepted_and_in_doubt_messages() -> None:
    stored_but_silent = Fault(kind=FaultKind.NO_DISPOSITION, entity="flights")
    async with open_quick_pair(failover_interval=LONG) as local_pair, local_pair.pair.sender("flights") as sender:

        def stream() -> Iterator[ServiceBusMessage]:
            for number, message in enumerate(big(7)):
                # The first batch is sent when the third message arrives, and so on.
                if number == 4:
                    local_pair.primary.set_fault(stored_but_silent)
                yield message

        source = stream()
        with pytest.raises(SendTimeoutError) as caught:
            await sender.send(source, timeout=1.5)
        error = caught.value
        assert error.result.primary_ids == ("m0", "m1")
        assert error.result.diverted_ids == ()
        assert ids(error.unsent) == ["m2", "m3", "m4"]
        assert ids(error.in_doubt) == ["m2", "m3"]
        # Only accepted messages and those in doubt are stored; the iterator keeps its position.
        assert await local_pair.primary_ids() == ["m0", "m1", "m2", "m3"]
        assert [message.message_id for message in source] == ["m5", "m6"]


async def test_section_4_asyncio_timeout_carries_the_send_error_as_its_cause(local_pair: LocalPair) -> None:
    local_pair.primary.set_fault(Fault(kind=FaultKind.FREEZE))
    async with local_pair.pair.sender("flights") as sender:
        with pytest.raises(TimeoutError) as caught:
            async with asyncio.timeout(0.3):
                await sender.send(numbered(3))
    account = find_send_error(caught.value)
    assert isinstance(account, SendCancelledError)
    assert ids(account.unsent) == ["m0", "m1", "m2"]


async def test_section_4_concurrent_sends_that_meet_the_outage_divert_together(local_pair: LocalPair) -> None:
    async with local_pair.pair.sender("flights") as sender:
        await sender.send(numbered(1))
        local_pair.primary.set_fault(Fault(kind=FaultKind.FREEZE))
        started = asyncio.get_running_loop().time()
        results = await asyncio.gather(*(sender.send(numbered(1, start=n)) for n in range(1, 31)))
        assert asyncio.get_running_loop().time() - started < FAILOVER_INTERVAL + FAILOVER_MARGIN
    assert [result.diverted for result in results] == [1] * 30


@pytest.mark.parametrize("asynchronous", [False, True], ids=["iterator", "stream"])
async def test_section_4_an_iterable_that_raises_loses_no_message(local_pair: LocalPair, asynchronous: bool) -> None:
    def rows() -> Iterator[ServiceBusMessage]:
        yield from big(4)
        raise RuntimeError("the file ended early")

    async def stream() -> AsyncIterator[ServiceBusMessage]:
        for row in rows():
            yield row

    async with local_pair.pair.sender("flights") as sender:
        with pytest.raises(SendError, match="the file ended early") as caught:
            await sender.send(stream() if asynchronous else rows())
    assert isinstance(caught.value.cause, RuntimeError)
    assert caught.value.result.primary_ids == ("m0", "m1")
    assert ids(caught.value.unsent) == ["m2", "m3"]
    assert caught.value.in_doubt == ()


async def test_section_4_the_same_message_sent_twice_is_counted_twice(local_pair: LocalPair) -> None:
    [message] = numbered(1)
    async with local_pair.pair.sender("flights") as sender:
        await local_pair.pair.fail_over("flights", reason="test")
        assert (await sender.send([message, message])).diverted_ids == ("m0", "m0")
        await local_pair.pair.mark_healthy("flights")
        assert (await sender.send([message, message])).primary_ids == ("m0", "m0")


async def test_section_9_a_failing_observer_ends_the_send_with_the_accepted_messages() -> None:
    later = FailingHealthObserver(), FullDisk()
    async with open_quick_pair(observers=later) as local_pair, local_pair.pair.sender("flights") as sender:
        with pytest.raises(SendError, match="No space left") as caught:
            await sender.send(big(6))
        error = caught.value
        assert isinstance(error.cause, ObserverError)
        assert error.result.primary_ids == ("m0", "m1", "m2", "m3")
        assert ids(error.unsent) == ["m4", "m5"]
        assert error.in_doubt == ()
        assert await local_pair.primary_ids() == ["m0", "m1", "m2", "m3"]
        # The other observers received the event.
        assert len(local_pair.recorder.of(MessagesAccepted)) == 2


async def test_section_9_what_a_ledger_records_is_prepared_while_the_outcome_is_awaited(
    local_pair: LocalPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    times: list[float] = []
    clock = asyncio.get_running_loop().time

    def timed(message: AmqpMessage) -> str | None:
        times.append(clock())
        return body_digest(message)

    monkeypatch.setattr(message_batch, "body_digest", timed)
    async with local_pair.pair.sender("flights") as sender:
        await sender.send(numbered(1))
        local_pair.primary.set_fault(Fault(kind=FaultKind.LATENCY, delay=0.1))
        times.clear()
        started = clock()
        await sender.send(numbered(3))
    assert (len(times), max(times) - started) == (3, pytest.approx(0, abs=0.01))
    assert clock() - started == pytest.approx(0.1)


async def test_section_4_an_observer_that_fails_on_a_health_change_does_not_stop_the_failover() -> None:
    async with (
        open_quick_pair(observers=(FailingHealthObserver(),)) as local_pair,
        local_pair.pair.sender("flights") as sender,
    ):
        local_pair.primary.set_fault(Fault(kind=FaultKind.INTERNAL_ERROR, entity="flights"))
        assert (await sender.send(numbered(3))).diverted == 3
        local_pair.primary.clear_faults()
        await asyncio.wait_for(local_pair.recorder.recovered.wait(), 5)


async def test_section_4_a_send_that_waited_for_the_link_during_a_failover_is_diverted(local_pair: LocalPair) -> None:
    async with local_pair.pair.sender("flights") as sender:
        await sender.send(numbered(1))
        local_pair.primary.set_fault(Fault(kind=FaultKind.LATE_DISPOSITION, entity="flights", delay=0.5))
        first = asyncio.create_task(sender.send(numbered(1, start=1)))
        second = asyncio.create_task(sender.send(numbered(1, start=2)))
        await asyncio.sleep(0.1)
        await local_pair.pair.fail_over("flights", reason="test")
        assert (await first).primary == 1
        assert (await second).diverted == 1
    assert await local_pair.primary_ids() == ["m0", "m1"]


async def test_section_5_messages_collected_for_the_backlog_go_to_the_recovered_primary(
    local_pair: LocalPair,
) -> None:
    async def stream() -> AsyncIterator[ServiceBusMessage]:
        for number, message in enumerate(big(9)):
            if number == 5:
                await local_pair.pair.mark_healthy("flights")
            yield message

    async with local_pair.pair.sender("flights") as sender:
        await local_pair.pair.fail_over("flights", reason="test")
        result = await sender.send(stream())
    assert (result.primary, result.diverted) == (9, 0)
    assert await local_pair.primary_ids() == [f"m{n}" for n in range(9)]
    assert await local_pair.backlog_ids() == []


async def test_section_4_an_outage_of_one_entity_does_not_affect_others(local_pair: LocalPair) -> None:
    local_pair.primary.namespace.create_queue(QueueDescription("calm"))
    local_pair.primary.set_fault(Fault(kind=FaultKind.INTERNAL_ERROR, entity="flights"))
    async with local_pair.pair.sender("flights") as flights, local_pair.pair.sender("calm") as calm:
        assert (await flights.send(numbered(3))).diverted == 3
        assert (await calm.send(numbered(3))).primary == 3
    assert not local_pair.pair.health("calm").failed_over
